"""Applies batches of the binlog to the targets: exactly once, table by table, whole transactions.

Where the sink can, the tables of a batch are committed together, so that its transactions are there
whole over all tables or not at all.

Why it is right. A commit opens the table and finds its state (R8). What its position covers is
skipped, by membership or by offset (R5); the rest is folded to the last image per key (R2) and
committed together with the new position (R4). So a batch that was applied half before a crash, or
that a run before applied in part, is applied to the end and never twice. A table that does not go
on from what this run knows of it was resnapshot or taken over by another run: it is left alone,
because the gap is not here to be filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from cdcsync_core.errors import RUN_AGAIN, CdcError, PermanentError, Reason, TransientError, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.positions.watermark import join
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import LastChange, TableState
from cdcsync_mysql.sessions.failures import of_table
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch
from cdcsync_spark.binlog.schema.steps import NOT_FOLLOWED, Policy, SchemaStep
from cdcsync_spark.delivery.changelog import Changelog, open_changelog
from cdcsync_spark.delivery.events import delivered, unrepairable
from cdcsync_spark.delivery.projection import folded
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Build, Commit, Upsert, rows_of
from cdcsync_spark.sinks.contract.writer import Busy, CommitAll, Writer, commit_each
from cdcsync_spark.stream.crash_repair import Piece, Repair
from cdcsync_spark.stream.schema_commit import step_commit
from cdcsync_spark.wire.binlog.facts import FileLeft

_log = get_logger()


@dataclass
class StreamTable:
    """A table of the run: the writer of its target, its last known state, whether this run has
    written it, why it stopped, what is followed of changes of its definition.

    `committed` is the time of its last commit on the applier's clock. It is not known at first: the
    first batch checkpoints what it leaves idle.
    """

    name: str
    target: Writer
    state: TableState
    committed: float = float("-inf")
    wrote: bool = False
    error: CdcError | None = None
    handed_over: bool = False
    policy: Policy = NOT_FOLLOWED
    #: the last change that the catalog has confirmed, for the next commit; why another could not be
    confirmed: LastChange | None = None
    unreadable: str = ""
    #: whether rows came without the names of their columns since the catalog was asked
    unchecked: bool = False

    @property
    def change(self) -> LastChange | None:
        """The last change, as far as it is known to be confirmed."""
        return self.state.with_confirmation(self.confirmed).change

    @property
    def flowing(self) -> bool:
        return self.error is None and not self.handed_over


@dataclass
class Applier:
    """Applies to `tables` (by name) in the name of run epoch `epoch`; `clock` counts seconds and
    never goes back.

    `repair` compares with the source what a crash of it may have taken back; `events` is whether
    the sink takes events, `commit_all` as in `Sink`, `together` as in `Capabilities`. `commits` and
    `rows` are its work so far, `committed` the time of the last commit.
    """

    tables: dict[str, StreamTable]
    epoch: int
    reader: Position
    clock: Callable[[], float]
    repair: Repair | None = None
    events: bool = False
    commit_all: CommitAll = commit_each
    together: bool = False
    commits: int = 0
    rows: int = 0
    committed: float | None = None
    _merging: dict[str, int] = field(default_factory=dict)
    _unmaintained: dict[str, StreamTable] = field(default_factory=dict)
    #: the tables that are being repaired
    _doubtful: frozenset[str] = frozenset()
    #: those that another program took back, with the error that ends the run
    taken_back: dict[str, CdcError] = field(default_factory=dict)

    def apply(self, batch: BinlogBatch) -> None:
        """Raises TransientError; a permanent error stops its table only."""
        self._check_no_gap(batch)
        if batch.left is not None:
            self._repair(batch, batch.left)
        due = [(self.tables[part.table], part) for part in batch.tables if self.tables[part.table].flowing]
        for together in [due] if self.together else [[one] for one in due]:
            with ExitStack() as files:
                self._apply_parts(together, batch, files)
        self.reader = batch.end

    def _apply_parts(self, due: Sequence[tuple[StreamTable, TableBatch]], batch: BinlogBatch, files: ExitStack) -> None:
        """In one commit where the sink has one for several tables, else one table at a time, so
        that no more than its rows are open."""
        builds = [(t.target, _on_confirmed(t, self._build(t, part, batch, files))) for t, part in due]
        for (table, part), outcome in zip(due, self.commit_all(self.epoch, builds), strict=True):
            with self._stopping_alone(table):
                if isinstance(outcome, PermanentError):
                    raise outcome
                self._note(table, outcome)
                table.unchecked = table.unchecked or part.undescribed
                if part.step is not None:
                    gate("step-committed")
                if part.stop is not None and not table.handed_over:
                    table.error = table.error or part.stop
            gate("table-applied")

    @contextmanager
    def _stopping_alone(self, table: StreamTable) -> Iterator[None]:
        """A permanent error stops the table; one that was resnapshot meanwhile has a newer owner
        and is left to it. Where this run has written, a refusal is one of keys that change: it ends
        the run, and stops the table if the next one meets it."""
        try:
            yield
        except PermanentError as e:
            if e.reason is Reason.PRIVILEGE_MISSING and table.wrote:
                raise fail(Reason.SINK_UNREACHABLE, e.found, needed=e.needed, remedy=e.remedy, table=e.table) from None
            if e.reason is Reason.SINK_CONFLICT and _was_resnapshot(table):
                table.handed_over = True
            else:
                table.error = e

    def _check_no_gap(self, batch: BinlogBatch) -> None:
        if not self.reader.includes(batch.start):
            raise fail(
                Reason.INTERNAL_ERROR,
                f"the binlog from {self.reader} to {batch.start} was left out",
                needed="batches without gaps",
            )

    def position(self, table: StreamTable) -> Position:
        """What the table has: its committed position, and all that the reader passed without
        changes for it.

        May be asked for while a batch is applied: a table stops before the reader passes that
        place, so the reader is read first.
        """
        position, reader = table.state.position, self.reader
        assert position is not None
        return position.join(reader) if table.flowing and table.name not in self.taken_back else position

    def consistent(self, table: StreamTable) -> bool:
        """Without the joined position, which is large where the source's GTID set is."""
        position, high = table.state.position, table.state.high
        if position is None or high is None or table.name in self._doubtful or table.name in self.taken_back:
            return False
        if table.state.replaying is not None and not self.position(table).includes(table.state.replaying):
            return False
        if position.has_reached(high) or self.events:
            return position.has_reached(high)
        return self.reader.has_reached(high) and table.flowing

    def _publishable(self, table: StreamTable) -> bool:
        """Whether a commit of the position alone makes a table of a sink that takes events
        consistent, and so published."""
        high = table.state.high
        return self.events and not table.state.consistent and high is not None and self.reader.has_reached(high)

    def checkpoint_idle(self, older_than: float) -> None:
        """Commits the position of flowing tables whose last commit is older than this (on our
        clock), or than their target lets it be."""
        now = self.clock()
        for table in self.tables.values():
            due = table.committed < max(older_than, now - table.target.status.max_idle_seconds)
            if table.flowing and (due or self._publishable(table)):
                gate("before-stamp")
                with self._stopping_alone(table):
                    self._commit(table, partial(self._idle_commit, table))
                # also where there was nothing to commit: it is not opened again for each batch
                table.committed = self.clock()

    def note_others(self, table: StreamTable) -> None:
        """Takes note of what other programs did to a target between our commits; one that they
        removed stops. Raises TransientError where they took it back: the next run replays the
        binlog."""
        with self._stopping_alone(table):
            try:
                state = table.target.last_commit(wait=False)
            except (TransientError, Busy):
                return  # it is asked again
            gate("target-read")
            if state is None:
                raise target_gone(table.name)
            if self._continues(table, state):
                table.state = state

    def maintain(self, until: float) -> None:
        """One step of maintenance for the tables with commits, in turns, and more steps while the
        clock is before `until`."""
        while self._unmaintained:
            name = next(iter(self._unmaintained))
            table = self._unmaintained.pop(name)
            if table.flowing and table.target.maintain():
                self._unmaintained[name] = table
                if self.clock() >= until:
                    return

    # -- after a crash of the source

    def _repair(self, batch: BinlogBatch, left: FileLeft) -> None:
        """Before anything behind the file's end is applied. A table that has passed the end was
        repaired, or read later."""
        at = batch.end.at
        assert at is not None, "the reader stands behind the file that it left"
        place = replace(at, file=left.next, offset=4)
        tables = {t.state.capture.id: t for t in self.tables.values() if t.flowing and not _has_passed(t, place)}
        self._doubtful = frozenset(t.name for t in tables.values())
        if not tables:
            return
        assert self.repair is not None, "an applier of a stream has one"
        found = self.repair.keys(left, {i: t.state.capture for i, t in tables.items()})
        gate("crash-tail-read")
        passed = self.repair.passed(batch.start, place) if found else batch.start
        for table_id, keys in found.items():
            self._repair_alone(self.repair, tables[table_id], keys, passed)
        self._doubtful = frozenset()

    def _repair_alone(self, repair: Repair, table: StreamTable, keys: pa.Table | CdcError, passed: Position) -> None:
        """A table that another session locks stays before the file's end: a later run repairs
        it."""
        try:
            with self._stopping_alone(table):
                self._repair_table(repair, table, keys, passed)
        except TransientError as e:
            if e.reason is not Reason.TABLE_BUSY:
                raise
            table.error = of_table(e, table.state.capture.id)

    def _repair_table(self, repair: Repair, table: StreamTable, keys: pa.Table | CdcError, passed: Position) -> None:
        """The last piece moves the position behind the file's end; until then the next run begins
        the repair again."""
        if isinstance(keys, CdcError):
            raise keys
        if self.events and table.state.published:
            raise unrepairable(table.name)
        _log.warning("the source crashed: keys are reread", table=table.name, keys=keys.num_rows)
        for piece in repair.pieces(table.state.capture, keys, passed):
            self._commit(table, partial(self._repaired, table, piece, passed))
            gate("crash-repaired")

    def _repaired(self, table: StreamTable, piece: Piece, passed: Position, state: TableState) -> Commit | None:
        if not self._continues(table, state):
            return None
        assert state.position is not None
        found = folded(Changelog(piece.changes), state)
        high = join(state.high, piece.high) if state.high else piece.high
        after = state.after_batch(passed if piece.last else state.position, piece.nulled)
        self._merging[table.name] = found.num_rows
        return Commit(replace(after, high=high, epoch=self.epoch), Upsert(found.upserts, found.deletes))

    def _idle_commit(self, table: StreamTable, state: TableState) -> Commit | None:
        if not self._continues(table, state) or state.position is None:
            return None
        if state.position.join(self.reader) == state.position and table.change == table.state.change:
            return None
        return Commit(replace(state.after_batch(self.reader), epoch=self.epoch), AdvancePosition())

    def _build(self, table: StreamTable, part: TableBatch, batch: BinlogBatch, files: ExitStack) -> Build:
        """The decision on a table's part of a batch; its rows are good while `files` is open."""
        self._merging.pop(table.name, None)
        if part.step is not None:
            return self._step_build(table, part.step, part.upto)
        if part.file:
            changes = files.enter_context(open_changelog(part, batch))
            return lambda state: self._merge(table, state, part, changes)
        if part.stop is not None:
            return lambda state: self._stop_commit(table, state, part)
        return lambda _: None

    def _step_build(self, table: StreamTable, step: SchemaStep, upto: Position) -> Build:
        """A change of the definition: one commit that includes its statement."""
        consistent = self.consistent(table)

        def build(state: TableState) -> Commit | None:
            if not self._continues(table, state):
                return None
            made = step_commit(state, step, upto, table.policy, consistent=consistent)
            return made and Commit(replace(made.state, epoch=self.epoch), made.change)

        return build

    def _commit(self, table: StreamTable, build: Build) -> None:
        self._merging.pop(table.name, None)
        self._note(table, table.target.commit(self.epoch, _on_confirmed(table, build)))

    def _note(self, table: StreamTable, state: TableState) -> None:
        """The state that the table has after a commit, or where there was nothing to commit."""
        before, table.state = table.state.commit_number, state
        if state.commit_number != before:
            table.wrote = True
            table.committed = self.committed = self.clock()
            self._unmaintained[table.name] = table
            self.commits += 1
            self.rows += self._merging.get(table.name, 0)

    def _merge(self, table: StreamTable, state: TableState, part: TableBatch, changes: Changelog) -> Commit | None:
        if not self._continues(table, state):
            return None
        assert state.position is not None
        if state.position.includes(part.upto):
            return None
        after = replace(state.after_batch(part.upto, part.nulled, part.changing), epoch=self.epoch)
        after = after.with_proof() if part.proved else after
        after = replace(after, undescribed=after.undescribed or part.undescribed)
        commit = delivered(changes.without(state.position), state, after, events=self.events)
        self._merging[table.name] = rows_of(commit.change)
        return commit

    def _stop_commit(self, table: StreamTable, state: TableState, part: TableBatch) -> Commit | None:
        """A table that stops without rows keeps the place where it stopped."""
        if not self._continues(table, state) or state.position is None:
            return None
        if state.position.join(part.upto) == state.position:
            return None
        return Commit(replace(state.after_batch(part.upto), epoch=self.epoch), AdvancePosition())

    def _continues(self, table: StreamTable, state: TableState) -> bool:
        """Whether the table is still this run's; raises TransientError where the target lost what
        this run knows of.

        The reader passed nothing of this table between the position known and the batch, so a
        position that includes the known one has no gap before the batch, even where it was
        committed long ago: an idle table's position is committed only now and then.
        """
        known, position = table.state.position, state.position
        if table.name in self.taken_back:
            raise self.taken_back[table.name]
        if state.generation != table.state.generation:
            table.handed_over = True
        elif position is None or known is None or not position.includes(known):
            self.taken_back[table.name] = went_back(table.name, known, position)
            table.state = table.state if position is None else state
            raise self.taken_back[table.name]
        return not table.handed_over


def went_back(table: str, known: Position | None, position: Position | None) -> CdcError:
    """Of a target that lacks what the run has applied."""
    return fail(
        Reason.SINK_WRITTEN,
        f"the target went back from {known} to {position}",
        needed="a target that keeps what was committed",
        remedy="none: the next run goes on from the target's position",
        table=table,
    )


def target_gone(table: str) -> CdcError:
    """Of a target that the run opened, and that is not there any more."""
    return fail(
        Reason.SINK_CONFLICT,
        "the target is gone",
        needed="a target that keeps what was committed",
        remedy=f"put it back, {RUN_AGAIN}; or {resnapshot(table)}",
        table=table,
    )


def _on_confirmed(table: StreamTable, build: Build) -> Build:
    """`build` of the state with what is confirmed of it."""
    return lambda state: build(state.with_confirmation(table.confirmed))


def _has_passed(table: StreamTable, place: LogOffset) -> bool:
    return table.state.position is not None and table.state.position.has_reached(place)


def _was_resnapshot(table: StreamTable) -> bool:
    """Whether the target has a newer reading than this run knows of; a target that cannot be asked
    is no reason to end the run."""
    try:
        found = table.target.last_commit()
    except PermanentError:
        return False
    return found is not None and found.generation > table.state.generation
