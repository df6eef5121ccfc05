"""The writer of a table of a SQL database: its rows and its state change in one transaction.

Why it is right: each commit begins with the row of the state, which is changed only if it still
has the number of the state that was decided on, and no higher epoch. The row's lock makes every
other writer wait until the transaction is made or gone. So a lost race, a writer that was
superseded and a COMMIT whose answer was lost are all seen in the state, which is never ahead of the
rows or behind.

A database that cannot rename tables in a transaction gets a table's new content in three steps: the
state's row names the new table and the next state (`Pending`), which keeps all commits away; one
RENAME puts the table in its place; then the state follows. Whoever opens the target next does what
is left of it, and a step that was done is refused by the server or changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Build, Commit
from cdcsync_spark.sinks.contract.checks import check_successor, refuse_superseded
from cdcsync_spark.sinks.contract.writer import Busy, Closed, WriterStatus
from cdcsync_spark.sinks.sql.dialect import AlreadyThere, ConnectionLost, SqlName, SqlSession
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.publication import Publication
from cdcsync_spark.sinks.sql.states import Pending, States

#: connections that may break in a row before the server counts as gone
_ATTEMPTS = 3
T = TypeVar("T")


class SqlWriter:
    """See `Writer`."""

    def __init__(self, place: SqlPlace) -> None:
        self._place, self._dialect = place, place.dialect
        self._lock = threading.Lock()
        self._session: SqlSession | None = None
        #: whether the table has been compared with the state by this session
        self._checked = False
        self._given: TableState | None = None
        self._closed = False

    def __del__(self) -> None:
        self._disconnect()

    @property
    def status(self) -> WriterStatus:
        return WriterStatus()

    def close(self) -> None:
        self._closed = True
        if (session := self._session) is not None:
            session.close()

    # -- the state

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        if not self._lock.acquire(blocking=wait):
            raise Busy
        try:
            self._given = self._reconnecting(self._state)
            return self._given
        finally:
            self._lock.release()

    def has_news(self) -> bool:
        """See `Writer.has_news`; a commit of this writer that is being made knows more."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            given = self._given
            numbers = States(self._dialect, self._connected()).numbers(self._place.key)
            return given is None or numbers != (given.commit_number, given.epoch)
        except (ConnectionLost, CdcError):
            self._disconnect()
            return False
        finally:
            self._lock.release()

    def _state(self) -> TableState | None:
        """The state of the rows that are there; what was left pending is done first."""
        states = States(self._dialect, self._connected())
        row = states.row(self._place.key)
        while row is not None and row.pending:
            self._finish(row.pending, replaces=row.state is not None)
            row = states.row(self._place.key)
        state = row.state if row is not None else None
        if state is not None and not self._checked:
            self._place.refuse_altered(self._connected(), state)
            self._checked = True
        return state

    # -- commits

    def create(self, state: TableState) -> TableState:
        """The target's state, which is `state` where the target was not there."""
        with self._lock:
            return self._reconnecting(lambda: self._state() or self._create(state))

    def commit(self, epoch: int, build: Build) -> TableState:
        with self._lock:
            self._given = self._reconnecting(_Attempt(self, epoch, build))
            return self._given

    def maintain(self) -> str:
        """Drops a table that a commit of long ago has left."""
        if not self._lock.acquire(blocking=False):
            return ""
        try:
            states = States(self._dialect, self._connected())
            for table in states.helpers(self._place.key, abandoned=True)[:1]:
                states.drop_helper(table)
                return "drop table"
        except (ConnectionLost, CdcError):
            self._disconnect()
        finally:
            self._lock.release()
        return ""

    def newest(self) -> TableState:
        """The state that a commit is decided on; raises `SinkConflict` where there is none."""
        state = self._state()
        if state is None:
            raise self._place.not_there_error()
        return state

    def publish(self, current: TableState, commit: Commit) -> bool:
        """False where the target has another state than `current` by now."""
        publication = Publication(self._dialect, self._connected(), self._place.name, current, commit)
        if publication.replaces_table:
            return self._replace(publication)
        publication.prepare()
        with self._transaction() as session:
            if not States(self._dialect, session).advance(self._place.key, current, commit.state):
                return False
            publication.run()
            gate("sql-rows-written")
        gate("sql-committed")
        self._drop(publication.staged_rows())
        return True

    @contextmanager
    def _transaction(self) -> Iterator[SqlSession]:
        """Commits, and rolls back at an error. Nothing was changed where it is left early."""
        session = self._connected()
        session.begin()
        try:
            yield session
        except BaseException:
            session.rollback()
            raise
        session.commit()

    # -- a new table in the target's place

    def _create(self, state: TableState) -> TableState:
        session, states = self._connected(), States(self._dialect, self._connected())
        if self._dialect.columns(session, self._place.name):
            if (created := self._state()) is not None:
                return created  # by another run, since the state was read
            raise self._place.foreign_error()
        self._dialect.create_schema(session, self._place.name.schema)
        pending = self._pending(state)
        try:
            self._place.create(session, pending.new, state)
            gate("sql-table-filled")
            if self._dialect.alters_in_transactions:
                with self._transaction():
                    if states.insert(self._place.key, state):
                        self._swap(session, pending, replaces=False)
            else:
                states.insert(self._place.key, state, pending.to_text())
        except AlreadyThere:
            raise self._place.foreign_error() from None
        gate("sql-committed")
        created = self.newest()
        self._drop((pending.new, pending.old))
        return created

    def _replace(self, publication: Publication) -> bool:
        session, states = self._connected(), States(self._dialect, self._connected())
        current, state = publication.current, publication.commit.state
        pending = self._pending(state)
        publication.fill(pending.new)
        gate("sql-table-filled")
        if self._dialect.alters_in_transactions:
            with self._transaction():
                done = states.advance(self._place.key, current, state)
                if done:
                    self._swap(session, pending, replaces=True)
                    gate("sql-rows-written")
        else:
            done = states.pend(self._place.key, current, pending)
            if done:
                gate("sql-pending")
                self._finish(pending.to_text(), replaces=True)
        gate("sql-committed")
        self._drop((pending.new, pending.old, *(publication.staged_rows() if done else ())))
        return done

    def _pending(self, state: TableState) -> Pending:
        """New names, which the list of helpers has before there are tables of them."""
        states = States(self._dialect, self._connected())
        new, old = self._place.helper(), self._place.helper()
        for table in (new, old):
            states.note_helper(self._place.key, table)
        return Pending(new, self._place.name, old, state)

    def _finish(self, text: str, *, replaces: bool) -> None:
        """Does what is left of a `Pending`: another run may do the same at the same time."""
        session, pending = self._connected(), Pending.from_text(text)
        if self._dialect.columns(session, pending.new):
            try:
                self._swap(session, pending, replaces=replaces)
            except (AlreadyThere, CdcError) as error:
                if self._dialect.columns(session, pending.new):
                    raise self._place.foreign_error() if isinstance(error, AlreadyThere) else error from error
            gate("sql-swapped")
        States(self._dialect, session).finish(self._place.key, text, pending.state)

    def _swap(self, session: SqlSession, pending: Pending, *, replaces: bool) -> None:
        """The server refuses it where a table has the name that was to be free (`replaces` is
        False)."""
        there = replaces and bool(self._dialect.columns(session, pending.table))
        self._dialect.swap(session, pending.new, pending.table, pending.old if there else None)

    def _drop(self, helpers: Iterable[SqlName]) -> None:
        """Drops what was created for a commit that is made; what cannot be dropped now is by
        `maintain`."""
        states = States(self._dialect, self._connected())
        with suppress(CdcError, ConnectionLost):
            for table in helpers:
                states.drop_helper(table)

    # -- connections

    def _reconnecting(self, work: Callable[[], T]) -> T:
        """What `work` returns, tried again on a new connection where one breaks."""
        for _ in range(_ATTEMPTS):
            try:
                return work()
            except ConnectionLost as lost:
                self._disconnect()
                if self._closed:
                    raise Closed from lost
                cause = lost
            except BaseException:
                self._disconnect()
                raise
        raise self._place.lost_error(cause) from cause

    def _connected(self) -> SqlSession:
        if self._closed:
            raise Closed
        if self._session is None:
            session = self._dialect.open()
            self._session, self._checked = session, False
            States(self._dialect, session).create()
        return self._session

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


@dataclass
class _Attempt:
    """One commit, tried until it is made: what `build` decides on the newest state."""

    writer: SqlWriter
    epoch: int
    build: Build
    sent: TableState | None = None

    def __call__(self) -> TableState:
        while True:
            current = self.writer.newest()
            if current == self.sent:
                return current  # the answer to its COMMIT was lost
            refuse_superseded(current, self.epoch)
            commit = self.build(current)
            if commit is None:
                return current
            check_successor(current, commit, self.epoch)
            self.sent = commit.state
            if self.writer.publish(current, commit):
                return commit.state
            self.sent = None
