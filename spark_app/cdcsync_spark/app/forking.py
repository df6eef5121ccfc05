"""Which runs have a fork server, and what is imported before it."""

from __future__ import annotations

from pathlib import Path

from cdcsync_core.run import RunConfig, RunKind
from cdcsync_spark.forks import client

#: what the process of the stream's source imports: the driver needs most of it, too
_OF_THE_SOURCE = (
    "cdcsync_spark.binlog.collector",
    "cdcsync_spark.binlog.reader",
    "cdcsync_spark.stream.handover",
    "cdcsync_spark.stream.source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
)


def begin_forks(config: RunConfig) -> None:
    """For a stream. To be called while there is one thread."""
    if config.kind is RunKind.STREAM:
        client.start(Path(config.scratch_dir), _OF_THE_SOURCE)
