"""Moves tables to the server that answers for the source now, each by a proof of its own.

Why it is right. A table that is moved has one commit, which changes its lineage and its position
and nothing of its rows, before any reader follows the new binlog. A run that dies before it proves
again; one that dies after some tables' commits finds these on the new server, and proves the rest.
The readers of a run follow one binlog only, because a table that could not be moved takes no part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.failover import Answer, Diverged, Moved, Question, Unproved, judge, question
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import GtidPosition
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.failover_check import ORDER_VARIABLES, keeps_order
from cdcsync_mysql.readiness.proof import SourceSession
from cdcsync_mysql.server import global_variables
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.search.other_server import ask, executed_and_purged
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit
from cdcsync_spark.sinks.contract.writer import Writer

_log = get_logger()


@dataclass
class Failover:
    """To the server of `session`; `tables` are all of the run. Tables at the same place are asked
    for once."""

    source: Source
    session: SourceSession
    tables: Collection[TableId]
    epoch: int

    def __post_init__(self) -> None:
        self._answers: dict[Question, Answer] = {}
        self._sets: dict[GtidSet, tuple[GtidSet, GtidSet]] = {}

    def move(self, target: Writer, state: TableState) -> TableState:
        """The state of the table there. Raises PositionLost where it is not proved that the
        server's binlog leads on from the table's, HistoryDiverged where the table was changed by
        what the server lacks, SourceUnreachable."""
        moved = self._judged(state)
        if isinstance(moved, Unproved):
            raise _unproved(moved, self.session.facts.log, state)
        if isinstance(moved, Diverged):
            raise _diverged(moved, self.session.facts.log, state)
        after = self._commit(target, state, moved)
        gate("table-moved")
        _log.warning(
            "the table goes on on another server",
            table=state.identity.table,
            server=self.session.facts.log,
            before=state.identity.lineage.newest,
            cut=str(moved.cut),
        )
        return after

    def _judged(self, state: TableState) -> Moved | Unproved | Diverged:
        copied, connection = state.copied, self.session.unproved()
        if not isinstance(copied.position, GtidPosition):
            return Unproved("a position by file and offset, which means nothing on another server", "GTIDs")
        if not keeps_order(global_variables(connection, *ORDER_VARIABLES)):
            return Unproved("replica_preserve_commit_order is OFF", "a server that keeps its source's order")
        ours = copied.position.gtids
        if ours not in self._sets:
            self._sets[ours] = executed_and_purged(connection, self.session.facts, ours)
        asked = question(copied, *self._sets[ours])
        if not isinstance(asked, Question):
            return asked
        if asked not in self._answers:
            self._answers[asked] = ask(self.source, self.session.facts, asked, self.tables)
        return judge(copied, asked, self._answers[asked])

    def _commit(self, target: Writer, state: TableState, moved: Moved) -> TableState:
        epoch = max(self.epoch, state.epoch + 1)

        def build(found: TableState) -> Commit | None:
            if found != state:
                return None
            there = replace(found.moved(self.session.facts.log, moved.position), epoch=epoch)
            return Commit(there, AdvancePosition())

        after = target.commit(epoch, build)
        if after.identity.lineage.newest != self.session.facts.log:
            raise fail(
                Reason.SINK_WRITTEN,
                "the target was written while its table was moved to another server",
                needed="one run of a sync at a time",
                remedy="none: the next run judges what it has now",
                table=state.identity.table,
            )
        return after


def _unproved(why: Unproved, binlog: str, state: TableState) -> CdcError:
    name = state.identity.table
    return fail(
        Reason.POSITION_LOST,
        f"the binlog {binlog} of another server is not proved to lead on from {state.identity.lineage.newest}: {why.found}",
        needed=why.needed,
        remedy=f"point spec.source at a server that has the copied transactions, or {resnapshot(name)}",
        table=name,
    )


def _diverged(why: Diverged, binlog: str, state: TableState) -> CdcError:
    name = state.identity.table
    return fail(
        Reason.HISTORY_DIVERGED,
        f"the source is now the server of {binlog}: {why.found}",
        needed="a copy of what that server has",
        remedy=f"{resnapshot(name)}; spec.source.lostTail: resnapshot does it by itself",
        table=name,
    )
