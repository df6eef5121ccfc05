"""Asks another server for the transactions of ours by which its binlog is proved to lead on from
ours.

The rules are `positions.failover`. The dump is one of no replica, which ends no other one, and it
ends at the end of the binlog; it is left when all that was asked for has come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from cdcsync_core.positions.failover import WitnessAnswer, WitnessQuestion
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.position import Anchor, GtidPosition, LogOffset, TransactionId
from cdcsync_core.positions.witness import Witness
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import ServerFacts, refuse_other_server
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.sql.changes.exclusion import touches
from cdcsync_spark.wire.sql.syntax.text import Statement


@dataclass
class OwnTransactions:
    """What the dump shows: which of those that are asked for have come, and which of `tables` are
    changed by others before the last of them."""

    asked: WitnessQuestion
    tables: Collection[TableId]
    committed: int | None = None
    last: tuple[Gtid, int, LogOffset] | None = None
    between: set[TableId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._awaited = self.asked.awaited.count()
        self._changed: set[TableId] = set()
        self._before: set[TableId] = set()
        self._came = GtidSet()

    @property
    def complete(self) -> bool:
        return self._awaited == 0

    @property
    def names_between(self) -> frozenset[str]:
        return frozenset(map(str, self.between))

    @property
    def missing(self) -> GtidSet:
        return self.asked.awaited.subtract(self._came) if self._awaited else GtidSet()

    def feed(self, fact: facts.Fact) -> None:
        match fact:
            case facts.TransactionBegin():
                self._changed = set()
            case facts.RowsEvent(table=table):
                self._changed.add(table)
            case Statement():
                charset = fact.session.charset
                self._changed |= {t for t in self.tables if touches(fact.sql, fact.database, t, charset)}
            case facts.TransactionEnd(id=id) | facts.TransactionRollback(id=TransactionId() as id):
                self._end(id.gtid, fact.timestamp, id.end)

    def _end(self, gtid: Gtid | None, timestamp: float, end: LogOffset) -> None:
        if gtid is None or gtid not in self.asked.awaited:
            self._before |= self._changed
            return
        microseconds = round(timestamp * 1e6)
        if gtid == self.asked.witness.gtid:
            self.committed = microseconds
        self._came, self._awaited = self._came.with_gtids([gtid]), self._awaited - 1
        self.between |= self._before
        self.last = gtid, microseconds, end


def ask(source: Source, server: ServerFacts, asked: WitnessQuestion, tables: Collection[TableId]) -> WitnessAnswer:
    """Raises PositionLost where it is another server than `server`, PrivilegeMissing,
    SourceUnreachable."""
    own = own_transactions(source, server, asked, tables)
    if own.last is None:
        return WitnessAnswer(own.committed, own.missing, own.names_between)
    gtid, committed, end = own.last
    last = Witness(gtid, committed, asked.kept.count(without=gtid.source))
    place = Anchor(end, file_created_at(source, end.file, server.log))
    return WitnessAnswer(own.committed, own.missing, own.names_between, last, place)


def own_transactions(
    source: Source, server: ServerFacts, asked: WitnessQuestion, tables: Collection[TableId]
) -> OwnTransactions:
    """What a dump shows of those that are asked for. Raises as `ask`."""
    own = OwnTransactions(asked, tables)
    with open_session(source) as session:
        refuse_other_server(session.facts, server.log)
        client = BinlogClient.to_the_end(session.unproved(), server.flavor, GtidPosition(asked.after))
        parser = EventParser(server.flavor, is_wanted=lambda table: table in tables, binlog=server.log)
        with client:
            _read(own, (fact for event in client.events() for fact in parser.feed(event)))
    return own


def _read(own: OwnTransactions, read: Iterable[facts.Fact]) -> None:
    for fact in read:
        own.feed(fact)
        if own.complete:
            return
