"""The writer of a table of a SQL database: its rows and its state change in one transaction
(`together`), or a new table takes its place (`work`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from cdcsync_core.errors import CdcError, TransientError
from cdcsync_core.state import TableState
from cdcsync_mysql.sessions.failures import may_be_of_table, of_table
from cdcsync_spark.sinks.contract.changes import Build
from cdcsync_spark.sinks.contract.writer import Busy, Closed, Outcome, WriterStatus
from cdcsync_spark.sinks.sql import sessions
from cdcsync_spark.sinks.sql.dialects.dialect import ConnectionLost, SqlSession
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.states import States
from cdcsync_spark.sinks.sql.together import Together
from cdcsync_spark.sinks.sql.work import TableWork

#: connections that may break in a row before the server counts as gone
_ATTEMPTS = 3
T = TypeVar("T")


class SqlWriter:
    """See `Writer`. It has a session while it does something."""

    def __init__(self, place: SqlPlace) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._session: SqlSession | None = None
        self._given: TableState | None = None
        self._closed = False

    @property
    def status(self) -> WriterStatus:
        return WriterStatus()

    def close(self) -> None:
        self._closed = True
        if (session := self._session) is not None:
            session.close()

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        if not self._lock.acquire(blocking=wait):
            raise Busy
        try:
            self._given = self._alone(self._checked_state)
            return self._given
        finally:
            self._lock.release()

    def _checked_state(self, session: SqlSession) -> TableState | None:
        state = TableWork(self.place, session).state()
        if state is not None:
            self.place.refuse_altered(session, state)
        return state

    def has_news(self) -> bool:
        """See `Writer.has_news`; a commit of this writer that is being made knows more."""
        return self._unless_busy(self._differs, False)

    def _differs(self, session: SqlSession) -> bool:
        given, numbers = self._given, self._states(session).numbers(self.place.key)
        return given is None or numbers != (given.commit_number, given.epoch)

    def create(self, state: TableState) -> TableState:
        """The target's state, which is `state` where the target was not there."""
        with self._lock:
            return self._alone(lambda session: TableWork(self.place, session).create(state))

    def commit(self, epoch: int, build: Build) -> TableState:
        (outcome,) = commit_together(epoch, [(self, build)])
        if isinstance(outcome, CdcError):
            raise outcome
        return outcome

    def maintain(self) -> str:
        """Drops a table that a commit of long ago has left."""
        return self._unless_busy(self._drop_abandoned, "")

    def _drop_abandoned(self, session: SqlSession) -> str:
        states = self._states(session)
        for table in states.abandoned(self.place.key)[:1]:
            if states.give_up_helper(table):
                states.drop_helper(table)
                return "drop table"
        return ""

    def _states(self, session: SqlSession) -> States:
        return States(self.place.dialect, session)

    def _unless_busy(self, work: Callable[[SqlSession], T], otherwise: T) -> T:
        """What `work` returns; `otherwise` where another thread uses the writer, or the server
        refuses."""
        if not self._lock.acquire(blocking=False):
            return otherwise
        try:
            return on_session([self], work)
        except CdcError:
            return otherwise
        finally:
            self._lock.release()

    def _alone(self, work: Callable[[SqlSession], T]) -> T:
        """What `work` on this table returns; what may concern the table alone is its own error."""
        try:
            return on_session([self], work)
        except TransientError as error:
            raise of_table(error, self.place.table) if may_be_of_table(error) else error from error

    # -- its session

    @contextmanager
    def using(self, session: SqlSession) -> Iterator[None]:
        """While `close` closes the session, too."""
        self._session = session
        try:
            if self._closed:
                raise Closed
            yield
        finally:
            self._session = None

    @property
    def closed(self) -> bool:
        return self._closed

    def committed(self, outcome: Outcome) -> None:
        if isinstance(outcome, TableState):
            self._given = outcome

    @property
    def lock(self) -> threading.Lock:
        return self._lock


def commit_together(epoch: int, parts: Sequence[tuple[SqlWriter, Build]]) -> list[Outcome]:
    """One transaction for all tables; an outcome for each. A batch may have no table."""
    if not parts:
        return []
    writers = [writer for writer, _ in parts]
    with ExitStack() as locks:
        for writer in writers:
            locks.enter_context(writer.lock)
        together = Together(epoch, {number: (writer.place, build) for number, (writer, build) in enumerate(parts)})
        outcomes: Mapping[int, Outcome] = on_session(writers, together)
        for number, writer in enumerate(writers):
            writer.committed(outcomes[number])
    return [outcomes[number] for number in range(len(parts))]


def on_session(writers: Sequence[SqlWriter], work: Callable[[SqlSession], T]) -> T:
    """What `work` returns, tried again on a new connection where one breaks."""
    place = writers[0].place
    for _ in range(_ATTEMPTS):
        try:
            return _once(writers, work)
        except ConnectionLost as lost:
            sessions.forget(place.dialect)
            if any(writer.closed for writer in writers):
                raise Closed from lost
            cause = lost
        except TransientError:
            sessions.forget(place.dialect)
            raise
    raise place.lost_error(cause) from cause


def _once(writers: Sequence[SqlWriter], work: Callable[[SqlSession], T]) -> T:
    dialect = writers[0].place.dialect
    session = sessions.take(dialect)
    try:
        with ExitStack() as users:
            for writer in writers:
                users.enter_context(writer.using(session))
            done = work(session)
    except BaseException:
        session.close()
        raise
    sessions.give_back(dialect, session)
    return done
