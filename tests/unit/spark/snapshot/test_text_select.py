"""The text protocol to Arrow: for every type, what the server prints is the value that the target
gets.

Cells are what MySQL 9.7 and MariaDB 10.11 send; the expected values are those of the type table
(docs, "Types").
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.snapshot.splits.text_select import decode, select_expression, select_list

ID = Column("id", SourceType.parse("int"), False)


def a_table(declared: str, charset: str = "", key: tuple[str, ...] = ("id",)) -> Capture:
    return Capture(SourceTable(TableId("shop", "t"), (ID, Column("c", SourceType.parse(declared, charset)))), key)


def column(declared: str, cells: list[bytes | None]) -> tuple[pa.Array, int]:
    rows = [(b"%d" % i, cell) for i, cell in enumerate(cells)]
    found = decode(a_table(declared, "utf8mb4"), rows)
    assert found.batch.column("id").to_pylist() == list(range(len(cells)))
    return found.batch.column("c"), found.nulled


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


CASES: list[tuple[str, list[tuple[bytes, Any]]]] = [
    ("tinyint", [(b"-128", -128), (b"127", 127)]),
    # TINYINT(1) is a number: it can hold 2
    ("tinyint(1)", [(b"0", 0), (b"2", 2), (b"-1", -1)]),
    ("tinyint unsigned", [(b"255", 255)]),
    ("smallint unsigned", [(b"65535", 65535)]),
    ("mediumint", [(b"-8388608", -8388608)]),
    ("mediumint unsigned", [(b"16777215", 16777215)]),
    ("int", [(b"-2147483648", -(2**31)), (b"2147483647", 2**31 - 1)]),
    ("int unsigned", [(b"4294967295", 2**32 - 1)]),
    ("int(10) unsigned zerofill", [(b"0000000042", 42), (b"0000000000", 0)]),
    ("bigint", [(b"-9223372036854775808", -(2**63)), (b"9223372036854775807", 2**63 - 1)]),
    ("bigint unsigned", [(b"0", Decimal(0)), (b"18446744073709551615", Decimal(2**64 - 1))]),
    ("bigint(20) unsigned zerofill", [(b"00000000000000000042", Decimal(42))]),
    (
        "decimal(10,2)",
        [(b"-12345678.90", Decimal("-12345678.90")), (b"0.00", Decimal("0.00")), (b"-0.01", Decimal("-0.01"))],
    ),
    ("decimal(38,30)", [(b"-12345678." + b"9" * 30, Decimal("-12345678." + "9" * 30))]),
    ("decimal(38,0)", [(b"9" * 38, Decimal("9" * 38))]),
    ("decimal(10,2) zerofill", [(b"00000042.50", Decimal("42.50"))]),
    ("decimal(65,30)", [(b"-" + b"9" * 35 + b"." + b"9" * 30, "-" + "9" * 35 + "." + "9" * 30)]),
    # FLOAT comes as CAST(c AS DOUBLE): the double that equals it
    (
        "float",
        [
            (b"0.10000000149011612", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
            (b"16777216", 16777216.0),
            (b"-0", -0.0),
        ],
    ),
    ("float", [(b"3.4028234663852886e38", 3.4028234663852886e38), (b"1.401298464324817e-45", 1.401298464324817e-45)]),
    (
        "double",
        [
            (b"0.1", 0.1),
            (b"1.7976931348623157e308", 1.7976931348623157e308),
            (b"5e-324", 5e-324),
            (b"-1.5e-7", -1.5e-7),
        ],
    ),
    ("bit(1)", [(b"\x00", False), (b"\x01", True)]),
    ("bit(9)", [(b"\x01\xff", b"\x01\xff")]),
    ("bit(64)", [(b"\x00" * 8, b"\x00" * 8), (b"\xff" * 8, b"\xff" * 8)]),
    ("date", [(b"1970-01-01", date(1970, 1, 1)), (b"0001-01-01", date(1, 1, 1)), (b"9999-12-31", date(9999, 12, 31))]),
    # the proleptic calendar, no Julian shift; leap days
    (
        "date",
        [(b"1582-10-10", date(1582, 10, 10)), (b"2024-02-29", date(2024, 2, 29)), (b"1900-02-28", date(1900, 2, 28))],
    ),
    (
        "datetime",
        [(b"1000-01-01 00:00:00", datetime(1000, 1, 1)), (b"9999-12-31 23:59:59", datetime(9999, 12, 31, 23, 59, 59))],
    ),
    ("datetime(1)", [(b"2024-01-01 00:00:00.1", datetime(2024, 1, 1, microsecond=100_000))]),
    (
        "datetime(6)",
        [
            (b"0001-01-01 00:00:00.000001", datetime(1, 1, 1, microsecond=1)),
            (b"9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999_999)),
        ],
    ),
    (
        "timestamp",
        [
            (b"1970-01-01 00:00:01", instant("1970-01-01T00:00:01")),
            (b"2038-01-19 03:14:07", instant("2038-01-19T03:14:07")),
        ],
    ),
    ("timestamp(3)", [(b"2024-03-31 02:30:00.123", instant("2024-03-31T02:30:00.123"))]),
    ("time", [(b"00:00:00", "00:00:00"), (b"-838:59:59", "-838:59:59"), (b"838:59:59", "838:59:59")]),
    ("time(6)", [(b"-00:00:00.000001", "-00:00:00.000001"), (b"-101:02:03.456789", "-101:02:03.456789")]),
    ("year", [(b"0000", 0), (b"1901", 1901), (b"2155", 2155)]),
    ("char(5)", [(b"", ""), (b"a b", "a b"), ("ä€😀".encode(), "ä€😀")]),
    (
        "varchar(20)",
        [(b"trailing  ", "trailing  "), (b"NULL", "NULL"), (b"\x00\x01", "\x00\x01"), ("a\u0308".encode(), "a\u0308")],
    ),
    ("longtext", [(b"x" * 100_000, "x" * 100_000)]),
    ("binary(4)", [(b"\x00\x00\x00\x00", b"\x00\x00\x00\x00"), (b"ab\x00\x00", b"ab\x00\x00")]),
    ("varbinary(4)", [(b"", b""), (b"\xff\xfe", b"\xff\xfe")]),
    ("longblob", [(bytes(range(256)), bytes(range(256)))]),
    ("enum('a','')", [(b"a", "a"), (b"", "")]),
    ("set('a','b')", [(b"a,b", "a,b"), (b"", "")]),
    # SQL NULL and JSON null are two things
    ("json", [(b"null", "null"), (b'{"a": 1.1, "b": [1, 2]}', '{"a": 1.1, "b": [1, 2]}')]),
    (
        "point",
        [
            (
                b"\xe6\x10\x00\x00\x01\x01\x00\x00\x00" + b"\x00" * 16,
                b"\xe6\x10\x00\x00\x01\x01\x00\x00\x00" + b"\x00" * 16,
            )
        ],
    ),
    (
        "vector(3)",
        [
            (struct.pack("<3f", 1.5, -0.25, 3e38), [1.5, -0.25, struct.unpack("<f", struct.pack("<f", 3e38))[0]]),
            (b"", []),
        ],
    ),
    ("uuid", [(b"123e4567-e89b-12d3-a456-426655440000", "123e4567-e89b-12d3-a456-426655440000")]),
    ("inet6", [(b"2001:db8::ff00:42:8329", "2001:db8::ff00:42:8329")]),
]


@pytest.mark.parametrize(("declared", "cells"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_every_printed_value_is_the_value(declared: str, cells: list[tuple[bytes, Any]]) -> None:
    """A NULL among them stays a NULL."""
    found, nulled = column(declared, [*(cell for cell, _ in cells), None])
    assert found.to_pylist() == [*(value for _, value in cells), None]
    assert [repr(v) for v in found.to_pylist()[:-1] if isinstance(v, float)] == [
        repr(v) for _, v in cells if isinstance(v, float)
    ]
    assert nulled == 0


@pytest.mark.parametrize("declared", sorted({c[0] for c in CASES}))
def test_a_column_of_nulls_has_its_type(declared: str) -> None:
    table = a_table(declared, "utf8mb4")
    found = decode(table, [(b"1", None), (b"234", None)])
    assert found.size == 4
    assert found.batch.schema == captured_schema(table)
    assert found.batch.column("c").null_count == 2
    assert found.nulled == 0


NO_DATES = [b"0000-00-00", b"2024-00-00", b"2024-00-10", b"2024-01-00", b"0000-01-01", b"2024-02-30", b"2023-02-29"]


@pytest.mark.parametrize("zero", NO_DATES)
@pytest.mark.parametrize(
    ("declared", "clock"), [("date", b""), ("datetime", b" 12:00:00"), ("datetime(3)", b" 12:00:00.123")]
)
def test_what_is_no_date_of_the_calendar_becomes_null_and_is_counted(declared: str, clock: bytes, zero: bytes) -> None:
    """Zero and partial dates, and those that ALLOW_INVALID_DATES lets in; the values beside them
    are kept."""
    found, nulled = column(declared, [b"2024-01-01" + clock, zero + clock, None, b"9999-12-31" + clock])
    assert [value is None for value in found.to_pylist()] == [False, True, True, False]
    assert nulled == 1


def test_a_zero_timestamp_becomes_null_and_is_counted() -> None:
    found, nulled = column("timestamp(6)", [b"0000-00-00 00:00:00.000000", b"1970-01-01 00:00:00.000001"])
    assert found.to_pylist() == [None, instant("1970-01-01T00:00:00.000001")]
    assert nulled == 1


@pytest.mark.parametrize("declared", ["date", "datetime", "timestamp"])
def test_a_zero_date_in_a_key_stops_the_table(declared: str) -> None:
    """Rule R3: as NULL it would match no row of the target, and two such keys would be one."""
    clock = b"" if declared == "date" else b" 00:00:00"
    table = a_table(declared, key=("id", "c"))
    assert decode(table, [(b"1", b"2024-01-01" + clock)]).nulled == 0
    with pytest.raises(DecodeError, match="key") as caught:
        decode(table, [(b"1", b"0000-00-00" + clock)])
    assert (caught.value.table, caught.value.column) == ("shop.t", "c")


@pytest.mark.parametrize(
    ("declared", "cell"),
    [
        ("tinyint", b"128"),
        ("tinyint unsigned", b"-1x"),
        ("int", b"1.5"),
        ("int", b""),
        ("bigint unsigned", b"1e3x"),
        ("decimal(10,2)", b"1.555"),
        ("decimal(10,2)", b"123456789.00"),
        ("double", b"1,5"),
        ("date", b"20240101"),
        ("datetime", b"2024-01-01 25:00:00"),
        ("datetime", b"2024-01-01 00:00:00+01:00"),
        ("datetime(6)", b"2024-01-01 00:00:00.1234567"),
        ("year", b"99999"),
        ("varchar(10)", b"\xff\xfe"),
        ("json", b"\xc3("),
        ("vector(2)", b"\x00\x00\x00"),
    ],
)
def test_what_cannot_be_held_exactly_stops_the_table(declared: str, cell: bytes) -> None:
    """A wrong value is worse than a stop; the error names table and column."""
    with pytest.raises(DecodeError) as caught:
        column(declared, [cell])
    assert (caught.value.table, caught.value.column) == ("shop.t", "c")


def test_a_row_with_too_few_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        decode(a_table("int"), [(b"1", b"2"), (b"1",)])


def test_floats_are_asked_for_as_doubles() -> None:
    """The server prints a FLOAT with six digits: 16777216 becomes 16777200; DOUBLE(10,2) with two
    decimals."""
    for declared in ("float", "float(7,4)", "double", "double(10,2)"):
        assert select_expression(Column("a`b", SourceType.parse(declared))) == "CAST(`a``b` AS DOUBLE)"
    for declared in ("int", "decimal(10,2)", "datetime(6)", "bit(8)"):
        assert select_expression(Column("c", SourceType.parse(declared))) == "`c`"


def test_every_captured_column_is_asked_for_by_name() -> None:
    """`*` leaves invisible columns out."""
    table = Capture(
        SourceTable(
            TableId("shop", "t"),
            (ID, Column("secret", SourceType.parse("blob")), Column("f", SourceType.parse("float"))),
        ),
        ("id",),
        frozenset({"secret"}),
    )
    assert select_list(table) == "`id`, CAST(`f` AS DOUBLE)"


def test_texts_that_the_server_converts_come_as_they_are_stored_too() -> None:
    texts = [
        ("a", "varchar(9)", "cp1251"),
        ("b", "text", "utf8mb3"),
        ("c", "longtext", "gbk"),
        ("d", "text", "utf8mb4"),
    ]
    columns = tuple(Column(n, SourceType.parse(declared, charset)) for n, declared, charset in texts)
    table = Capture(SourceTable(TableId("shop", "t"), (ID, *columns)), ("id",))
    assert select_list(table) == (
        "`id`, `a`, CONVERT(`b` USING binary), CONVERT(`c` USING binary), `d`, CONVERT(`a` USING binary)"
    )
    rows = [(b"1", "я?".encode(), "é".encode(), b"\xc4\xe3", "😀".encode(), b"\xff?"), (b"2", *[None] * 5)]
    found = decode(table, rows).batch.to_pylist()
    assert found == [
        {"id": 1, "a": "я?", "b": "é", "c": "你", "d": "😀"},
        {"id": 2} | dict.fromkeys("abcd"),
    ]


def test_a_text_that_the_server_reads_in_another_way_stops_the_table() -> None:
    with pytest.raises(DecodeError, match="differently") as caught:
        decode(a_table("varchar(9)", "cp1251"), [(b"7", "ю".encode(), b"\xff")])
    assert (caught.value.column, caught.value.key) == ("c", "id=7")
