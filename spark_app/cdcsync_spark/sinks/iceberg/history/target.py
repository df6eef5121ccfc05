"""History tables as Iceberg tables (`sinks.history`): a staged copy is the branch
`cdcsync-resnapshot-<generation>` of the history itself, that of the first snapshot, too, so that
readers of `main` see nothing of it.
"""

from __future__ import annotations

import re
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
from cdcsync_spark.sinks.history.rows import history_schema
from cdcsync_spark.sinks.history.target import NAMES, LakeHistory, TableWriter
from cdcsync_spark.sinks.history.writer import HistoryWriter
from cdcsync_spark.sinks.iceberg.history.format import IcebergHistoryFormat, events_of
from cdcsync_spark.sinks.iceberg.replica.format import IcebergFormat
from cdcsync_spark.sinks.iceberg.replica.place import BRANCH, FOLDER, Loaded, TablePlace, branch_of
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget, discard_copy
from cdcsync_spark.sinks.iceberg.replica.writer import IcebergWriter
from cdcsync_spark.sinks.iceberg.table.view import DATA, IcebergVersion
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.staged_copy import CHANGES

_COPY = re.compile(rf"({re.escape(BRANCH)}|{re.escape(FOLDER)})(\d{{1,18}})")


@dataclass(frozen=True)
class IcebergHistorySink:
    """History tables in the places where `tables` has replicas; `columns` are the metadata
    columns."""

    tables: IcebergSink
    columns: EventColumns = NAMES

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(CHANGES)

    def target(self, table: TableId, *, generation: int = 0) -> IcebergHistory | IcebergTarget:
        main = self._history(table)
        return main.copy(generation) if generation else main

    def _history(self, table: TableId) -> IcebergHistory:
        replica = self.tables.target(table)
        return IcebergHistory(replace(replica, place=replace(replica.place, events=self.columns)))

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        return commit_each(epoch, parts)

    def discard(self, table: TableId, generation: int) -> None:
        """A copy that the history waits for stays."""
        history = self._history(table)
        version = history.table.version()
        state = version.state if version else None
        if state is None or state.published or state.generation != generation:
            discard_copy(history.copy(generation).place, self.tables.limits)


@dataclass(frozen=True)
class IcebergHistory(LakeHistory[IcebergVersion]):
    """One table's history; `target` is the history itself as a table of rows."""

    target: IcebergTarget

    @property
    def place(self) -> TablePlace:
        return self.target.place

    @property
    def events(self) -> EventColumns:
        return events_of(self.place)

    @property
    def table(self) -> IcebergTarget:
        return self.target

    def copy(self, generation: int) -> IcebergTarget:
        return replace(self.target, place=replace(self.place, generation=generation))

    def copy_name(self, generation: int) -> str:
        return branch_of(generation)

    def create(self, state: TableState) -> None:
        self.target.create(state)

    def own_writer(self, scratch: Path) -> TableWriter:
        target, events = self.target, self.events

        def make(table: IcebergFormat) -> HistoryWriter[IcebergVersion]:
            history = IcebergHistoryFormat(table.place, table.folder, table.location, table.policy)
            return HistoryWriter(history, table.folder, events, scratch, target.policy, target.limits)

        return IcebergWriter(self.place, scratch, target.policy, target.limits, make)

    def rows(self, version: IcebergVersion) -> LakeSnapshot:
        snapshot = self.target.rows(version)
        return replace(snapshot, columns=history_schema(snapshot.state.schema, self.events))

    def remove_copies(self, generation: int) -> bool:
        loaded = self.place.load()
        numbers = [n for n in sorted(self._copies(loaded)) if n <= generation] if loaded else []
        removed = [discard_copy(self.copy(number).place, self.target.limits) for number in numbers]
        return any(removed)

    def _copies(self, loaded: Loaded) -> set[int]:
        """The generations of staged copies that have a branch, or files."""
        folder = self.place.folder(loaded)
        with folder.translating_errors("removing staged copies"):
            return set(_numbers([*loaded.metadata.refs, *folder.lake.listed(DATA)]))

    def foreign_table_error(self) -> CdcError:
        return self.place.foreign_table_error()


def _numbers(names: list[str]) -> Iterator[int]:
    for name in names:
        if copy := _COPY.fullmatch(name.strip("/")):
            yield int(copy[2])
