"""Opens the dump of a reader: its history is verified before the first event is used (R6), and
again whenever the binlog is silent.

A dump may wait at the end of a file that is gone: MySQL goes on sending heartbeats from it after a
RESET, and a host's name may lead to another server meanwhile. So a heartbeat says nothing by
itself. What it says is proved on another connection, which is opened for it: the binlog that the
name leads to now is ours, and the dump stands at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from cdcsync_core.errors import CdcError, TransientError
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.readiness.proof import open_session, source_left, tables_with_unlogged_cascades
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source, connect, fetch_dicts
from cdcsync_mysql.sessions.hosts import is_demoted
from cdcsync_spark.binlog.dump.behind_gtid import state_at
from cdcsync_spark.binlog.dump.client import BinlogClient, dump_begin
from cdcsync_spark.binlog.dump.event_bound import bound_unpacked_events
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.logs import get_logger
from cdcsync_spark.wire.binlog.facts import Fact
from cdcsync_spark.wire.binlog.parser import EventParser

_log = get_logger()
#: of one statement of a proof: meanwhile nothing is received
_PROOF_SECONDS = 10


@dataclass(frozen=True)
class Dump:
    """One dump connection whose history is verified and that is about to send: raw events, and the
    parser that knows where they begin. `end` is where the binlog ended before: a heartbeat from
    there or beyond is from its end. `prove_end` is `end_of_ours` of its source. `refused` are the
    tables whose changes this server hides. `state`: on MariaDB, the last GTIDs of all servers up to
    where it begins, if they were not known."""

    client: BinlogClient
    parser: EventParser
    prove_end: Callable[[Position], LogOffset]
    end: LogOffset | None = None
    refused: Mapping[TableId, CdcError] = field(default_factory=dict)
    state: MariaDbGtidPos | None = None


#: settings, where to go on, whose rows are wanted; raises CdcError
OpenDump = Callable[[ReaderSettings, Position, Callable[[TableId], bool]], AbstractContextManager[Dump]]


@contextmanager
def open_dump(settings: ReaderSettings, start: Position, is_captured: Callable[[TableId], bool]) -> Iterator[Dump]:
    bound_unpacked_events()
    with open_session(settings.source) as session:
        connection, facts = session.proved(settings.lineage, start), session.facts
        watched = [t for t in settings.tables if t not in settings.unlogged]
        refused = tables_with_unlogged_cascades(connection, facts, watched)
        end = high(connection, facts)
        file = start.at.file if start.at else _oldest_file(settings.ahead.values())
        gtid_pos = str(start.gtid_pos) if isinstance(start, FilePosition) else ""
        client = BinlogClient(
            connection,
            flavor=facts.flavor,
            start=start,
            replica_id=settings.replica_id,
            heartbeat_seconds=settings.heartbeat_seconds,
            begin_seconds=settings.begin_seconds if facts.flavor == "mariadb" else None,
        )
        covered = _sent_again(start)
        parser = EventParser(
            facts.flavor, file=file, gtid_pos=gtid_pos, after=covered, is_wanted=is_captured, binlog=facts.log
        )
        state = _unknown_state(settings.source, facts, start)
        yield Dump(
            client,
            parser,
            partial(end_of_ours, settings.source, settings.lineage, others=settings.others),
            end,
            refused,
            state,
        )


def facts_behind(
    source: Source, lineage: Lineage, start: Position, is_wanted: Callable[[TableId], bool]
) -> Iterator[Fact]:
    """What the binlog has behind `start`, up to its end, with the rows of the wanted tables alone;
    on a connection that is closed with the iterator. Raises CdcError as `SourceSession.proved`."""
    with open_session(source) as session:
        facts, at = session.facts, start.dump_from
        parser = EventParser(
            facts.flavor,
            file=at.file if at else "",
            after=_sent_again(start),
            is_wanted=is_wanted,
            binlog=facts.log,
        )
        with BinlogClient.to_the_end(session.proved(lineage, start), facts.flavor, start) as client:
            for event in client.events():
                yield from parser.feed(event)


def end_of_ours(source: Source, lineage: Lineage, position: Position, *, others: Source | None = None) -> LogOffset:
    """Where the binlog ends that the source has now, after a proof that it leads on from
    `position`. Raises CdcError as `SourceSession.proved`, and SourceMoved where the source was
    demoted and another host can be used; nothing is waited for."""
    with open_session(source, max_seconds=_PROOF_SECONDS, read_timeout=_PROOF_SECONDS) as session:
        connection = session.proved(lineage, position, commit_seconds=0)
        if others is not None and is_demoted(connection, fetch_dicts) and _can_be_used(others):
            raise source_left()
        return high(connection, session.facts)


def _can_be_used(hosts: Source) -> bool:
    try:
        with connect(hosts, max_seconds=_PROOF_SECONDS, read_timeout=_PROOF_SECONDS) as connection:
            return not is_demoted(connection, fetch_dicts)
    except CdcError:
        return False


def _unknown_state(source: Source, facts: ServerFacts, start: Position) -> MariaDbGtidPos | None:
    """What a later proof on another MariaDB needs of this one; the reader does without it."""
    if not isinstance(start, FilePosition) or start.others is not None or start.gtid_pos.only is None:
        return None
    try:
        return state_at(source, facts, start.gtid_pos.only)
    except TransientError as e:
        _log.warning("which servers wrote before is not known", error=e.message)
        return None


def _oldest_file(positions: Iterable[Position]) -> str:
    """The file of the positions of a reader that has no offset of its own: a dump by GTIDs that
    begins behind it skipped the ends of files."""
    places = [p.at or (p.anchor.at if isinstance(p, GtidPosition) and p.anchor else None) for p in positions]
    named = [place for place in places if place]
    return min(named, key=lambda place: place.number).file if named else ""


def _sent_again(start: Position) -> LogOffset | None:
    """Up to which offset the dump sends what is already known."""
    at = start.dump_from
    return at if at and dump_begin(at) != at else None
