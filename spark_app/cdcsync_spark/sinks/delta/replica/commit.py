"""The writer of a Delta table that is a replica: the lake's (`sinks.lake.writer`), by native
commits (`sinks.delta.replica.format`)."""

from __future__ import annotations

from pathlib import Path

from cdcsync_spark.sinks.delta.replica.format import DeltaFormat
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import TableView
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.writer import LakeWriter


class DeltaWriter(LakeWriter[TableView]):
    """Writes one Delta table; `scratch` is a folder on a local disk. Thread safe."""

    def __init__(
        self,
        table_path: TablePath,
        scratch: Path,
        policy: MaintenancePolicy = POLICY,
        limits: CommitLimits = LIMITS,
    ) -> None:
        super().__init__(DeltaFormat(table_path, policy), table_path, scratch, policy, limits)
