"""The Spark application: copies tables and follows the binlog.

Three things that its libraries do as they are imported serve nothing here and cost every process:
- Arrow imports pandas with the first `pa.array`, to see whether it is given one of its columns:
  0.2 CPU seconds, 36 MiB. Arrow is made to look while pandas cannot be found. What asks for it by
  name (`to_pandas`, PySpark's `createDataFrame`) imports it still.
- Arrow's own allocator (mimalloc) gives memory back to the kernel as soon as it is free, and the
  kernel clears it for the next batch: a twentieth of a snapshot's CPU seconds. The C library's
  keeps what it will need again, and less of what it will not.
- numpy's OpenBLAS starts a thread for each core, which spins until there is nothing to do for it:
  0.1 CPU seconds. Nothing here multiplies matrices.
"""

from __future__ import annotations

import os

# read as Arrow and numpy are imported, by processes started from here, too
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pyarrow as pa

from cdcsync_core.hidden import hidden

with hidden("pandas"):  # before any thread: an import of it elsewhere would fail meanwhile
    pa.array([0])
