"""Staged copies as Delta tables below a table's folder, for sinks that send their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdcsync_core.state import TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.staging import StagedVersion
from cdcsync_spark.sinks.delta.replica.maintenance import staged_copies
from cdcsync_spark.sinks.delta.replica.sink import DeltaTarget
from cdcsync_spark.sinks.delta.table.open import entry_alone
from cdcsync_spark.sinks.delta.table.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.delta.table.view import TableView
from cdcsync_spark.sinks.lake.storage.store import Store


@dataclass(frozen=True)
class DeltaStagingTable(DeltaTarget):
    """See `StagingTable`: a version's files are read in the order of their paths, and an entry of a
    Delta log never changes."""

    #: see `Staging.copy`
    early: bool = True

    def prepare(self, state: TableState) -> TableState:
        return super().prepare(state if self.early else replace(state, early=False))

    def newest(self) -> StagedVersion | None:
        with self.path.translating_errors("reading the staged copy"):
            view = self.path.view()
        return None if view is None or view.state is None else self._version(view)

    def wave(self, number: int) -> StagedVersion | None:
        with self.path.translating_errors("reading the staged copy"):
            view = entry_alone(self.path.log(), number)
        return None if view is None or view.state is None or view.gone else self._version(view)

    def _version(self, view: TableView) -> StagedVersion:
        snapshot = self.path.snapshot(view)
        ordered = replace(snapshot, files=tuple(sorted(snapshot.files, key=lambda file: file[0])))
        counts = [file.rows for file in view.files.values()]
        return StagedVersion(view.version, ordered, None if None in counts else sum(filter(None, counts)))

    def remove(self) -> None:
        with self.path.translating_errors("removing a staged copy"):
            self.path.lake.delete_folder(self.path.folder)


@dataclass(frozen=True)
class DeltaStaging:
    """The lake at `store`, for the sync `namespace/name`; see `Staging`."""

    store: Store
    sync: str

    def _path(self, table: TableId) -> TablePath:
        return TablePath(self.store, self.sync, table)

    def copy(self, table: TableId, generation: int, *, early: bool = True) -> DeltaStagingTable:
        return DeltaStagingTable(replace(self._path(table), staged=f"{STAGED_PREFIX}{generation}"), early=early)

    def remove_copies(self, table: TableId, generation: int) -> bool:
        path = self._path(table)
        with path.translating_errors("removing staged copies"):
            copies = staged_copies(path, generation)
            for copy in copies:
                copy.lake.delete_folder(copy.folder)
        return bool(copies)
