"""Opens the dump of a reader: its history is verified before the first event is used (R6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from cdcsync_core.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.source_table import TableId
from cdcsync_mysql.connection import connect
from cdcsync_mysql.history import verify_resumable
from cdcsync_mysql.server import read_facts, read_process
from cdcsync_mysql.watermark import high
from cdcsync_spark.binlog.client import BinlogClient, dump_begin
from cdcsync_spark.binlog.memory import bound_unpacked_events
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.binlog.temporary_tables import Process
from cdcsync_spark.wire.binlog.parser import EventParser


@dataclass(frozen=True)
class Dump:
    """One dump connection whose history is verified and that is about to send: raw events, and the
    parser that knows where they begin. `end` is where the binlog ended before: a heartbeat from
    there or beyond is from its end. `process` is the server that it is connected to."""

    client: BinlogClient
    parser: EventParser
    end: LogOffset | None = None
    process: Process | None = None


#: settings, where to go on, whose rows are wanted; raises CdcError
OpenDump = Callable[[ReaderSettings, Position, Callable[[TableId], bool]], AbstractContextManager[Dump]]


@contextmanager
def open_dump(settings: ReaderSettings, start: Position, wanted: Callable[[TableId], bool]) -> Iterator[Dump]:
    bound_unpacked_events()
    with connect(settings.source) as connection:
        facts = read_facts(connection)
        verify_resumable(connection, facts, settings.lineage, start)
        end = high(connection, facts)
        process = Process(facts.server_id, *read_process(connection))
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
        parser = EventParser(facts.flavor, file=file, gtid_pos=gtid_pos, known=_sent_again(start), wanted=wanted)
        yield Dump(client, parser, end, process)


def _oldest_file(positions: Iterable[Position]) -> str:
    """The file of the positions of a reader that has no offset of its own: a dump by GTIDs that
    begins behind it skipped the ends of files."""
    places = [p.at or (p.anchor.at if isinstance(p, GtidPosition) and p.anchor else None) for p in positions]
    known = [place for place in places if place]
    return min(known, key=lambda place: place.number).file if known else ""


def _sent_again(start: Position) -> LogOffset | None:
    """Up to which offset the dump sends what is already known."""
    return start.at if isinstance(start, FilePosition) and dump_begin(start.at) != start.at else None
