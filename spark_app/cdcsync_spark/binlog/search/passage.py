"""Reads the binlog from the beginning of a file, and keeps what is before the place that is
reached: where the last transaction ended, and all GTIDs up to there.

Each file begins with what was before it (MySQL's PREVIOUS_GTIDS, MariaDB's list), so one file
suffices. No row is decoded. The dump is one of no replica, which ends no other one, and it ends at
the end of the binlog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdcsync_core.errors import DecodeError
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.binlog.event.header import HEADER
from cdcsync_spark.wire.binlog.event.previous_gtids import parse_previous_gtids
from cdcsync_spark.wire.binlog.parser import EventParser

_FIRST_EVENT = 4
_KIND = 4
_LISTS = (EventType.PREVIOUS_GTIDS.value, EventType.GTID_LIST.value)
#: GTIDs that are put into the set together
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Boundary:
    """A place between two transactions, with all that is before it: `gtids` on MySQL, `gtid_pos` on
    MariaDB."""

    at: LogOffset
    gtids: GtidSet
    gtid_pos: MariaDbGtidPos


@dataclass(frozen=True)
class PassageStep:
    """An event behind which no transaction is open: it ends at `at`, and ended `transaction` if
    there is one."""

    at: LogOffset
    transaction: facts.TransactionEnd | facts.TransactionRollback | None
    gtid_pos: str | None


class Passage:
    """One reading from the beginning of `file` on. `boundary` is that before the step which was
    given last, `behind` that behind it."""

    def __init__(self, source: Source, lineage: Lineage, file: str) -> None:
        self._source, self._lineage = source, lineage
        self.at = LogOffset(file, _FIRST_EVENT)
        self._gtids, self._since, self._gtid_pos, self._listed = GtidSet(), list[Gtid](), "", False

    def steps(self) -> Iterator[PassageStep]:
        """To the end of the binlog. Raises CdcError."""
        with open_session(self._source) as session:
            connection, flavor = session.proved(self._lineage), session.facts.flavor
            client = BinlogClient.to_the_end(connection, flavor, FilePosition(self.at))
            parser = EventParser(flavor, is_wanted=lambda _: False)
            with client:
                yield from self._passed(_step(parser, event) for event in self._noted(client.events()))

    def _noted(self, events: Iterator[memoryview]) -> Iterator[memoryview]:
        """Takes what a file says was before it."""
        for event in events:
            if event[_KIND] == EventType.PREVIOUS_GTIDS.value:
                self._gtids, self._since = parse_previous_gtids(event[HEADER.size :]), []
            self._listed |= event[_KIND] in _LISTS
            yield event

    def _passed(self, steps: Iterator[PassageStep | None]) -> Iterator[PassageStep]:
        """Holds back what is at the beginning of the first file until it is known what was before
        it."""
        held: list[PassageStep] = []
        for step in steps:
            if step is None:
                continue
            if step.transaction is not None and not self._listed:
                raise DecodeError("a transaction in front of the list of GTIDs that a file begins with")
            held.append(step)
            while self._listed and held:
                yield held[0]
                self._pass(held.pop(0))

    def boundary(self) -> Boundary:
        return Boundary(self.at, self._gtids.with_gtids(self._since), MariaDbGtidPos.parse(self._gtid_pos))

    def behind(self, step: PassageStep) -> Boundary:
        self._pass(step)
        return self.boundary()

    def _pass(self, step: PassageStep) -> None:
        self.at = step.at
        if step.gtid_pos is not None:
            self._gtid_pos = step.gtid_pos
        if step.transaction is not None and step.transaction.id is not None and step.transaction.id.gtid is not None:
            self._since.append(step.transaction.id.gtid)
        if len(self._since) >= _AT_ONCE:
            self._gtids, self._since = self._gtids.with_gtids(self._since), []


def _step(parser: EventParser, event: memoryview) -> PassageStep | None:
    transaction, gtid_pos = None, None
    for fact in parser.feed(event):
        match fact:
            case facts.TransactionEnd() | facts.TransactionRollback():
                transaction, gtid_pos = fact, fact.gtid_pos
            case facts.Progress(gtid_pos=str() as listed):
                gtid_pos = listed
    at = parser.outside
    return None if at is None else PassageStep(at, transaction, gtid_pos)
