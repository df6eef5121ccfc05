"""Commits of several tables in one transaction: readers of the database see those of a source
transaction at once.

Why it is right: the rows of states change in the transaction, each only from the number that was
decided on, and no higher epoch. The row's lock makes every other writer wait until the transaction
is made or gone. So where one of the states is another by now, nothing is changed, and all are
decided on again; a writer that was superseded, and a COMMIT whose answer was lost, are seen in the
states, which are never ahead of the rows or behind. A table that the server refuses is taken back
to its savepoint, and the others go on. One that is busy, as by another session's lock, ends the
transaction, which the server may have ended by itself (a deadlock); the others are decided on
again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError, PermanentError, TransientError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_mysql.sessions.failures import may_be_of_table, of_table
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Build
from cdcsync_spark.sinks.contract.checks import check_successor, refuse_superseded
from cdcsync_spark.sinks.contract.writer import Outcome
from cdcsync_spark.sinks.sql.dialects.dialect import AlreadyThere, ConnectionLost, SqlSession
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.publication import TablePublication
from cdcsync_spark.sinks.sql.states import States
from cdcsync_spark.sinks.sql.work import TableWork


@dataclass
class Together:
    """One commit of `parts`, tried until it is made, with an outcome for each. `sent` are the
    states of the last COMMIT."""

    epoch: int
    parts: Mapping[int, tuple[SqlPlace, Build]]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    sent: dict[int, TableState] = field(default_factory=dict)

    def __call__(self, session: SqlSession) -> dict[int, Outcome]:
        """Called again with another session where the connection was lost."""
        while True:
            drafts = self._drafts(session)
            if not drafts or self._publish(session, drafts):
                return self.outcomes

    # -- what is to be published

    def _drafts(self, session: SqlSession) -> dict[int, TablePublication]:
        """What is to be published in one transaction. A table that gets a new one in its place is
        committed by itself."""
        drafts: dict[int, TablePublication] = {}
        for number in self.parts:
            with self._stopping_alone(number):
                if number not in self.outcomes and (draft := self._draft(session, number)) is not None:
                    drafts[number] = draft
        return drafts

    def _draft(self, session: SqlSession, number: int) -> TablePublication | None:
        (place, build), work = self.parts[number], TableWork(self.parts[number][0], session)
        while True:
            current = work.newest()
            answered = current != self.sent.pop(number, None)
            if answered:
                refuse_superseded(current, self.epoch)
            commit = build(current) if answered else None
            if commit is None:
                self.outcomes[number] = current
                return None
            check_successor(current, commit, self.epoch)
            draft = TablePublication(place.dialect, session, place.name, current, commit, number)
            if not draft.replaces_table:
                return draft
            self.sent[number] = commit.state
            if work.replace(draft):
                self.outcomes[number] = commit.state
                return None
            del self.sent[number]

    # -- the transaction

    def _publish(self, session: SqlSession, drafts: dict[int, TablePublication]) -> bool:
        """False where a target has another state by now, or is busy: then nothing was changed."""
        for number, draft in list(drafts.items()):
            with self._stopping_alone(number, drafts):
                draft.prepare()
        self.sent = {number: draft.commit.state for number, draft in drafts.items()}
        session.begin()
        try:
            if not self._change(session, drafts):
                session.rollback()
                self.sent = {}
                return False
            gate("sql-rows-written")
        except BaseException:
            session.rollback()
            raise
        session.commit()
        gate("sql-committed")
        self.outcomes |= {number: draft.commit.state for number, draft in drafts.items()}
        self._clear(session, drafts)
        return True

    def _change(self, session: SqlSession, drafts: dict[int, TablePublication]) -> bool:
        for number, draft in list(drafts.items()):
            session.run("SAVEPOINT cdcsync_table")
            with self._stopping_alone(number, drafts, lambda: session.run("ROLLBACK TO SAVEPOINT cdcsync_table")):
                if not self._change_table(session, self.parts[number][0], draft):
                    return False
            if isinstance(self.outcomes.get(number), TransientError):
                return False
            session.run("RELEASE SAVEPOINT cdcsync_table")
        return True

    def _change_table(self, session: SqlSession, place: SqlPlace, draft: TablePublication) -> bool:
        if not States(place.dialect, session).advance(place.key, draft.current, draft.commit.state):
            return False
        if not isinstance(draft.commit.change, AdvancePosition):
            place.hold(session)
            place.refuse_altered(session, draft.commit.state)
            draft.run()
        return True

    def _clear(self, session: SqlSession, drafts: Mapping[int, TablePublication]) -> None:
        """What cannot be dropped now is by `SqlWriter.maintain`, or with the session."""
        with suppress(CdcError, ConnectionLost):
            for number, draft in drafts.items():
                draft.clear()
                TableWork(self.parts[number][0], session).drop(draft.staged_rows())

    @contextmanager
    def _stopping_alone(
        self, number: int, drafts: dict[int, TablePublication] | None = None, undo: Callable[[], object] = lambda: None
    ) -> Iterator[None]:
        """What is the table's own is its outcome alone; it leaves `drafts`. `undo` is for what a
        statement was refused for: a table that is busy ends the transaction."""
        place = self.parts[number][0]
        try:
            yield
        except PermanentError as error:
            undo()
            self.outcomes[number] = error
        except AlreadyThere as error:
            undo()
            self.outcomes[number] = place.duplicate_error(str(error))
        except TransientError as error:
            if not may_be_of_table(error):
                raise
            self.outcomes[number] = of_table(error, place.table)
        else:
            return
        if drafts is not None:
            del drafts[number]
            self.sent.pop(number, None)
