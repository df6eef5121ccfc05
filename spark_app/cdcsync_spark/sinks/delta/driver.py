"""Delta tables of a lake, as `spec.sink.delta` describes them: replicas, or histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdcsync_core.resource.sinks.delta import Delta
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.history.target import HistorySink
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.policy import LEAVING_SMALL_FILES, POLICY
from cdcsync_spark.sinks.lake.storage.store import Store


@dataclass(frozen=True)
class DeltaDriver:
    """See `SinkDriver`; the lake is at `store`."""

    section: Delta
    store: Store
    sync: str

    def check(self, tables: Sequence[TableId]) -> Checks:
        """A lake has no servers but its store."""
        return Checks()

    def open(self, role: Role) -> Sink:
        policy = LEAVING_SMALL_FILES if role.followed else POLICY
        columns = self.section.event_columns()
        if columns:
            return HistorySink(self.store, self.sync, columns, policy=policy)
        return DeltaSink(self.store, self.sync, self.section.options.deletion_vectors, policy)
