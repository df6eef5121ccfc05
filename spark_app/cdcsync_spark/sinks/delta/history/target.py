"""History tables: append-only targets that hold every change, from a snapshot without a false row.

A table's snapshot goes through a staged copy, a keyed table in `_resnapshot-<generation>/` below
the history: waves are appended to it and the changes since LOW are folded in, as in a replica. When
its state is consistent, one commit of the history names the copy's files. From then on the history
itself takes events.

Why it is right: whose turn it is, the copy's or the history's, follows from the history's own state
(`sinks.staged_copy`). The rows of a history stay while a resnapshot's copy is filled. A publication
is a commit of the history, which takes the copy's state and files from one version.

With early delivery (`TableState.early`) there is no copy: the history takes the waves and, from
LOW on, the events, each with the state in one commit. Only a resnapshot reads its waves to a copy
first; its `Replace` is the publication. The state says which way a table goes, not the resource of
the moment, so a change of the resource never leaves a half-made snapshot of the other way.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.changes import (
    Build,
    Commit,
    Replace,
    Staged,
)
from cdcsync_spark.sinks.contract.checks import refuse_other_copy, refuse_other_identity, refuse_superseded
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.sinks.contract.writer import Outcome, Writer, WriterStatus, commit_each
from cdcsync_spark.sinks.delta.history.snapshot import HistorySnapshot
from cdcsync_spark.sinks.delta.history.writer import (
    HistoryWriter,
    Publication,
    columns_of,
    delta_history_schema,
    history_metadata,
)
from cdcsync_spark.sinks.delta.replica.maintenance import delete_files, staged_copies
from cdcsync_spark.sinks.delta.replica.sink import DeltaTarget
from cdcsync_spark.sinks.delta.table.features import VECTORS_ENABLED, protocol_for
from cdcsync_spark.sinks.delta.table.log import head
from cdcsync_spark.sinks.delta.table.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, Limits, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.staged_copy import CHANGES, Copies, CopyThenPublish, Recorded

#: the metadata columns' names where none are chosen
NAMES = EventColumns()


@dataclass(frozen=True)
class HistorySink:
    """The lake at `store`, for the sync `namespace/name`; `columns` are the metadata columns."""

    store: Store
    sync: str
    columns: EventColumns = NAMES
    policy: MaintenancePolicy = POLICY
    limits: Limits = LIMITS

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
            waiting = view is not None and view.state is not None and not view.state.published
            if not (waiting and view is not None and view.state.generation == generation):  # type: ignore[union-attr]
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
class HistoryTarget:
    """One table's history."""

    path: TablePath
    policy: MaintenancePolicy = POLICY
    limits: Limits = LIMITS

    @property
    def uri(self) -> str:
        return self.path.store.uri

    def copy(self, generation: int) -> DeltaTarget:
        return DeltaTarget(replace(self.path, staged=f"{STAGED_PREFIX}{generation}"), self.policy, self.limits)

    def prepare(self, state: TableState) -> TableState:
        self.path.refuse_taken_names(state.capture)
        with self.path.translating_errors("making the table"):
            view = self.path.view()
            if view is None:
                self.path.refuse_other_files()
                self._create(state)
                gate("table-created")
                view = self.path.view()
        if view is None or view.state is None:
            raise self.path.foreign_table_error()
        refuse_other_identity(view.state, state)
        if view.state.published:
            return view.state
        copy = self.copy(view.state.generation)
        if view.state.position is not None and copy.last_commit() is None:
            raise lost_copy(view.state)
        return copy.prepare(replace(state, early=False))

    def _create(self, state: TableState) -> None:
        """The second of two runs finds the table made."""
        now, columns = time.time_ns() // 1_000_000, columns_of(self.path)
        schema = delta_history_schema(state.schema, columns)
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "createdTime": now,
            "configuration": {**history_metadata(state.schema, columns), VECTORS_ENABLED: "true"},
        }
        actions = [*head(state, "CREATE TABLE", now), protocol_for(schema, vectors=True), {"metaData": metadata}]
        self.path.store.make_folder("_delta_log")
        self.path.put_entry(0, actions)

    def last_commit(self) -> TableState | None:
        """Where the copy of a resnapshot is gone, what that was begun with: another resnapshot goes
        on from it, and nothing else (`prepare`, `CopyThenPublish.last_commit`)."""
        return self.writer().newest()[0]

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        state = self._state()
        target = DeltaTarget(self.path, self.policy, self.limits) if state.early else self.copy(state.generation)
        return target.stage(table, batches, name)

    def staged(self) -> Staged:
        """There is nothing to be published of a history."""
        return ()

    def _state(self) -> TableState:
        with self.path.translating_errors("reading the state"):
            view = self.path.view()
        if view is None or view.state is None:
            raise self.path.foreign_table_error()
        return view.state

    def commit(self, epoch: int, build: Build) -> TableState:
        writer = self.writer()
        state = writer.commit(epoch, build)
        writer.maintain()
        return state

    def writer(self, scratch: Path | None = None) -> CopyThenPublish:
        return CopyThenPublish(HistoryMain(self, scratch or Path(tempfile.gettempdir())))

    def open_snapshot(self) -> TargetSnapshot:
        """The table that the history ends with; before it is published, the copy."""
        with self.path.translating_errors("opening the table"):
            view = self.path.view()
            if view is None or view.state is None:
                raise self.path.foreign_table_error()
            if view.state.published:
                return HistorySnapshot.of(self.path, view)
            copy = self.copy(view.state.generation)
            if copy.path.view() is None:
                raise lost_copy(view.state)
            return copy.open_snapshot()


