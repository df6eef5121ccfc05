"""The process that Spark forks its Python workers from: `python -m cdcsync_spark.workers MODULE` (`spark.python.daemon.module`).

It imports what a task of ours needs, once, so that a worker begins with its split. None of it starts a thread that a fork would miss.
"""

from __future__ import annotations

from pyspark import daemon

import cdcsync_spark.sinks.delta
import cdcsync_spark.wavejob  # noqa: F401 (both for the forks)

if __name__ == "__main__":
    daemon.manager()
