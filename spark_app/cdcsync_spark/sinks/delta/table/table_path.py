"""One Delta table's folder: where it is and how it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.event_columns import EventColumns, taken_error
from cdcsync_spark.sinks.delta.table import refusals
from cdcsync_spark.sinks.delta.table.log import Log, digest_of, entry_name
from cdcsync_spark.sinks.delta.table.open import open_view
from cdcsync_spark.sinks.delta.table.view import Action, TableView, entry_text
from cdcsync_spark.sinks.delta.table.weight import refuse_heavy_entry, refuse_heavy_view
from cdcsync_spark.sinks.history.rows import HISTORY, refuse_other_mode, snapshot_rows
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.lake.files.staging import Stamp
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: hidden, as a VACUUM takes names: it would remove what only the staged copy's Delta log names
STAGED_PREFIX = "_resnapshot-"


@dataclass(frozen=True)
class TablePath(TableFolder):
    """The folder of a Delta table, or of a staged copy of one.

    `vectors` is whether tables are made with deletion vectors. `events` are the metadata columns of
    a history table and of its staged copies; None for a replica.
    """

    vectors: bool = True
    events: EventColumns | None = None

    def log(self) -> Log:
        return Log(self.lake.files(), self.folder, self.lake.read, self.lake.has, self.lake.listed, self.store.linked)

    def view(self) -> TableView | None:
        """The newest version; None where there is no table. Raises `SinkConflict` for a table of
        another mode."""
        view = open_view(self.log())
        if view is not None and not self.staged:
            refuse_other_mode(view.properties.get(HISTORY), self.events, self.store.uri, str(self.table))
        return view

    def put_entry(self, version: int, actions: list[Action], on: TableView | None = None) -> bytes | None:
        """Writes our own entry of `version`, which follows `on`: its digest; None: there is
        another. Raises `SinkConflict` for one that this process would not read."""
        text = entry_text(actions)
        refuse_heavy_entry(self.log().entry_path(version), text)
        if on is not None:
            refuse_heavy_view(self.folder, on.held_after(actions))
        content = text.encode()
        return digest_of(content) if self.store.put_new(entry_name(version), content) else None

    @property
    def stamp(self) -> Stamp | None:
        """See `TableFolder.stamp`: a history's snapshot has metadata columns."""
        return None if self.events is None else partial(snapshot_rows, columns=self.events)

    def snapshot(self, view: TableView) -> LakeSnapshot:
        """The rows of a version."""
        if view.state is None:
            raise self.foreign_table_error()
        files = tuple((file.path, file.deleted) for file in view.files.values())
        return LakeSnapshot(self.store, view.version, view.state, files)

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
