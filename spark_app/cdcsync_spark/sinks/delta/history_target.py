"""History tables: append-only targets that hold every change, from a snapshot without a false row.

A table's snapshot goes through a staged copy, a keyed table in `_resnapshot-<generation>/` below
the history: waves are appended to it and the changes since LOW are folded in, as in a replica. When
its state is consistent, one commit of the history names the copy's files. From then on the history
itself takes events.

Why it is right: whose turn it is follows from the history's own state, the first that is read. A
consistent one was published, and the history goes on by itself; else the copy of the state's
generation is the truth (R4). A resnapshot's `Replace` only writes the new state, which is not
consistent: it claims the copy, and ends the streams before (R8), while the rows of the history
stay. A copy that was written by a run that another one has overtaken is of no effect: the
publication is a commit of the history, which refuses a lower epoch, and takes the copy's state and
files from one version.

With early delivery (`TableState.early`) there is no copy: the history takes the waves and, from
LOW on, the events, each with the state in one commit. Only a resnapshot reads its waves to a copy
first; its `Replace` is the publication. The state says which way a table goes, not the resource of
the moment, so a change of the resource never leaves a half-made snapshot of the other way.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from cdcsync_core.capture import Capture
from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.event_columns import EventColumns
from cdcsync_core.gates import gate
from cdcsync_core.remedies import resnapshot
from cdcsync_core.source_table import TableId
from cdcsync_core.state import TableState
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import (
    AdvancePosition,
    Append,
    Build,
    Commit,
    Emit,
    Evolve,
    Replace,
    Staged,
    Upsert,
)
from cdcsync_spark.sinks.contract.checks import refuse_other_identity, refuse_superseded
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.sinks.contract.writer import WriterStatus
from cdcsync_spark.sinks.delta.commit import DeltaWriter
from cdcsync_spark.sinks.delta.features import VECTORS_ENABLED, protocol_for
from cdcsync_spark.sinks.delta.history_snapshot import HistorySnapshot
from cdcsync_spark.sinks.delta.history_writer import (
    HistoryWriter,
    Publication,
    columns_of,
    delta_history_schema,
    history_metadata,
)
from cdcsync_spark.sinks.delta.log import entry_name, head
from cdcsync_spark.sinks.delta.maintenance import HARMLESS, delete_files
from cdcsync_spark.sinks.delta.policy import LIMITS, POLICY, Limits, MaintenancePolicy
from cdcsync_spark.sinks.delta.sink import DeltaTarget
from cdcsync_spark.sinks.delta.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.delta.view import entry_text
from cdcsync_spark.sinks.lake.store import Store

_log = get_logger()
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
        return Capabilities(frozenset({Append, Upsert, Emit, Replace, Evolve, AdvancePosition}))

    def target(self, table: TableId, *, generation: int = 0) -> HistoryTarget | DeltaTarget:
        main = HistoryTarget(TablePath(self.store, self.sync, table, events=self.columns), self.policy, self.limits)
        return main.copy(generation) if generation else main

    @property
    def commit_all(self) -> None:
        """Each table has a transaction of its own."""

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
        self.path.store.put_new(entry_name(0), entry_text(actions).encode())

    def last_commit(self) -> TableState | None:
        """Where the copy of a resnapshot is gone, what that was begun with: another resnapshot goes
        on from it, and nothing else (`prepare`, `PublishingWriter.last_commit`)."""
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

    def writer(self, scratch: Path | None = None) -> PublishingWriter:
        return PublishingWriter(self, scratch or Path(tempfile.gettempdir()))

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


@dataclass
class PublishingWriter:
    """Writes the copy until it is consistent, publishes it, then writes the history. Thread safe,
    as its writers are."""

    target: HistoryTarget
    scratch: Path
    _copies: dict[int, DeltaWriter] = field(default_factory=dict)
    _cleaned: bool = False

    def __post_init__(self) -> None:
        self._main = HistoryWriter(self.target.path, self.scratch, self.target.policy, self.target.limits)

    def _copy(self, generation: int) -> DeltaWriter:
        if generation not in self._copies:
            self._copies[generation] = self.target.copy(generation).writer(self.scratch)
        return self._copies[generation]

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        state, lost = self.newest(wait=wait)
        if state is not None and lost:
            raise lost_copy(state)
        return state

    def newest(self, *, wait: bool = True) -> tuple[TableState | None, bool]:
        """The table's state; and whether it is that of a resnapshot whose copy is gone."""
        main = self._main.last_commit(wait=wait)
        if main is None or main.published:
            return main, False
        copy = self._copy(main.generation).last_commit(wait=wait)
        if copy is None:
            return main, main.position is not None
        return replace(copy, epoch=max(main.epoch, copy.epoch)), False

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`."""
        main = self._main.last_commit()
        if main is None:
            raise self.target.path.foreign_table_error()
        refuse_superseded(main, epoch)
        if not main.published:
            written = self._written_to_copy(main, epoch, build)
            if written is not None:
                return written
        return self._main.commit(epoch, lambda found: self._as_publication(build(found)))

    def _as_publication(self, commit: Commit | None) -> Commit | None:
        """A copy that is consistent as soon as it is claimed, or of early delivery, is published by
        the same commit: a history whose state is published has its content."""
        if commit is None or not isinstance(commit.change, Replace) or not commit.state.published:
            return commit
        path = self.target.copy(commit.state.generation).path
        view = path.view()
        if view is None:
            raise lost_copy(commit.state)
        return Commit(commit.state, Publication((), tuple(view.files.values()), path.staged))

    def _written_to_copy(self, main: TableState, epoch: int, build: Build) -> TableState | None:
        """The copy's state, or that of its publication; None where the commit is the history's: the
        copy was complete, perhaps by another run's commit meanwhile."""
        copy, claims, complete = self._copy(main.generation), list[Commit](), False
        if copy.last_commit() is None:
            return self._claim_instead(main, epoch, build)

        def keyed(state: TableState) -> Commit | None:
            nonlocal complete
            complete = state.consistent
            commit = None if complete else build(state)
            if commit is not None and isinstance(commit.change, Replace):
                claims.append(commit)
                return None
            return commit

        state = copy.commit(epoch, keyed)
        if claims:
            return self._claim(epoch, claims[-1])
        if not state.consistent:
            return state
        published = self._publish(main, epoch)
        return None if complete else published

    def _claim_instead(self, main: TableState, epoch: int, build: Build) -> TableState:
        """Where the copy is gone nothing but a resnapshot helps. A stream's batch does not go on
        from the history's state."""
        commit = None
        with suppress(TransientError):
            commit = build(main)
        if commit is None or not isinstance(commit.change, Replace):
            raise lost_copy(main)
        return self._claim(epoch, commit)

    def _claim(self, epoch: int, commit: Commit) -> TableState:
        """Of a newer copy, while an older one is not published."""

        def build(found: TableState) -> Commit | None:
            if found.generation >= commit.state.generation:
                return None
            claimed = replace(commit, state=replace(commit.state, commit_number=found.commit_number + 1))
            return self._as_publication(claimed)

        return self._main.commit(epoch, build)

    def _publish(self, main: TableState, epoch: int) -> TableState:
        """The copy's state and files are of one version of it."""
        path = self.target.copy(main.generation).path
        with path.translating_errors("publishing the snapshot"):
            view = path.view()
            if view is None or view.state is None:
                raise lost_copy(main)
        refuse_superseded(view.state, epoch)
        return self._main.publish(epoch, view.state, tuple(view.files.values()), path.staged)

    def has_news(self) -> bool:
        """See `Writer.has_news`. A copy that is published is removed, which is no news."""
        main = self._main.last_known
        copy = self._copies.get(main.generation) if main is not None and not main.published else None
        return self._main.has_news() or (copy is not None and copy.has_news())

    def maintain(self) -> str:
        main = self._main.last_known
        if main is None or not main.published:
            generation = main.generation if main else -1
            return self._copies[generation].maintain() if generation in self._copies else ""
        if not self._cleaned:
            self._cleaned = True
            if self._remove_copies(main.generation):
                return "remove staged copies"
        return self._main.maintain()

    def _remove_copies(self, generation: int) -> bool:
        """Those up to the published one, once per run; what fails is tried by the next run."""
        main, found = self.target.path, False
        try:
            with main.translating_errors("removing staged copies"):
                for name in main.lake.listed(main.folder):
                    number = name.removeprefix(STAGED_PREFIX)
                    if name != number and number.isdecimal() and int(number) <= generation:
                        found = remove_copy(main, self.target.copy(int(number)).path) or found
        except HARMLESS as error:
            _log.warning("staged copies are removed later", table=str(main.table), error=str(error))
        return found

    def warm(self) -> None:
        for copy in self._copies.values():
            copy.warm()

    def close(self) -> None:
        for writer in (self._main, *self._copies.values()):
            writer.close()

    @property
    def status(self) -> WriterStatus:
        return self._main.status


def lost_copy(main: TableState) -> CdcError:
    """Of a history that waits for it."""
    return fail(
        Reason.SINK_CONFLICT,
        f"the staged copy {STAGED_PREFIX}{main.generation} of the snapshot is gone",
        needed="the copy until it is published",
        remedy=resnapshot(main.identity.table),
        table=main.identity.table,
    )
