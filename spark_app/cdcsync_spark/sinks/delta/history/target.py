"""History tables as Delta tables (`sinks.history`): where they and their staged copies lie, how
they are made, and what is left of a copy.

A staged copy is a Delta table in `_resnapshot-<generation>/` below the history. Its publication
names the copy's files where they lie, so that only its Delta log goes then.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.changes import Build
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import Outcome, Writer, commit_each
from cdcsync_spark.sinks.delta.history.format import (
    DeltaHistoryFormat,
    columns_of,
    delta_history_schema,
    history_metadata,
)
from cdcsync_spark.sinks.delta.replica.maintenance import delete_files, staged_copies
from cdcsync_spark.sinks.delta.replica.sink import DeltaTarget
from cdcsync_spark.sinks.delta.table import refusals
from cdcsync_spark.sinks.delta.table.features import VECTORS_ENABLED, protocol_for
from cdcsync_spark.sinks.delta.table.log import head
from cdcsync_spark.sinks.delta.table.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.delta.table.view import TableView
from cdcsync_spark.sinks.history.rows import history_schema
from cdcsync_spark.sinks.history.target import NAMES, LakeHistory
from cdcsync_spark.sinks.history.writer import HistoryWriter
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.staged_copy import CHANGES


@dataclass(frozen=True)
class HistorySink:
    """The lake at `store`, for the sync `namespace/name`; `columns` are the metadata columns."""

    store: Store
    sync: str
    columns: EventColumns = NAMES
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(CHANGES)

    def target(self, table: TableId, *, generation: int = 0) -> HistoryTarget | DeltaTarget:
        main = HistoryTarget(TablePath(self.store, self.sync, table, events=self.columns), self.policy, self.limits)
        return main.copy(generation) if generation else main

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        return commit_each(epoch, parts)

    def discard(self, table: TableId, generation: int) -> None:
        """A copy that the history waits for stays."""
        main = HistoryTarget(TablePath(self.store, self.sync, table, events=self.columns))
        with self.store.translating_errors(str(table), "removing a staged copy"):
            view = main.path.view()
            state = view.state if view else None
            if state is None or state.published or state.generation != generation:
                remove_copy(main.path, main.copy(generation).path)


def remove_copy(main: TablePath, copy: TablePath) -> bool:
    """Only what the history does not have, nor had, and the copy's Delta log; False: there was
    none."""
    view, staged = main.view(), copy.view()
    named = {*view.gone, *(f.path for f in view.files.values())} if view else set()
    named |= {f.vector.path for f in view.files.values() if f.vector} if view else set()
    if not any(path.startswith(copy.prefix) for path in named):
        main.lake.delete_folder(copy.folder)
        return True
    if staged is None:
        return False
    vectors = {f.vector.path for f in staged.files.values() if f.vector}
    paths = {*staged.gone, *staged.files.keys(), *vectors}
    delete_files(copy, (path for path in paths if f"{copy.prefix}{path}" not in named))
    main.lake.delete_folder(f"{copy.folder}/_delta_log")
    return True


@dataclass(frozen=True)
class HistoryTarget(LakeHistory[TableView]):
    """One table's history."""

    path: TablePath
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS

    @property
    def uri(self) -> str:
        return self.path.store.uri

    @property
    def events(self) -> EventColumns:
        return columns_of(self.path)

    @property
    def table(self) -> DeltaTarget:
        return DeltaTarget(self.path, self.policy, self.limits)

    def copy(self, generation: int) -> DeltaTarget:
        return DeltaTarget(replace(self.path, staged=self.copy_name(generation)), self.policy, self.limits)

    def copy_name(self, generation: int) -> str:
        return f"{STAGED_PREFIX}{generation}"

    def create(self, state: TableState) -> None:
        with self.path.translating_errors("making the table"):
            self.path.refuse_other_files()
            self.path.store.make_folder("_delta_log")
            self.path.put_entry(0, self._first_entry(state))

    def _first_entry(self, state: TableState) -> list[dict[str, object]]:
        now, columns = time.time_ns() // 1_000_000, self.events
        schema = delta_history_schema(state.schema, columns)
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "createdTime": now,
            "configuration": {**history_metadata(state.schema, columns), VECTORS_ENABLED: "true"},
        }
        return [*head(state, "CREATE TABLE", now), protocol_for(schema, vectors=True), {"metaData": metadata}]

    def own_writer(self, scratch: Path) -> HistoryWriter[TableView]:
        table = DeltaHistoryFormat(self.path, self.policy)
        return HistoryWriter(table, self.path, self.events, scratch, self.policy, self.limits)

    def rows(self, version: TableView) -> LakeSnapshot:
        refusals.refuse_unreadable(str(self.path.table), version)
        snapshot = self.path.snapshot(version)
        return replace(snapshot, columns=history_schema(snapshot.state.schema, self.events))

    def remove_copies(self, generation: int) -> bool:
        with self.path.translating_errors("removing staged copies"):
            removed = [remove_copy(self.path, copy) for copy in staged_copies(self.path, generation)]
        return any(removed)

    def foreign_table_error(self) -> CdcError:
        return self.path.foreign_table_error()
