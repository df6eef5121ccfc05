"""One Delta table's folder: where it is, how it is opened, what is refused there."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass

from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.table import Table, TableId
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks.base import StagedFile
from cdcsync_spark.sinks.delta.features import (
    CONSTRAINT,
    READABLE,
    append_only,
    hidden_columns,
    not_null_columns,
    unreadable_files_reason,
)
from cdcsync_spark.sinks.delta.log import OWN_TABLE, Log
from cdcsync_spark.sinks.delta.open import open_view
from cdcsync_spark.sinks.delta.snapshot import DeltaSnapshot
from cdcsync_spark.sinks.delta.view import TableView
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.store import Store

#: hidden, as a VACUUM takes names: it would remove what only the staged copy's Delta log names
STAGED_PREFIX = "_resnapshot-"


def delta_schema(table: Table) -> str:
    """The table's schema in Delta's JSON."""
    return Schema.from_arrow(arrow_schema(table)).to_json()


@dataclass(frozen=True)
class TablePath:
    """The folder of `table` in the lake `lake`; `staged` is the folder of a
    staged copy below it, empty for the table itself.

    `vectors` is whether tables are made with deletion vectors.
    """

    lake: Store
    sync: str
    table: TableId
    staged: str = ""
    vectors: bool = True

    @property
    def root(self) -> str:
        """The table's folder, relative to the lake: names of staged files are relative to it."""
        return f"{segment(self.table.database)}/{segment(self.table.name)}"

    @property
    def folder(self) -> str:
        """The folder of this target's log, relative to the lake: names in the log are relative to
        it."""
        return f"{self.root}/{self.staged}" if self.staged else self.root

    @property
    def prefix(self) -> str:
        """What staged names have more than names in the log."""
        return f"{self.staged}/" if self.staged else ""

    @property
    def store(self) -> Store:
        return self.lake.below(self.folder)

    def translating_errors(self, doing: str) -> AbstractContextManager[None]:
        return self.lake.translating_errors(str(self.table), doing)

    def log(self) -> Log:
        return Log(self.lake.files(), self.folder, self.lake.read, self.lake.has, self.lake.listed, self.store.linked)

    def view(self) -> TableView | None:
        """The newest version; None where there is no table."""
        return open_view(self.log())

    def snapshot(self, view: TableView) -> DeltaSnapshot:
        """The rows of a version."""
        if view.state is None:
            raise self.foreign_table_error()
        files = tuple((file.path, file.vector) for file in view.files.values())
        return DeltaSnapshot(self.store, view.version, view.state, files)

    def handle(self) -> DeltaTable | None:
        """The table as delta-rs opens it."""
        try:
            return DeltaTable(self.store.uri, storage_options=self.lake.storage_options())
        except TableNotFoundError:
            return None

    # -- what is refused

    def refuse_other_files(self) -> None:
        """A folder that holds something else is not taken over: a later VACUUM would remove it."""
        names = self.lake.listed(self.folder)
        strangers = sorted(n for n in names if not n.startswith((".", "_")))
        if strangers and not self.staged and "_delta_log" not in names:
            raise fail(
                Reason.SINK_CONFLICT,
                f"{self.store.uri} holds {len(strangers)} entries that are no Delta table, such as {strangers[0]!r}",
                needed="an empty folder",
                remedy=f"move them away, {RUN_AGAIN}; or create the sync again with another sink path",
                table=str(self.table),
            )

    def refuse_missing(self, files: tuple[StagedFile, ...]) -> None:
        """Staged files are looked at once more before a commit names them, so that a wave staged on
        another machine's disk, or removed by an eager clean-up, stops the run instead of making a
        table that cannot be read."""
        if not files:
            return
        infos = self.lake.files().get_file_info([f"{self.root}/{f.path}" for f in files])
        missing = [f.path for f, info in zip(files, infos, strict=True) if info.size != f.size]
        if missing:
            raise fail(
                Reason.SINK_CONFLICT,
                f"{len(missing)} of {len(files)} staged files are not whole in {self.store.uri}, such as {missing[0]}",
                needed="a sink path that the driver and all executors share, and nobody who removes files there",
                remedy=f"mount a shared volume there, {RUN_AGAIN}; or create the sync again in an object store",
                table=str(self.table),
            )

    def refuse_other_columns(self, view: TableView, table: Table) -> None:
        """Somebody dropped or changed a column of the target: appends would hide it, so look before
        each commit."""
        found = {name: field["type"] for name, field in view.fields.items()}
        needed = {field["name"]: field["type"] for field in json.loads(delta_schema(table))["fields"]}
        changed = sorted(name for name, kind in needed.items() if found.get(name) != kind)
        if changed:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target's column {changed[0]!r} is missing or has another type",
                needed="the columns that the table was made with",
                remedy=f"{RESNAPSHOT}; or undo the change of the target table, {RUN_AGAIN}",
                table=str(self.table),
            )
        self._refuse_not_null(view, table)

    def _refuse_not_null(self, view: TableView, table: Table) -> None:
        full = sorted(name for name in not_null_columns(view) if name not in table.key)
        if full:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target's column {full[0]!r} was made NOT NULL",
                needed="columns that take NULL, except for the key: a zero date of the source is one, whatever it declares",
                remedy=f"{RESNAPSHOT}; or ALTER COLUMN {full[0]} DROP NOT NULL there, {RUN_AGAIN}",
                table=str(self.table),
            )

    def refuse_unreadable(self, view: TableView) -> None:
        features = set(view.protocol.get("readerFeatures") or ()) - READABLE
        if features or view.protocol["minReaderVersion"] == 2:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target table was given the features {', '.join(sorted(features)) or 'of reader version 2'}",
                needed="a table without them to be read here",
                remedy="take the features away, or compare with Spark",
                table=str(self.table),
            )
        if view.partitions:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target table was partitioned by {', '.join(view.partitions)}",
                needed="a table without partitions to be read here: the files do not hold those columns",
                remedy=f"compare with Spark; or remove the table's folder, {RUN_AGAIN}",
                table=str(self.table),
            )

    def refuse_files(self, view: TableView) -> None:
        """Nothing in a staged file says that its columns are to be looked for elsewhere, so readers
        would see NULLs."""
        unreadable = unreadable_files_reason(view)
        if unreadable:
            raise fail(
                Reason.SINK_CONFLICT,
                f"{unreadable}, and rows that were read from the source would be misread in it",
                needed="a table without partitions and column mapping: files are added to it as they are",
                remedy=f"undo that, or remove the table's folder, {RUN_AGAIN}",
                table=str(self.table),
            )

    def refuse_hidden_keys(self, view: TableView, table: Table) -> None:
        """Whether a key is there twice is looked up in the files."""
        hidden = sorted(hidden_columns(view) & set(table.key))
        if hidden:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target's key column {hidden[0]!r} is not in its files: the table was partitioned by it, or maps its name",
                needed="key columns that are in the files under their names",
                remedy=f"undo that, or remove the table's folder, {RUN_AGAIN}",
                table=str(self.table),
            )

    def refuse_append_only(self, view: TableView) -> None:
        if append_only(view):
            raise fail(
                Reason.SINK_CONFLICT,
                "the target table was given delta.appendOnly=true, and rows of it change or go",
                needed="a table whose rows may change",
                remedy=f"set delta.appendOnly to false there, {RUN_AGAIN}",
                table=str(self.table),
            )

    def constraint_error(self, view: TableView) -> CdcError:
        """Without the values of the rows: errors are read by more people than tables."""
        checks = sorted(n.removeprefix(CONSTRAINT) for n in view.properties if n.startswith(CONSTRAINT))
        which = f"its CHECK constraints: {', '.join(checks)}" if checks else "of its columns"
        return fail(
            Reason.SINK_CONFLICT,
            f"rows break a rule of the target table ({which})",
            needed="a table whose rules the source's rows keep",
            remedy=f"take the rule from the target table, {RUN_AGAIN}",
            table=str(self.table),
        )

    def refused(self, why: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"delta-rs refused to commit to {self.store.uri}, where nobody else committed: {why}",
            needed="a table whose rules the commit keeps",
            remedy=f"take the rule from the target table, or remove the table's folder, {RUN_AGAIN}",
            table=str(self.table),
        )

    def contention_error(self, attempts: int) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"{attempts} attempts to commit to {self.store.uri} met other programs' commits",
            remedy="let OPTIMIZE and other writers run less often",
            table=str(self.table),
        )

    def foreign_table_error(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"{self.store.uri} holds no state of {self.sync}: another program's table, or its log was cleaned up by hand",
            needed="a table that this sync made, or none",
            remedy=f"create the sync again with another sink path; or, {OWN_TABLE}, {RUN_AGAIN}",
            table=str(self.table),
        )

    def not_writable(self, unsupported_reason: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"{unsupported_reason}, and neither we nor delta-rs write such tables",
            needed="a table without it; where the lake is on a disk, Spark writes most of them while the stream runs",
            remedy=f"take the feature from the target table, or remove the table's folder, {RUN_AGAIN}",
            table=str(self.table),
        )
