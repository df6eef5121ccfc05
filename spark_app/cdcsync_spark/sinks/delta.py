"""Tables of the lake as Delta tables, written with delta-rs: no JVM, no Spark, one process.

A commit is compare-and-set (rule R8): open fresh, read the newest own state, let the caller decide, write on that same handle under
the application id of (sync, table). delta-rs refuses the write if any commit since the handle was opened carries the same
id, whether it appends, merges or only stamps; then everything starts again at "open". A commit whose outcome is unknown (the
store did not answer) is no special case: the next opening finds its state, or does not.

Staged files are looked at once more before a commit names them, so that a wave staged on another machine's disk, or removed by
an eager clean-up, stops the run instead of making a table that cannot be read.

A side target lies in `resnapshot-<nonce>/` below its table and is a Delta table of its own; its publication is one overwrite of the main
table that names the side's files where they lie.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.table import Table, TableId
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks import delta_merge, delta_properties
from cdcsync_spark.sinks.base import (
    Append,
    Build,
    Commit,
    Merge,
    Replace,
    StagedFile,
    check_successor,
    refuse_other_identity,
    refuse_superseded,
)
from cdcsync_spark.sinks.delta_log import STATE_KEY, Log, written
from cdcsync_spark.sinks.delta_snapshot import DeltaSnapshot
from cdcsync_spark.sinks.delta_upkeep import after_commit
from cdcsync_spark.sinks.place import Place, segment
from cdcsync_spark.sinks.staging import stage

#: other programs' commits may get in between that often before the run gives up and is retried with backoff
ATTEMPTS = 20
_SIDE = "resnapshot-"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_READABLE = {"timestampNtz"}


@dataclass(frozen=True)
class DeltaSink:
    """The lake at `place`, for the sync `namespace/name`."""

    place: Place
    sync: str

    def target(self, table: TableId, *, side: int | None = None) -> DeltaTarget:
        return DeltaTarget(self.place, self.sync, table, "" if side is None else f"{_SIDE}{side}")

    def discard(self, table: TableId, side: int) -> None:
        """Only the side's log goes once its files have been published: they belong to the table then."""
        main, beside = self.target(table), self.target(table, side=side)
        with self.place.failing_clearly(str(table), "removing a side target"):
            files = self.place.files()
            published = any(path.startswith(f"{beside.side}/") for path in main.live_paths())
            folder = f"{beside.folder}/_delta_log" if published else beside.folder
            if files.get_file_info(folder).type is not pafs.FileType.NotFound:
                files.delete_dir(folder)


