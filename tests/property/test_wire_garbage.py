"""Whatever bytes arrive, the wire answers with facts or with a CdcError, never with another
exception, never without end."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import MappedColumn, Operation, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.json.json_binary import json_text
from cdcsync_spark.wire.binlog.parser import EventParser, Flavor
from cdcsync_spark.wire.binlog.rows import decode
from cdcsync_spark.wire.sql.changes.exclusion import is_dml, touches
from support.events import (
    GTID,
    ID_V,
    PAYLOAD,
    QUERY,
    TABLE_MAP,
    TAGGED,
    UPDATE,
    WRITE,
    XA_PREPARE,
    XID,
    event,
    format_event,
    gtid,
    image,
    query,
    rotate,
    rows,
)

_INNER = b"".join([event(QUERY, query("BEGIN")), event(TABLE_MAP, ID_V), event(XID, bytes(8))])
_STREAM = pa.compress(_INNER, "zstd", asbytes=True)
_LOG = [
    rotate("binlog.000001"),
    format_event(),
    event(GTID, gtid(1, committed=5), end=200),
    event(QUERY, query("BEGIN"), end=300),
    event(TABLE_MAP, ID_V, end=400),
    event(WRITE, rows(18, image(1, "a") + image(2, "b"), width=2), end=500),
    event(UPDATE, rows(18, image(1, "a") * 2, width=2, update=True), end=600),
    event(XID, bytes(8), end=700),
    event(TAGGED, bytes.fromhex("027c00000202ee450341025802690322c50369028241023502dcbedc35020404"), end=800),
    event(PAYLOAD, bytes([2, 1, 0, 1, 1, len(_STREAM), 0]) + _STREAM, end=900),
    event(XA_PREPARE, b"\1" + struct.pack("<III", 7, 1, 2) + b"abc", end=1000),
]
_TABLE = Capture(
    SourceTable(
        TableId("shop", "t"),
        (Column("id", SourceType.parse("int")), Column("v", SourceType.parse("varchar(10)", "utf8mb4"))),
    ),
    ("id",),
)
_EVERY_TYPE = [
    ("int", MappedColumn(types.LONG, 0, True, "c", False)),
    ("decimal(20,5)", MappedColumn(types.DECIMAL, 20 | 5 << 8, True, "c", False)),
    ("decimal(65,30)", MappedColumn(types.DECIMAL, 65 | 30 << 8, True, "c", False)),
    ("float", MappedColumn(types.FLOAT, 4, True, "c", False)),
    ("double", MappedColumn(types.DOUBLE, 8, True, "c", False)),
    ("bit(9)", MappedColumn(types.BIT, 9, True, "c")),
    ("year", MappedColumn(types.YEAR, 0, True, "c", True)),
    ("date", MappedColumn(types.DATE, 0, True, "c")),
    ("datetime(6)", MappedColumn(types.DATETIME2, 6, True, "c")),
    ("datetime", MappedColumn(types.DATETIME, 0, True, "c")),
    ("timestamp(3)", MappedColumn(types.TIMESTAMP2, 3, True, "c")),
    ("time(5)", MappedColumn(types.TIME2, 5, True, "c")),
    ("time", MappedColumn(types.TIME, 0, True, "c")),
    ("varchar(9)", MappedColumn(types.VARCHAR, 36, True, "c", collation=45)),
    ("char(9)", MappedColumn(types.STRING, 18, True, "c", collation=28)),
    ("text", MappedColumn(types.BLOB, 2, True, "c", collation=54)),
    ("blob", MappedColumn(types.BLOB_COMPRESSED, 2, True, "c", collation=63)),
    ("enum('a')", MappedColumn(types.ENUM, 1, True, "c", collation=45, members=(b"a",))),
    ("set('a')", MappedColumn(types.SET, 1, True, "c", collation=45, members=(b"a",))),
    ("json", MappedColumn(types.JSON, 4, True, "c")),
    ("vector(2)", MappedColumn(types.VECTOR, 4, True, "c")),
    ("uuid", MappedColumn(types.STRING, 16, True, "c", collation=63)),
    ("inet6", MappedColumn(types.STRING, 16, True, "c", collation=63)),
]
_CHARSETS = {"varchar(9)": "utf8mb4", "char(9)": "gbk", "text": "utf16", "enum('a')": "utf8mb4", "set('a')": "utf8mb4"}


def _error(read: Callable[[], object]) -> CdcError | None:
    """What `read` raises if it is a CdcError; any other exception fails the test."""
    try:
        read()
    except CdcError as e:
        return e
    return None


def _read(flavor: Flavor, events: list[bytes]) -> None:
    parser = EventParser(flavor)
    for raw in events:
        for fact in parser.feed(raw):
            if isinstance(fact, RowsEvent) and fact.defect is None:
                decode(_TABLE, [fact], [0])


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(["mysql", "mariadb"]))
def test_damaged_events(data: st.DataObject, flavor: Flavor) -> None:
    """Bytes behind the header are changed, cut or added; the length is made right again, so that it
    does not hide the rest."""
    events = list(_LOG)
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(0, len(events) - 1))
        body = bytearray(events[i][19:])
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        head = events[i][:9] + struct.pack("<I", 19 + len(body)) + events[i][13:19]
        events[i] = head + bytes(body)
    _error(lambda: _read(flavor, events))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from(["mysql", "mariadb"]))
def test_events_of_any_kind(kind: int, body: bytes, flavor: Flavor) -> None:
    """`_error` lets no other exception than a CdcError pass."""
    for before in (2, 4, 5):
        events = [*_LOG[:before], event(kind, body, end=5000)]
        _error(partial(_read, flavor, events))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(_EVERY_TYPE), st.binary(max_size=60), st.sampled_from(Operation))
def test_images_of_any_bytes(column: tuple[str, MappedColumn], body: bytes, operation: Operation) -> None:
    declared, mapped = column
    table = Capture(
        SourceTable(TableId("shop", "t"), (Column("c", SourceType.parse(declared, _CHARSETS.get(declared))),)), ("c",)
    )
    rows_event = RowsEvent(table.id, TableMap(1, table.id, (mapped,)), operation, body, len(body))
    error = _error(lambda: decode(table, [rows_event], [0]))
    assert error is None or error.table == "shop.t"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_json_of_any_bytes(raw: bytes) -> None:
    """`_error` lets no other exception than a CdcError pass."""
    for kind in (b"", b"\x00", b"\x01", b"\x02", b"\x03", b"\x0f"):
        _error(partial(json_text, kind + raw))


_PIECES = [
    "orders",
    "`",
    "'",
    '"',
    "\\",
    "/*",
    "*/",
    "/*!",
    "--",
    "#",
    "\n",
    " ",
    ".",
    "shop",
    "ALTER TABLE ",
    "x",
    ";",
    "\ufffd",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=25))
def test_a_name_in_the_open_is_found_in_any_statement(pieces: list[str]) -> None:
    """R9: whatever stands around it, DDL that really names the table is not taken for harmless."""
    sql = "".join(pieces)
    is_dml(sql)
    touches(sql, "shop", TableId("shop", "orders"))
    assert touches(f"ALTER TABLE orders ADD {sql}", "shop", TableId("shop", "orders"))
