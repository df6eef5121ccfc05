"""Rows into MySQL and MariaDB by LOAD DATA LOCAL and by INSERT: both give the same values, and
neither changes one in silence. The client sends nothing but these rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.sql import tables
from cdcsync_spark.sinks.sql.dialects import mysql_session
from cdcsync_spark.sinks.sql.dialects.dialect import SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.conftest import served
from contract.sinkcase import Row, content, make_table, rows_of, whole_snapshot

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served("mariadb", seldom=False), served("mysql", seldom=True)], indirect=True
)
TABLE = make_table(
    {
        "id": "int(11)",
        "word": "varchar(200)",
        "text": "longtext",
        "raw": "varbinary(300)",
        "flag": "bit(1)",
        "small": "tinyint(4)",
        "wide": "bigint(20) unsigned",
        "amount": "decimal(38,10)",
        "single": "float",
        "double": "double",
        "day": "date",
        "at": "datetime(6)",
        "moment": "timestamp(6)",
    },
    ["id"],
)
ROWS: list[Row] = [
    (1, *[None] * 12),
    (2, "", "", b"", False, 0, 0, Decimal("0.0000000000"), 0.0, 0.0, date(1, 1, 1), datetime(1, 1, 1), None),
    (
        3,
        "\\N",
        "\\",
        bytes(range(256)),
        True,
        -128,
        2**64 - 1,
        Decimal("-9999999999999999999999999999.9999999999"),
        -1.17549435e-38,
        -1.7976931348623157e308,
        date(9999, 12, 31),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
    ),
    (
        4,
        "tab\t line\n return\r nul\0 quote' \" back\\ end\x1a \\t\\n\\0 , ; % %s @a",
        "\t\n",
        b"\\N\t\n\0",
        True,
        127,
        1,
        Decimal("0.0000000001"),
        0.125,
        5e-324,
        date(2024, 2, 29),
        datetime(2024, 2, 29, 0, 0, 0, 1),
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    ),
    (5, "blank  ", "é ü 😀 \u2028 \ufeff" * 40_000, b" ", False, 1, 2, Decimal(1), 1.5, math.pi, None, None, None),
]


@contextmanager
def local_infile(session: SqlSession, value: str) -> Iterator[None]:
    """Sets the server's variable for sessions to come and for statements."""
    ((before,),) = session.fetch((int,), "SELECT @@global.local_infile")
    session.run(f"SET GLOBAL local_infile = {value}")
    try:
        yield
    finally:
        session.run(f"SET GLOBAL local_infile = {before}")


def without_key(sink: SqlSink, session: SqlSession, name: str) -> str:
    """A new table of staged rows; its quoted name."""
    dialect, table = sink.dialect, SqlName(sink.dialect.state_schema, name)
    dialect.create_schema(session, table.schema)
    tables.create_unkeyed(dialect, session, table, TABLE, TargetSchema.of(TABLE))
    return table_name(dialect, table)


def test_both_ways_give_the_rows_as_they_are(sink: SqlSink, store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way is chosen by the server's `local_infile`, also where it is set while a session is
    open."""
    counted = list[int]()
    load_text = mysql_session.load_text

    def counting(rows: pa.Table) -> bytes:
        counted.append(rows.num_rows)
        return load_text(rows)

    monkeypatch.setattr(mysql_session, "load_text", counting)
    rows = rows_of(TABLE, ROWS)
    admin = sink.dialect.open()
    with local_infile(admin, "ON"):
        session: Any = sink.dialect.open()
        loaded = without_key(sink, session, "loaded")
        session.load(loaded, rows)
        assert sum(counted) == len(ROWS)
        admin.run("SET GLOBAL local_infile = OFF")
        inserted = without_key(sink, session, "inserted")
        session.load(inserted, rows)
        session.load(inserted, rows)
        assert sum(counted) == len(ROWS)
        columns = ", ".join(f"HEX({sink.dialect.quoted(name)})" for name in rows.schema.names)
        kinds = [str | None] * rows.num_columns
        by_load, by_insert = (
            session.fetch(kinds, f"SELECT {columns} FROM {name} ORDER BY id") for name in (loaded, inserted)
        )
        assert [row for row in by_load for _ in range(2)] == by_insert
        session.run(f"TRUNCATE {loaded}")
        admin.run("SET GLOBAL local_infile = ON")
        target = sink.target(TABLE.id)
        whole_snapshot(target, ROWS, TABLE)
    assert content(target) == content_of(rows)
    for one in (session, admin):
        one.close()


def content_of(rows: pa.Table) -> list[Row]:
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=repr)


def test_a_value_that_the_column_cannot_hold_is_refused_by_both_ways(sink: SqlSink, store: object) -> None:
    """The server itself cuts it and goes on with LOCAL, also where it keeps no warnings."""
    admin = sink.dialect.open()
    values: list[tuple[str, pa.Array]] = [
        ("VARCHAR(2) CHARACTER SET utf8mb4", pa.array(["ab", "abc"])),
        ("VARCHAR(9) CHARACTER SET latin1", pa.array(["ab", "😀"])),
        ("VARBINARY(2)", pa.array([b"ab", b"abc"])),
        ("TINYINT", pa.array([1, 300], pa.int32())),
        ("INT NOT NULL", pa.array([1, None], pa.int32())),
        ("DATE", pa.array(["2024-01-01", "2024-02-30"])),
    ]
    with local_infile(admin, "ON"):
        session: Any = sink.dialect.open()
        sink.dialect.create_schema(session, sink.dialect.state_schema)
        for counted in ("DEFAULT", "0"):
            session.run(f"SET SESSION max_error_count = {counted}")
            for number, (kind, column) in enumerate(values):
                table = f"{sink.dialect.quoted(sink.dialect.state_schema)}.t{counted}{number}"
                session.run(f"CREATE TABLE {table} (a {kind})")
                for loads in (1, 0):
                    session._loads = loads
                    with pytest.raises(CdcError) as refused:
                        session.load(table, pa.table({"a": column}))
                    assert refused.value.reason is Reason.SINK_CONFLICT, (kind, loads, refused.value)
                    assert "abc" not in str(refused.value)
    for one in (session, admin):
        one.close()


def test_a_row_beyond_a_packet_is_loaded(sink: SqlSink, store: object) -> None:
    """An INSERT that long breaks the connection, so it is refused before."""
    admin = sink.dialect.open()
    long = pa.table({"id": [1], "text": ["x" * 3_000_000], "raw": [b"y" * 3_000_000]})
    with local_infile(admin, "ON"):
        session: Any = sink.dialect.open()
        session._most_bytes = 2**20
        sink.dialect.create_schema(session, sink.dialect.state_schema)
        table = f"{sink.dialect.quoted(sink.dialect.state_schema)}.t"
        session.run(f"CREATE TABLE {table} (id INT, text LONGTEXT CHARACTER SET utf8mb4, raw LONGBLOB)")
        session.load(table, long)
        session._loads = 0
        with pytest.raises(CdcError, match="max_allowed_packet") as refused:
            session.load(table, long)
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert session.fetch((int, int), f"SELECT LENGTH(text), LENGTH(raw) FROM {table}") == [(3_000_000, 3_000_000)]
    for one in (session, admin):
        one.close()
