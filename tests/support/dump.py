"""Reads a test server's binlog through the program's own client and parser, and a table's
definition and rows by plain SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cdcsync_core.positions.position import FilePosition, Position
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.wire.binlog.facts import Fact, RowsEvent
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.binlog.rows import DecodedRows, decode
from support.both_paths import Reading, outcome, stand_in
from support.servers import Server

REPLICA_ID = 3_000_000_001


def log_end(server: Server) -> FilePosition:
    """The end of the server's binlog."""
    return FilePosition(server.binlog_end())


def raw_events(server: Server, start: Position, *, user: str = "root", password: str = "") -> Iterator[bytes]:
    """The raw events from `start` to the end of the binlog."""
    connection = server.connect(user=user, password=password)
    with BinlogClient(
        connection, flavor=server.flavor, start=start, replica_id=REPLICA_ID, heartbeat_seconds=5, nonblocking=True
    ) as client:
        for event in client.events():
            yield bytes(event)


def read_log(
    server: Server,
    start: Position,
    *,
    wanted: Callable[[TableId], bool] = lambda _: True,
    gtid_pos: str = "",
) -> list[Fact]:
    """The facts from `start` to the end of the binlog; plain transactions read as columns are the
    same."""
    parser = EventParser(server.flavor, gtid_pos=gtid_pos, is_wanted=wanted, binlog=start.binlog or "")
    events = list(raw_events(server, start))
    facts = [fact for event in events for fact in parser.feed(event)]
    tables = {f.table: stand_in(f.table) for f in facts if isinstance(f, RowsEvent)}
    reading = Reading(server.flavor, start, tables)
    columns, single = (outcome(reading, [events], columns=way) for way in (True, False))
    assert columns == single
    return facts


def definition(server: Server, database: str, name: str, key: tuple[str, ...] = ("id",), **options: Any) -> Capture:
    """A table as information_schema shows it."""
    rows = server.query(
        "SELECT column_name, column_type, character_set_name, is_nullable, collation_name"
        " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        database,
        name,
    )
    columns = tuple(Column(n, SourceType.parse(t, c), nullable == "YES", o or "") for n, t, c, nullable, o in rows)
    return Capture(SourceTable(TableId(database, name), columns), key, **options)


def changes(server: Server, table: Capture, start: Position) -> DecodedRows:
    """The changes of one table from `start` to the end of the binlog, transactions numbered by
    event; both decoders agree."""
    facts = read_log(server, start, wanted=lambda t: t == table.id)
    events = [f for f in facts if isinstance(f, RowsEvent)]
    numbers = list(range(len(events)))
    found, expected = (decode(table, events, numbers, decoder) for decoder in Decoder)
    found.batch.validate(full=True)
    assert found.batch.equals(expected.batch)
    assert found.nulled == expected.nulled
    return found
