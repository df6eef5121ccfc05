"""Applies batches of the binlog to the targets: exactly once, table by table, whole transactions.

Where the sink can, the tables of a batch are committed together, so that its transactions are there
whole over all tables or not at all.

Why it is right. A commit opens the table and finds its state (R8; `table_commits`). What its
position covers is skipped, by membership or by offset (R5); the rest is folded to the last image
per key (R2) and committed together with the new position (R4). So a batch that was applied half
before a crash, or that a run before applied in part, is applied to the end and never twice. Beside
it stand the repair after a crash of the source (`repaired_tables`), the positions of idle tables
(`idle_checkpoints`) and maintenance (`maintenance_turns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.position import Position
from cdcsync_core.state import TableState
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.delivery.changelog import Changelog, open_changelog
from cdcsync_spark.delivery.events import delivered
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Build, Commit, rows_of
from cdcsync_spark.sinks.contract.writer import Busy, CommitAll, commit_each
from cdcsync_spark.stream.apply.crash_repair import Repair
from cdcsync_spark.stream.apply.idle_checkpoints import IdleCheckpoints
from cdcsync_spark.stream.apply.maintenance_turns import MaintenanceTurns
from cdcsync_spark.stream.apply.repaired_tables import CrashRepair
from cdcsync_spark.stream.apply.schema_commit import step_commit
from cdcsync_spark.stream.apply.stream_table import StreamTable, target_gone
from cdcsync_spark.stream.apply.table_commits import TableCommits, on_confirmed


class Applier:
    """Applies to `tables` (by name) in the name of run epoch `epoch`; `clock` counts seconds and
    never goes back.

    `repair` compares with the source what a crash of it may have taken back; `events` is whether
    the sink takes events, `commit_all` as in `Sink`, `together` as in `Capabilities`.
    """

    def __init__(
        self,
        tables: dict[str, StreamTable],
        epoch: int,
        reader: Position,
        clock: Callable[[], float],
        repair: Repair | None = None,
        events: bool = False,
        commit_all: CommitAll = commit_each,
        together: bool = False,
    ) -> None:
        self.tables, self.reader = tables, reader
        self._events, self._commit_all, self._together = events, commit_all, together
        self._turns = MaintenanceTurns(clock)
        self._done = TableCommits(epoch, clock, self._turns)
        self._crash = CrashRepair(self._done, repair, events)
        self._idle = IdleCheckpoints(self._done)

    @property
    def epoch(self) -> int:
        return self._done.epoch

    @property
    def commits(self) -> int:
        """How many commits were made so far."""
        return self._done.count

    @property
    def rows(self) -> int:
        """The rows of these commits."""
        return self._done.rows

    @property
    def committed(self) -> float | None:
        """The time of the last commit, None before the first."""
        return self._done.last_at

    @property
    def taken_back(self) -> Mapping[str, CdcError]:
        """The tables that another program took back, with the error that ends the run."""
        return self._done.taken_back

    def apply(self, batch: BinlogBatch) -> None:
        """Raises TransientError; a permanent error, or TableBusy, stops its table only."""
        self._check_no_gap(batch)
        if batch.left is not None:
            self._crash.run(self.tables.values(), batch, batch.left)
        due = [(self.tables[part.table], part) for part in batch.tables if self.tables[part.table].flowing]
        for together in [due] if self._together else [[one] for one in due]:
            with ExitStack() as files:
                self._apply_parts(together, batch, files)
        self.reader = batch.end

    def _apply_parts(self, due: Sequence[tuple[StreamTable, TableBatch]], batch: BinlogBatch, files: ExitStack) -> None:
        """In one commit where the sink has one for several tables, else one table at a time, so
        that no more than its rows are open."""
        builds = [(t.target, on_confirmed(t, self._build(t, part, batch, files))) for t, part in due]
        for (table, part), outcome in zip(due, self._commit_all(self.epoch, builds), strict=True):
            with self._done.stopping_alone(table):
                if isinstance(outcome, CdcError):
                    raise outcome
                self._done.note(table, outcome)
                table.unchecked = table.unchecked or part.undescribed
                if part.step is not None:
                    gate("step-committed")
                if part.stop is not None and not table.handed_over:
                    table.error = table.error or part.stop
            gate("table-applied")

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
        """Whether the table is consistent; asks without the joined position, which is large where
        the source's GTID set is."""
        position, high = table.state.position, table.state.high
        if position is None or high is None or table.name in self._crash.doubtful or table.name in self.taken_back:
            return False
        if table.state.replaying is not None and not self.position(table).includes(table.state.replaying):
            return False
        if position.has_reached(high) or self._events:
            return position.has_reached(high)
        return self.reader.has_reached(high) and table.flowing

    def checkpoint_idle(self, older_than: float, safe_from: int = 0, until: float = float("inf")) -> bool:
        """See `IdleCheckpoints.commit`."""
        return self._idle.commit(self.tables.values(), self.reader, older_than, safe_from, until)

    def note_others(self, table: StreamTable) -> None:
        """Takes note of what other programs did to a target between our commits; one that they
        removed stops. Raises TransientError where they took it back: the next run replays the
        binlog."""
        with self._done.stopping_alone(table):
            try:
                state = table.target.last_commit(wait=False)
            except (TransientError, Busy):
                return  # it is asked again
            gate("target-read")
            if state is None:
                raise target_gone(table.name)
            if self._done.continues(table, state):
                table.state = state

    def maintain(self, until: float) -> None:
        """See `MaintenanceTurns.take`."""
        self._turns.take(until)

    def _build(self, table: StreamTable, part: TableBatch, batch: BinlogBatch, files: ExitStack) -> Build:
        """The decision on a table's part of a batch; its rows are good while `files` is open."""
        self._done.begin(table)
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
            if not self._done.continues(table, state):
                return None
            commit = step_commit(state, step, upto, table.policy, consistent=consistent)
            return commit and Commit(replace(commit.state, epoch=self.epoch), commit.change)

        return build

    def _merge(self, table: StreamTable, state: TableState, part: TableBatch, changes: Changelog) -> Commit | None:
        if not self._done.continues(table, state):
            return None
        assert state.position is not None
        if state.position.includes(part.upto):
            return None
        after = replace(state.after_batch(part.upto, part.nulled, part.changing), epoch=self.epoch)
        after = after.with_proof() if part.proved else after
        after = replace(after, undescribed=after.undescribed or part.undescribed)
        commit = delivered(changes.without(state.position), state, after, events=self._events)
        self._done.expect(table, rows_of(commit.change))
        return commit

    def _stop_commit(self, table: StreamTable, state: TableState, part: TableBatch) -> Commit | None:
        """A table that stops without rows keeps the place where it stopped."""
        if not self._done.continues(table, state) or state.position is None:
            return None
        if state.position.join(part.upto) == state.position:
            return None
        return Commit(replace(state.after_batch(part.upto), epoch=self.epoch), AdvancePosition())
