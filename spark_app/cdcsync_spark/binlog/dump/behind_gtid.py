"""Asks a MariaDB for what stands in its binlog behind a GTID.

A dump that begins behind a GTID opens with a list of the last GTIDs of all servers up to there. A
server that does not have the GTID refuses. Each dump is one of no replica, which ends no other one,
and is left as soon as the answer has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.mariadb_gtid import MariaDbGtid, MariaDbGtidPos
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import ServerFacts, refuse_other_server
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.event import events
from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.binlog.event.header import HEADER, read_header
from cdcsync_spark.wire.binlog.parser import EventParser


@dataclass(frozen=True)
class Committed:
    """A transaction of the dump, committed at `at` (microseconds since 1970)."""

    gtid: Gtid
    at: int
    end: LogOffset


@dataclass(frozen=True)
class DumpedStretch:
    """What follows a GTID: the list that the dump opens with, and the transactions behind it that
    are numbered without a gap: the first and the last of them."""

    before: MariaDbGtidPos
    first: Committed | None = None
    last: Committed | None = None


def state_at(source: Source, server: ServerFacts, gtid: Gtid) -> MariaDbGtidPos | None:
    """The last GTIDs of all servers that wrote up to `gtid`; None where the server does not begin
    there. Raises CdcError as `stretch_behind`."""
    stretch = stretch_behind(source, server, gtid, upto=0)
    return None if isinstance(stretch, str) or MariaDbGtid.of(gtid) not in stretch.before.gtids else stretch.before


def stretch_behind(source: Source, server: ServerFacts, gtid: Gtid, upto: int) -> DumpedStretch | str:
    """The transactions up to the number `upto`; the server's words where it refuses to begin
    there. Raises PositionLost where it is another server than `server`, PrivilegeMissing,
    SourceUnreachable."""
    with open_session(source) as session:
        refuse_other_server(session.facts, server.log)
        client = BinlogClient.to_the_end(session.unproved(), server.flavor, MariaDbGtid.of(gtid))
        parser = EventParser(server.flavor, is_wanted=lambda _: False, binlog=server.log)
        try:
            with client:
                return _read(client.events(), parser, gtid, upto)
        except CdcError as e:
            if e.reason is not Reason.POSITION_LOST:
                raise
            return e.found


def _read(dump: Iterator[memoryview], parser: EventParser, gtid: Gtid, upto: int) -> DumpedStretch:
    before, first, last = MariaDbGtidPos(), None, None
    for event in dump:
        header = read_header(event)
        if header.kind == EventType.GTID_LIST and first is None:
            before = MariaDbGtidPos(tuple(MariaDbGtid(*g) for g in events.listed_gtids(event[HEADER.size :])))
            if upto == 0 and MariaDbGtid.of(gtid) in before.gtids:
                break
        for committed in filter(None, map(_committed, parser.feed(event))):
            if last is not None and committed.gtid != Gtid(last.gtid.source, last.gtid.number + 1):
                return DumpedStretch(before, first, last)
            first, last = first or committed, committed
        if last is not None and last.gtid.number >= upto:
            break
    return DumpedStretch(before, first, last)


def _committed(fact: facts.Fact) -> Committed | None:
    match fact:
        case facts.TransactionEnd(id=id) | facts.TransactionRollback(id=TransactionId() as id) if id.numbered:
            return Committed(id.numbered, round(fact.timestamp * 1e6), id.end)
    return None
