"""A target's state and tables by one session: what was left pending is finished, and a new table
takes the target's place.

A database that cannot rename tables in a transaction gets a table's new content in three steps: the
state's row names the new table and the next state (`Pending`), which keeps all commits away; one
RENAME puts the table in its place; then the state follows. The next that opens the target does what
is left of it, and a step that was done is refused by the server or changes nothing. The state
follows only where the table in the target's place is the new one by its mark: that the new one is
not there by its first name proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.sql.dialects.dialect import AlreadyThere, ConnectionLost, Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.transaction import transaction
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.publication import TablePublication
from cdcsync_spark.sinks.sql.states import Pending, States


@dataclass(frozen=True)
class TableWork:
    """Raises `ConnectionLost`, after which the same is to be done by another session."""

    place: SqlPlace
    session: SqlSession

    @property
    def _dialect(self) -> Dialect:
        return self.place.dialect

    @property
    def _states(self) -> States:
        return States(self._dialect, self.session)

    def state(self) -> TableState | None:
        """The state of the rows that are there; what was left pending is done first."""
        row = self._states.row(self.place.key)
        while row is not None and row.pending:
            self._finish(row.pending, replaces=row.state is not None)
            row = self._states.row(self.place.key)
        return row.state if row is not None else None

    def newest(self) -> TableState:
        """The state that a commit is decided on; raises `SinkConflict` where there is none."""
        state = self.state()
        if state is None:
            raise self.place.not_there_error()
        return state

    def create(self, state: TableState) -> TableState:
        """The target's state, which is `state` where the target was not there."""
        current = self.state()
        if current is not None:
            self.place.refuse_altered(self.session, current)
            return current
        self._dialect.refuse_server(self.session, [self.place.name.schema])
        if self._dialect.columns(self.session, self.place.name):
            if (created := self.state()) is not None:
                return created  # by another run, since the state was read
            raise self.place.foreign_error()
        self._dialect.create_schema(self.session, self.place.name.schema)
        return self._create(state)

    def _create(self, state: TableState) -> TableState:
        pending = self._pending(state)
        in_one = self._dialect.alters_in_transactions
        try:
            self.place.create(self.session, pending.new, state)
            gate("sql-table-filled")
            with transaction(self.session):
                if self._states.insert(self.place.key, state, None if in_one else pending):
                    self._take(pending)
                    if in_one:
                        self._swap(pending, replaces=False)
        except AlreadyThere:
            raise self.place.foreign_error() from None
        gate("sql-committed")
        created = self.newest()
        self.drop((pending.new, pending.old))
        return created

    def replace(self, publication: TablePublication) -> bool:
        """Publishes a new table; False where the target has another state by now."""
        current, state = publication.current, publication.commit.state
        name = self.place.name
        self.place.refuse_referenced(self._dialect.references(self.session, name.schema, [name.table]))
        pending = self._pending(state)
        self._fill(publication, pending)
        gate("sql-table-filled")
        if self._dialect.alters_in_transactions:
            with transaction(self.session):
                done = self._states.advance(self.place.key, current, state)
                if done:
                    self._take(pending)
                    self._refuse_altered(publication)
                    self._swap(pending, replaces=True)
                    gate("sql-rows-written")
        else:
            with transaction(self.session):
                done = self._states.pend(self.place.key, current, pending)
                if done:
                    self._take(pending)
                    self._refuse_altered(publication)
            if done:
                gate("sql-pending")
                self._finish(pending.to_text(), replaces=True)
        gate("sql-committed")
        self.drop((pending.new, pending.old, *(publication.staged_rows() if done else ())))
        return done

    def _fill(self, publication: TablePublication, pending: Pending) -> None:
        """In a transaction that keeps others from altering the table that is copied."""
        try:
            self.place.create(self.session, pending.new, pending.state)
            with transaction(self.session):
                self._refuse_altered(publication)
                publication.fill(pending.new)
        except CdcError:
            self.drop((pending.new, pending.old))
            raise

    def _refuse_altered(self, publication: TablePublication) -> None:
        """As before each commit. What is to be replaced by staged rows may be gone or altered."""
        if publication.needs_target:
            self.place.hold(self.session)
            self.place.refuse_altered(self.session, publication.current)
        elif self._dialect.columns(self.session, self.place.name):
            self.place.hold(self.session)
            self.place.refuse_obstacles(self.session)

    def _pending(self, state: TableState) -> Pending:
        """New names, which the list of helpers has before there are tables of them."""
        new, old = self.place.helper(), self.place.helper()
        for table in (new, old):
            self._states.note_helper(self.place.key, table)
        return Pending(new, self.place.name, old, state)

    def _take(self, pending: Pending) -> None:
        """The new table is no helper any more by either name, so `maintain` never drops it."""
        self._states.take_helper(self.place.key, pending.table)
        if not self._states.take_helper(self.place.key, pending.new):
            raise self.place.given_up_error(pending.new)

    def _finish(self, text: str, *, replaces: bool) -> None:
        """Does what is left of a `Pending`: another run may do the same at the same time."""
        pending = Pending.from_text(text)
        if self._dialect.columns(self.session, pending.new):
            try:
                self._swap(pending, replaces=replaces)
            except (AlreadyThere, CdcError) as error:
                if self._dialect.columns(self.session, pending.new):
                    raise self.place.foreign_error() if isinstance(error, AlreadyThere) else error from error
            gate("sql-swapped")
        if self._dialect.mark(self.session, pending.table) == pending.new.table:
            self._states.finish(self.place.key, text, pending.state)
        elif self._states.pending(self.place.key) == text:
            raise self.place.unfinished_error(pending.new)

    def _swap(self, pending: Pending, *, replaces: bool) -> None:
        """The server refuses it where a table has the name that was to be free (`replaces` is
        False)."""
        there = replaces and bool(self._dialect.columns(self.session, pending.table))
        self._dialect.swap(self.session, pending.new, pending.table, pending.old if there else None)

    def drop(self, helpers: Iterable[SqlName]) -> None:
        """Drops what was created for a commit that is made; what cannot be dropped now is by
        `maintain`."""
        with suppress(CdcError, ConnectionLost):
            for table in helpers:
                self._states.drop_helper(table)
