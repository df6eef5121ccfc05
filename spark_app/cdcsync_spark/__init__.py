"""The Spark application: copies tables and follows the binlog.

Two things that its libraries do as they are imported serve nothing here and cost every process:
- Arrow imports pandas with the first `pa.array`, to see whether it is given one of its columns:
  0.2 CPU seconds, 36 MiB. Arrow is made to look while pandas cannot be found. What asks for it by
  name (`to_pandas`, PySpark's `createDataFrame`) imports it still.
- numpy's OpenBLAS starts a thread for each core, which spins until there is nothing to do for it:
  0.1 CPU seconds. Nothing here multiplies matrices.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read as numpy is imported, by processes started from here, too

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def _hide_pandas() -> None:
    """Before any thread: an import of pandas elsewhere would fail meanwhile."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


_hide_pandas()
