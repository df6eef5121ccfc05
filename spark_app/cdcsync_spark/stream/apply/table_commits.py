"""Commits of a run to its tables, one table at a time: which state counts, and whom an error stops.

Why it is right: a commit opens the table and finds its state (R8). A table that does not go on from
what this run knows of it was resnapshot or taken over by another run: it is left alone, because the
gap is not here to be filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError, PermanentError, Reason, TableBusyError, fail
from cdcsync_core.state import TableState
from cdcsync_mysql.sessions.failures import of_table
from cdcsync_spark.sinks.contract.changes import Build
from cdcsync_spark.stream.apply.maintenance_turns import MaintenanceTurns
from cdcsync_spark.stream.apply.stream_table import StreamTable, went_back


@dataclass
class TableCommits:
    """Commits in the name of run epoch `epoch`; a table that has a new commit gets one of `turns`.

    `count` and `rows` are the work so far, `last_at` the time of the last commit on `clock`, None
    before the first. `taken_back` are the tables that another program took back, with the error
    that ends the run.
    """

    epoch: int
    clock: Callable[[], float]
    turns: MaintenanceTurns
    count: int = 0
    rows: int = 0
    last_at: float | None = None
    taken_back: dict[str, CdcError] = field(default_factory=dict)
    _rows_of: dict[str, int] = field(default_factory=dict)

    def commit(self, table: StreamTable, build: Build) -> None:
        self.begin(table)
        self.note(table, table.target.commit(self.epoch, on_confirmed(table, build)))

    def begin(self, table: StreamTable) -> None:
        """Forgets the rows of an earlier commit."""
        self._rows_of.pop(table.name, None)

    def expect(self, table: StreamTable, rows: int) -> None:
        """Counts `rows` once the commit that is being built has been made."""
        self._rows_of[table.name] = rows

    def note(self, table: StreamTable, state: TableState) -> None:
        """Takes the state that the table has after a commit, or where there was nothing to
        commit."""
        before, table.state = table.state.commit_number, state
        if state.commit_number != before:
            table.wrote = True
            table.committed = self.last_at = self.clock()
            self.turns.add(table)
            self.count += 1
            self.rows += self._rows_of.get(table.name, 0)

    def continues(self, table: StreamTable, state: TableState) -> bool:
        """Whether the table is still this run's; raises TransientError where the target lost what
        this run knows of.

        The reader passed nothing of this table between the applied position and the batch, so a
        position that includes that one has no gap before the batch, even where it was
        committed long ago: an idle table's position is committed only now and then.
        """
        applied, position = table.state.position, state.position
        if table.name in self.taken_back:
            raise self.taken_back[table.name]
        if state.generation != table.state.generation:
            table.handed_over = True
        elif position is None or applied is None or not position.includes(applied):
            self.taken_back[table.name] = went_back(table.name, applied, position)
            table.state = table.state if position is None else state
            raise self.taken_back[table.name]
        return not table.handed_over

    @contextmanager
    def stopping_alone(self, table: StreamTable) -> Iterator[None]:
        """A permanent error stops the table; one that was resnapshot meanwhile has a newer owner
        and is left to it. Where this run has written the table, a refused credential is one that
        is being changed: it ends the run, and stops the table if the next run meets it. A table
        that is busy stays where it is: a later run goes on with it."""
        try:
            yield
        except TableBusyError as e:
            table.error = of_table(e, table.state.capture.id)
        except PermanentError as e:
            if e.reason is Reason.PRIVILEGE_MISSING and table.wrote:
                raise fail(Reason.SINK_UNREACHABLE, e.found, needed=e.needed, remedy=e.remedy, table=e.table) from None
            if e.reason is Reason.SINK_CONFLICT and table.was_resnapshot():
                table.handed_over = True
            else:
                table.error = e


def on_confirmed(table: StreamTable, build: Build) -> Build:
    """`build` of the state with what is confirmed of it."""
    return lambda state: build(state.with_confirmation(table.confirmed))
