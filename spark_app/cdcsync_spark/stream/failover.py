"""Moves tables to the server that answers for the source now, each by a proof of its own.

Why it is right. A table that is moved has one commit, which changes its lineage and its position
and nothing of its rows, before any reader follows the new binlog. A run that dies before it proves
again; one that dies after some tables' commits finds these on the new server, and proves the rest.
The readers of a run follow one binlog only, because a table that could not be moved takes no part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.failover import (
    Copied,
    Diverged,
    MovedPosition,
    Unproved,
    WitnessAnswer,
    WitnessQuestion,
    found_diverged,
    judge,
    judge_ends,
    not_numbered,
    question,
    snapshot_ends,
)
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.position import FilePosition, GtidPosition, Position, meet_all
from cdcsync_core.positions.witness import Witness
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.history import gtid_sets
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.readiness.failover_check import ORDER_VARIABLES, drawn_defaults, keeps_order, sources_of
from cdcsync_mysql.readiness.left_out import LeftOut, read_left_out
from cdcsync_mysql.readiness.proof import SourceSession
from cdcsync_mysql.reading.table_kind import check_kind
from cdcsync_mysql.server import global_variables
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.search.commit_time import commit_time
from cdcsync_spark.binlog.search.numbered_server import ask_numbered
from cdcsync_spark.binlog.search.other_server import ask
from cdcsync_spark.binlog.search.stopping_statement import CommittedStatement, behind, statements_behind, stops
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit
from cdcsync_spark.sinks.contract.writer import Writer

#: what the stream says itself of a table that was dropped or changed behind the copy's position
_CHANGED_SINCE = frozenset({Reason.NO_SUCH_TABLE, Reason.ENGINE_UNSUPPORTED})
_log = get_logger()


@dataclass
class Failover:
    """To the server of `session`; `tables` are all of the run. All that move are judged before the
    first one is moved. Tables at the same place are asked for once."""

    source: Source
    session: SourceSession
    tables: Collection[TableId]
    epoch: int

    def __post_init__(self) -> None:
        self._answers: dict[WitnessQuestion, WitnessAnswer] = {}
        self._sets: dict[GtidSet, tuple[GtidSet, GtidSet]] = {}
        self._numbered: dict[
            tuple[FilePosition, tuple[Witness, ...]], tuple[WitnessQuestion, WitnessAnswer] | Unproved
        ] = {}
        self._committed: dict[Gtid, int | None] = {}
        self._proved = list[Position]()

    def judge(self, state: TableState) -> MovedPosition:
        """Where the table goes on there. Raises PositionLost where it is not proved that the
        server's binlog leads on from the table's, HistoryDiverged where the table was changed by
        what the server lacks, SourceUnreachable in the place of both while the server is a replica
        that may still get it."""
        moved = self._unfit(state) or self._judged(state)
        if isinstance(moved, Unproved):
            raise _unproved(moved, self.session.facts.log, state)
        if isinstance(moved, Diverged):
            raise _diverged(moved, self.session.facts.log, state)
        self._proved.append(moved.position)
        return moved

    def move(self, target: Writer, state: TableState, moved: MovedPosition) -> TableState:
        """The state of the table there. Raises as `check_kind`: the server may have the table under
        another name, whose changes would pass by unseen, or not at all."""
        self._check_table(state, moved.position)
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

    def _check_table(self, state: TableState, position: Position) -> None:
        """A table that the server has dropped or changed behind `position` is one until there, and
        the stream stops it there."""
        table = state.capture.id
        try:
            check_kind(self.session.unproved(), table)
        except PermanentError as e:
            if e.reason not in _CHANGED_SINCE or not self._spells(table):
                raise
            if isinstance(self._statements, CdcError):
                raise self._statements from None
            if not stops(state.capture, behind(position, self._statements)):
                raise

    @cached_property
    def _statements(self) -> tuple[CommittedStatement, ...] | CdcError:
        """The statements behind the positions of all tables that were judged, in one reading, or
        the error in which it ended: it would end so for each table."""
        try:
            return statements_behind(self.source, self.session.facts, meet_all(self._proved), self.tables)
        except CdcError as e:
            return e

    def _spells(self, table: TableId) -> bool:
        """Whether the server's binlog has the name as it is."""
        spelling = global_variables(self.session.unproved(), "lower_case_table_names")
        return spelling.get("lower_case_table_names") == "0" or str(table) == str(table).lower()

    def _unfit(self, state: TableState) -> Unproved | None:
        """Why the server, or the table's position, can be asked for nothing."""
        left_out = self._left_out.of([state.capture.id])
        if left_out:
            return Unproved(left_out, "a server that, as a replica, leaves out no change of the table")
        if isinstance(state.position, FilePosition):
            return self._not_numbered(state.position, state)
        if not keeps_order(global_variables(self.session.unproved(), *ORDER_VARIABLES)):
            return Unproved("replica_preserve_commit_order is OFF", "a server that keeps its source's order")
        return None

    def _not_numbered(self, position: FilePosition, state: TableState) -> Unproved | None:
        """On MariaDB, whose position is a place."""
        if self.session.facts.flavor != "mariadb":
            return Unproved("a position by file and offset, which means nothing on another server", "GTIDs")
        if state.replaying is not None:
            return Unproved("changes are being applied again that another program took back", "all of them applied")
        return not_numbered(position)

    def _judged(self, state: TableState) -> MovedPosition | Unproved | Diverged:
        """Raises SourceUnreachable where only what a replica may still get decides."""
        judged = self._asked(state)
        if not _is_curable(judged) or not self._lacks_ours(state):
            return judged
        sources = self._sources
        judged = self._asked(state)
        if sources and _is_curable(judged) and self._lacks_ours(state):
            raise self._incomplete(judged, state, sources)
        return judged

    def _asked(self, state: TableState) -> MovedPosition | Unproved | Diverged:
        copied = state.copied
        if isinstance(copied.position, FilePosition):
            return self._asked_by_numbers(copied, copied.position, state)
        asked = question(copied, *self._sets_for(copied.position.gtids))
        if not isinstance(asked, WitnessQuestion):
            return asked
        if asked not in self._answers:
            self._answers[asked] = ask(self.source, self.session.facts, asked, self.tables)
        return self._with_snapshot(copied, judge(copied, asked, self._answers[asked]))

    def _with_snapshot(
        self, copied: Copied, judged: MovedPosition | Unproved | Diverged
    ) -> MovedPosition | Unproved | Diverged:
        """A server that leads on from the position of a table that is catching up must also have
        all that its snapshot may have read."""
        if copied.high is None or not isinstance(judged, MovedPosition):
            return judged
        ends = snapshot_ends(copied)
        if isinstance(ends, Diverged):
            return ends
        executed = self._executed(copied.position)
        lacking = copied.unread.subtract(executed) if isinstance(copied.position, GtidPosition) else GtidSet()
        if not lacking:
            for end in ends:
                if end.gtid not in self._committed:
                    self._committed[end.gtid] = commit_time(self.source, self.session.facts, end.gtid, executed)
        committed = {gtid: at for gtid, at in self._committed.items() if at is not None}
        return judge_ends(() if lacking else ends, lacking, committed) or judged

    def _executed(self, position: Position) -> GtidSet:
        """What a MySQL server had executed when the position was judged."""
        return self._sets_for(position.gtids)[0] if isinstance(position, GtidPosition) else GtidSet()

    def _sets_for(self, ours: GtidSet) -> tuple[GtidSet, GtidSet]:
        """What the server has executed and purged: tables with the same GTIDs are judged alike."""
        if ours not in self._sets:
            self._sets[ours] = gtid_sets(self.session.unproved())
        return self._sets[ours]

    def _lacks_ours(self, state: TableState) -> bool:
        """Whether the server has not all that the table's position has, or its snapshot may have
        read, as it was judged by."""
        copied = state.copied
        match state.position:
            case GtidPosition(gtids=ours):
                return ours in self._sets and not self._sets[ours][0].covers(copied.gtids)
            case FilePosition() as position if answered := self._numbered.get((position, position.witnesses)):
                if isinstance(answered, Unproved):
                    return answered.lacking
                absent = [gtid for gtid, committed in self._committed.items() if committed is None]
                return position.witnesses[0].gtid not in answered[0].kept or any(
                    gtid in copied.unread for gtid in absent
                )
        return False

    @cached_property
    def _sources(self) -> list[str]:
        """The servers of which it may still get more. What it has is asked for once more: a
        replica that has ended may have applied more."""
        sources = sources_of(self.session.unproved())
        self._answers.clear()
        self._sets.clear()
        self._numbered.clear()
        self._committed.clear()
        return sources

    def _incomplete(self, why: Unproved | Diverged, state: TableState, sources: list[str]) -> CdcError:
        lacking = why.found if isinstance(why, Unproved) else why.divergence
        return fail(
            Reason.SOURCE_UNREACHABLE,
            f"{lacking}; the server {self.source.host} is a replica and may still get what it lacks from {', '.join(sources)}",
            needed="a replica that has caught up, or a server that replicates no more",
            remedy="wait until it has caught up, or promote it (STOP REPLICA; RESET REPLICA ALL)",
            table=state.identity.table,
        )

    @cached_property
    def _left_out(self) -> LeftOut:
        return read_left_out(self.session.unproved(), self.session.facts)

    def _asked_by_numbers(
        self, copied: Copied, position: FilePosition, state: TableState
    ) -> MovedPosition | Unproved | Diverged:
        place = position, position.witnesses
        if place not in self._numbered:
            self._numbered[place] = ask_numbered(self.source, self.session.facts, position)
        answered = self._numbered[place]
        judged = answered if isinstance(answered, Unproved) else judge(copied, *answered)
        judged = self._with_snapshot(copied, judged)
        return self._as_defined(judged, state) if isinstance(judged, MovedPosition) else judged

    def _as_defined(self, moved: MovedPosition, state: TableState) -> MovedPosition | Diverged:
        columns = drawn_defaults(self.session.unproved(), state.capture.id, state.capture.key)
        if not columns:
            return moved
        return Diverged(f"the statement that added a column gave each server other values: {', '.join(columns)}")

    def _commit(self, target: Writer, state: TableState, moved: MovedPosition) -> TableState:
        assert state.position is not None
        epoch, executed = max(self.epoch, state.epoch + 1), self._executed(state.position)
        end = None if state.consistent else high(self.session.unproved(), self.session.facts)

        def build(last: TableState) -> Commit | None:
            if last != state:
                return None
            there = replace(last.moved(self.session.facts.log, moved.position, executed, end), epoch=epoch)
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


def _is_curable(judged: MovedPosition | Unproved | Diverged) -> TypeGuard[Unproved | Diverged]:
    """Whether transactions that the server has not got yet may decide otherwise."""
    return isinstance(judged, Diverged) or (isinstance(judged, Unproved) and judged.lacking)


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
        found_diverged(binlog, why),
        needed="a copy of what that server has",
        remedy=f"{resnapshot(name)}; spec.source.lostTail: resnapshot does it by itself",
        table=name,
    )