@dataclass(frozen=True)
class DeltaTarget:
    """One table's place; `side` is the folder of a side target below it, empty for the table itself."""

    place: Place
    sync: str
    table: TableId
    side: str = ""

    @property
    def root(self) -> str:
        """The table's folder, relative to the lake."""
        return f"{segment(self.table.database)}/{segment(self.table.name)}"

    @property
    def folder(self) -> str:
        """The folder of this target's log."""
        return f"{self.root}/{self.side}" if self.side else self.root

    @property
    def uri(self) -> str:
        return self.place.below(self.folder).uri

    def prepare(self, state: TableState) -> TableState:
        with self._failing_clearly("making the table"):
            handle = self._open()
            if handle is None:
                self._refuse_other_files()
                self._create(state)
                gate("table-created")
                handle = self._open()
            found = self._state(handle) if handle else None
        if found is None:
            raise self._not_ours()
        refuse_other_identity(found, state)
        return found

    def last_commit(self) -> TableState | None:
        with self._failing_clearly("reading the state"):
            handle = self._open()
            found = self._state(handle) if handle else None
        if handle is not None and found is None:
            raise self._not_ours()
        return found

    def stage(self, table: Table, batches: Iterable[pa.RecordBatch], name: str) -> list[StagedFile]:
        with self._failing_clearly("staging rows"):
            files = stage(self.place.below(self.root), self.side, table, batches, name)
        gate("staged")
        return files

    def commit(self, epoch: int, build: Build) -> TableState:
        attempts = Retrying(
            retry=retry_if_exception_type(_LostRace),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(0.02, max=1),
            retry_error_callback=self._give_up,
        )
        with self._failing_clearly("committing"):
            return attempts(self._try_commit, epoch, build)

    def _try_commit(self, epoch: int, build: Build) -> TableState:
        handle = self._open()
        found = self._state(handle) if handle else None
        if handle is None or found is None:
            raise self._not_ours()
        refuse_superseded(found, epoch)
        commit = build(found)
        if commit is None:
            return found
        check_successor(found, commit, epoch)
        self._refuse_other_columns(handle, found.table)
        gate("before-commit")
        try:
            self._write(handle, commit)
        except CommitFailedError as lost:
            raise _LostRace(str(lost)) from lost
        gate("committed")
        after_commit(self.place.below(self.folder), commit.state.number, side=bool(self.side))
        return commit.state

    def _write(self, handle: DeltaTable, commit: Commit) -> None:
        properties = _properties(commit.state)
        change = commit.change
        if isinstance(change, Merge) and change.upserts.num_rows + change.deletes.num_rows:
            opened = handle.version()
            delta_merge.merge(handle, commit.state.table, change, properties, _NO_HOOKS)
            if handle.version() == opened:
                # delta-rs commits no MERGE that meets no row (keys born and gone within a batch); the state must follow even so
                self._append(handle, (), properties)
        elif isinstance(change, Replace):
            self._replace(handle, commit.state.table, change, properties)
        else:
            self._append(handle, change.files if isinstance(change, Append) else (), properties)

    def _append(self, handle: DeltaTable, files: tuple[StagedFile, ...], properties: CommitProperties) -> None:
        handle.create_write_transaction(
            self._adds(files),
            "append",
            handle.schema(),
            commit_properties=properties,
            post_commithook_properties=_NO_HOOKS,
        )

    def _replace(self, handle: DeltaTable, table: Table, change: Replace, properties: CommitProperties) -> None:
        schema = Schema.from_arrow(arrow_schema(table))
        if delta_properties.adapt(handle, table):
            raise _LostRace("the target was given what its new columns need")
        handle.create_write_transaction(
            self._adds(change.files),
            "overwrite",
            schema,
            commit_properties=properties,
            post_commithook_properties=_NO_HOOKS,
        )

    def _adds(self, files: tuple[StagedFile, ...]) -> list[AddAction]:
        self._refuse_missing(files)
        prefix, now = f"{self.side}/" if self.side else "", int(time.time() * 1000)
        return [AddAction(f.path.removeprefix(prefix), f.size, {}, now, True, f.stats) for f in files]

    def staged_files(self) -> tuple[StagedFile, ...]:
        with self._failing_clearly("listing staged files"):
            handle = self._open()
            if handle is None:
                return ()
            adds = {add["path"]: add for add in self._log().added(handle.version())}
            prefix = f"{self.side}/" if self.side else ""
            return tuple(_staged(prefix, adds[path]) for path in _live(handle))

    def live_paths(self) -> list[str]:
        """The files of the newest version, relative to this target's own folder."""
        handle = self._open()
        return _live(handle) if handle else []

    def open_snapshot(self) -> DeltaSnapshot:
        with self._failing_clearly("opening the table"):
            handle = self._open()
            state = self._state(handle) if handle else None
            if handle is None or state is None:
                raise self._not_ours()
            self._refuse_unreadable(handle)
            return DeltaSnapshot(self.place.below(self.folder), handle.version(), state, tuple(_live(handle)))

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        return self.open_snapshot().scan(columns, key_filter)

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.uri, storage_options=self.place.storage_options())
        except TableNotFoundError:
            return None

    def _log(self) -> Log:
        return Log(self.place.files(), self.folder)

    def _state(self, handle: DeltaTable) -> TableState | None:
        return self._log().state_at(handle.version())

    def _create(self, state: TableState) -> None:
        if self.place.local:
            self.place.files().create_dir(self.folder)
        try:
            DeltaTable.create(
                self.uri,
                Schema.from_arrow(arrow_schema(state.table)),
                mode="error",
                configuration=delta_properties.new_table(state.table),
                storage_options=self.place.storage_options(),
                # Tried again, a creation that lost the race would become version 1 and forget what was committed since.
                commit_properties=_properties(state, max_commit_retries=0),
            )
        except DeltaError:
            if self._open() is None:
                raise

    def _failing_clearly(self, doing: str) -> AbstractContextManager[None]:
        return self.place.failing_clearly(str(self.table), doing)

    def _refuse_other_files(self) -> None:
        """A folder that holds something else is not taken over: a later VACUUM would remove it."""
        selector = pafs.FileSelector(self.folder, allow_not_found=True)
        try:
            names = [info.base_name for info in self.place.files().get_file_info(selector)]
        except FileNotFoundError:  # another creator makes the folder at this moment
            names = []
        strangers = sorted(n for n in names if not n.startswith((".", "_", _SIDE)))
        if strangers and not self.side and "_delta_log" not in names:
            raise fail(
                Reason.SINK_CONFLICT,
                f"{self.uri} holds {len(strangers)} entries that are no Delta table, such as {strangers[0]!r}",
                needed="an empty folder",
                remedy="give another sink path, or move them away",
                table=str(self.table),
            )

    def _refuse_missing(self, files: tuple[StagedFile, ...]) -> None:
        if not files:
            return
        infos = self.place.files().get_file_info([f"{self.root}/{f.path}" for f in files])
        missing = [f.path for f, info in zip(files, infos, strict=True) if info.size != f.size]
        if missing:
            raise fail(
                Reason.SINK_CONFLICT,
                f"{len(missing)} of {len(files)} staged files are not whole in {self.uri}, such as {missing[0]}",
                needed="a sink path that the driver and all executors share, and nobody who removes files there",
                remedy="correct spec.sink.delta.path; the rows are read again",
                table=str(self.table),
            )

    def _refuse_other_columns(self, handle: DeltaTable, table: Table) -> None:
        """Somebody dropped or changed a column of the target: appends would hide it, so look before each commit."""
        found = {f.name: f.type for f in handle.schema().fields}
        needed = {f.name: f.type for f in Schema.from_arrow(arrow_schema(table)).fields}
        changed = sorted(name for name, kind in needed.items() if found.get(name) != kind)
        if changed:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target's column {changed[0]!r} is missing or has another type",
                needed="the columns that the table was made with",
                remedy="undo the change of the target table, or read the table again (spec.resnapshot)",
                table=str(self.table),
            )

    def _refuse_unreadable(self, handle: DeltaTable) -> None:
        features = set(handle.protocol().reader_features or ()) - _READABLE
        if features:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target table was given the features {', '.join(sorted(features))}",
                needed="a table without them to be read here",
                remedy="take the features away, or compare with Spark",
                table=str(self.table),
            )

    def _not_ours(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"{self.uri} holds no state of {self.sync}: another program's table, or its log was cleaned up by hand",
            needed="a table that this sync made, or none",
            remedy="give another sink path, or remove the table there and run again",
            table=str(self.table),
        )

    def _give_up(self, attempts: RetryCallState) -> TableState:
        raise fail(
            Reason.SINK_UNREACHABLE,
            f"{attempts.attempt_number} attempts to commit to {self.uri} met other programs' commits",
            remedy="let OPTIMIZE and other writers run less often",
            table=str(self.table),
        )


class _LostRace(Exception):
    """Another commit came first; start again at "open"."""


def _properties(state: TableState, max_commit_retries: int | None = None) -> CommitProperties:
    return CommitProperties(
        max_commit_retries=max_commit_retries,
        custom_metadata={STATE_KEY: written(state)},
        app_transactions=[Transaction(state.identity.app_id, state.number)],
    )


def _live(handle: DeltaTable) -> list[str]:
    return [unquote(path) for path in pa.table(handle.get_add_actions())["path"].to_pylist()]


def _staged(prefix: str, add: dict[str, Any]) -> StagedFile:
    stats = add.get("stats") or ""
    return StagedFile(
        prefix + unquote(add["path"]), add["size"], json.loads(stats)["numRecords"] if stats else 0, stats
    )