class HistoryMain:
    """The history beside its staged copies; see `MainWriter`."""

    #: a publication names the files of the copy where they lie
    sends_rows = False

    def __init__(self, target: HistoryTarget, scratch: Path) -> None:
        self.target = target
        self.copies = Copies(lambda generation: target.copy(generation).writer(scratch))
        self._writer = HistoryWriter(target.path, scratch, target.policy, target.limits)

    def newest(self, *, wait: bool) -> Recorded | None:
        return _recorded(self._writer.last_commit(wait=wait))

    def recorded(self) -> Recorded:
        recorded = self.newest(wait=True)
        if recorded is None:
            raise self.target.path.foreign_table_error()
        return recorded

    def last_known(self) -> Recorded | None:
        return _recorded(self._writer.last_known)

    def commit(self, epoch: int, build: Build) -> TableState:
        return self._writer.commit(epoch, lambda found: self._as_publication(build(found)))

    def _as_publication(self, commit: Commit | None) -> Commit | None:
        """A copy that is consistent as soon as it is claimed, or of early delivery, is published by
        the same commit: a history whose state is published has its content."""
        if commit is None or not isinstance(commit.change, Replace) or not commit.state.published:
            return commit
        path = self.target.copy(commit.state.generation).path
        view = path.view()
        if view is None:
            raise lost_copy(commit.state)
        if view.state is None:
            raise path.foreign_table_error()
        refuse_other_copy(view.state, commit.state)
        return Commit(commit.state, Publication((), tuple(view.files.values()), path.staged))

    def publish(self, epoch: int, copy: TableState) -> TableState:
        """The copy's state and files are of one version of it."""
        path = self.target.copy(copy.generation).path
        with path.translating_errors("publishing the snapshot"):
            view = path.view()
            if view is None or view.state is None:
                raise lost_copy(copy)
        refuse_superseded(view.state, epoch)
        return self._writer.publish(epoch, view.state, tuple(view.files.values()), path.staged)

    def lost_copy(self, state: TableState) -> CdcError:
        return lost_copy(state)

    def remove_copies(self, generation: int) -> bool:
        main = self.target.path
        with main.translating_errors("removing staged copies"):
            removed = [remove_copy(main, copy) for copy in staged_copies(main, generation)]
        return any(removed)

    def has_news(self, copy: Writer | None) -> bool:
        return self._writer.has_news() or (copy is not None and copy.has_news())

    def maintain(self) -> str:
        return self._writer.maintain()

    def close(self) -> None:
        self._writer.close()

    @property
    def status(self) -> WriterStatus:
        return self._writer.status


def _recorded(state: TableState | None) -> Recorded | None:
    return None if state is None else Recorded(state, state.published)


def lost_copy(main: TableState) -> CdcError:
    """Of a history that waits for it."""
    return fail(
        Reason.SINK_CONFLICT,
        f"the staged copy {STAGED_PREFIX}{main.generation} of the snapshot is gone",
        needed="the copy until it is published",
        remedy=resnapshot(main.identity.table),
        table=main.identity.table,
    )
