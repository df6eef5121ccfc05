"""A sink whose tables Spark must write: they get in-commit timestamps, which delta-rs does not
write, as soon as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdcsync_core.source_table import TableId
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.delta.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.stores import open_store
from contract.sinkcase import SYNC


@dataclass(frozen=True)
class SparkTarget(DeltaTarget):
    spark: SparkSession | None = None

    def prepare(self, state: TableState) -> TableState:
        made = super().prepare(state)
        view = self.path.view()
        if view is not None and "delta.enableInCommitTimestamps" not in view.properties:
            assert self.spark is not None
            table = f"delta.`{self.uri}`"
            self.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
        return made


@dataclass(frozen=True)
class SparkSink(DeltaSink):
    spark: Any = None

    def target(self, table: TableId, *, generation: int = 0) -> SparkTarget:
        return SparkTarget(super().target(table, generation=generation).path, spark=self.spark)


def sink_by_spark(spark: SparkSession, folder: Path) -> SparkSink:
    return SparkSink(open_store(str(folder / "lake")), SYNC, spark=spark)
