"""One Delta table's folder: where it is and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from cdcsync_core.capture import Capture
from cdcsync_core.errors import CdcError
from cdcsync_core.event_columns import EventColumns, taken_error
from cdcsync_core.source_table import TableId
from cdcsync_spark.sinks.delta import refusals
from cdcsync_spark.sinks.delta.history_rows import snapshot_rows
from cdcsync_spark.sinks.delta.log import Log
from cdcsync_spark.sinks.delta.open import open_view
from cdcsync_spark.sinks.delta.snapshot import DeltaSnapshot
from cdcsync_spark.sinks.delta.view import TableView
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.staging import DataFile
from cdcsync_spark.sinks.lake.store import Store

#: hidden, as a VACUUM takes names: it would remove what only the staged copy's Delta log names
STAGED_PREFIX = "_resnapshot-"


@dataclass(frozen=True)
class TablePath:
    """The folder of `table` in the lake `lake`; `staged` is the folder of a
    staged copy below it, empty for the table itself.

    `vectors` is whether tables are made with deletion vectors. `events` are the metadata columns of
    a history table and of its staged copies; None for a replica.
    """

    lake: Store
    sync: str
    table: TableId
    staged: str = ""
    vectors: bool = True
    events: EventColumns | None = None

    @property
    def root(self) -> str:
        """The table's folder, relative to the lake: names of staged files are relative to it."""
        return f"{segment(self.table.database)}/{segment(self.table.name)}"

    @property
    def folder(self) -> str:
        """The folder of this target's log, relative to the lake: names in the Delta log are
        relative to it."""
        return f"{self.root}/{self.staged}" if self.staged else self.root

    @property
    def prefix(self) -> str:
        """What staged names have more than names in the Delta log."""
        return f"{self.staged}/" if self.staged else ""

    @property
    def store(self) -> Store:
        return self.lake.below(self.folder)

    def translating_errors(self, doing: str) -> AbstractContextManager[None]:
        return self.lake.translating_errors(str(self.table), doing)

    def log(self) -> Log:
        return Log(self.lake.files(), self.folder, self.lake.read, self.lake.has, self.lake.listed, self.store.linked)

    def view(self) -> TableView | None:
        """The newest version; None where there is no table. Raises `SinkConflict` for a table of
        another mode."""
        view = open_view(self.log())
        if view is not None and not self.staged:
            refusals.refuse_other_mode(view, self.events, str(self.table), self.store.uri)
        return view

    @property
    def stamp(self) -> Callable[[pa.Table], pa.Table] | None:
        """What makes staged rows of a history's snapshot what the table will have."""
        return None if self.events is None else partial(snapshot_rows, columns=self.events)

    def snapshot(self, view: TableView) -> DeltaSnapshot:
        """The rows of a version."""
        if view.state is None:
            raise self.foreign_table_error()
        files = tuple((file.path, file.vector) for file in view.files.values())
        return DeltaSnapshot(self.store, view.version, view.state, files)

    # -- what is refused

    def foreign_table_error(self) -> CdcError:
        return refusals.foreign_table_error(str(self.table), self.store.uri, self.sync)

    def refuse_taken_names(self, table: Capture) -> None:
        """A history would hide a captured column of a metadata column's name."""
        taken = self.events.taken(c.name for c in table.captured) if self.events else ""
        if taken:
            raise taken_error(taken, str(table.id))

    def refuse_other_files(self) -> None:
        """A folder that holds something else is not taken over."""
        names = self.lake.listed(self.folder)
        foreign = sorted(n for n in names if not n.startswith((".", "_")))
        if foreign and not self.staged and "_delta_log" not in names:
            raise refusals.occupied_folder_error(str(self.table), self.store.uri, foreign)

    def refuse_missing(self, files: tuple[DataFile, ...]) -> None:
        """Staged files are checked once more before a commit names them, so that a wave staged on
        another machine's disk, or removed by an eager clean-up, stops the run instead of making a
        table that cannot be read."""
        if not files:
            return
        infos = self.lake.files().get_file_info([f"{self.root}/{f.path}" for f in files])
        missing = [f.path for f, info in zip(files, infos, strict=True) if info.size != f.size]
        if missing:
            raise refusals.missing_files_error(str(self.table), self.store.uri, missing, len(files))
