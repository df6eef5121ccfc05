"""The process from which Spark forks its Python workers:
`python -m cdcsync_spark.engine.worker_preload MODULE` (`spark.python.daemon.module`).

It imports what a task of ours needs, once, so that a worker begins with its split. None of it
starts a thread that a fork would miss.

Two things that PySpark's worker does in every task cost eleven times what reading a split of 100
rows costs, and serve nothing here:
- `gc.collect()` after a task (pyspark/daemon.py) walks everything that was imported. What exists
  before the first fork never becomes garbage, so it is frozen: the collector passes over it, and
  pages shared with the daemon stay shared.
- `importlib.invalidate_caches()` (pyspark/worker_util.py) makes the next import read the
  directories of all archives on the path again, among them Spark's own jar of 5,362 entries. It
  finds modules that were shipped with `SparkContext.addPyFile` after the worker's start, which a
  driver of ours never does: every module that a task needs is in the image.
"""

from __future__ import annotations

import gc
import importlib

from pyspark import daemon

import cdcsync_spark.sinks.delta.replica.sink
import cdcsync_spark.sinks.lake.storage.object_store
import cdcsync_spark.snapshot.wave_job  # noqa: F401 (all for the forks)


def prepare_forks() -> None:
    """Leaves the workers nothing to do between tasks but collecting what a task left."""
    importlib.invalidate_caches = _keep_caches
    gc.collect()
    gc.freeze()


def _keep_caches() -> None:
    """In the place of `importlib.invalidate_caches`."""


if __name__ == "__main__":
    prepare_forks()
    daemon.manager()
