"""Values of a binary result: declared type, type code, bytes on the wire, and the value that SELECT
prints; comments derive the bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError, DecodeError, PermanentError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.wire.columns.gather import PAD
from cdcsync_spark.wire.resultset import binary_row
from cdcsync_spark.wire.resultset.binary_row import DecodedResult, RowDecoder
from cdcsync_spark.wire.resultset.packets import Payloads
from cdcsync_spark.wire.resultset.response import Definition
from support.results import UNSIGNED, receive, response, row, string
from support.results import definition as wire_definition

ID = Column("id", SourceType.parse("int"), False)
TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
)
BIT, VECTOR, JSON, NEWDECIMAL, BLOB, VAR_STRING, STRING, GEOMETRY = 16, 242, 245, 246, 252, 253, 254, 255


def a_table(declared: str, charset: str = "utf8mb4", key: tuple[str, ...] = ("id",)) -> Capture:
    return Capture(SourceTable(TableId("shop", "t"), (ID, Column("c", SourceType.parse(declared, charset)))), key)


def decoder(table: Capture, code: int) -> RowDecoder:
    flags = UNSIGNED if table.captured[1].type.unsigned else 0
    return RowDecoder(table, [Definition("id", LONG, 0, 63), Definition("c", code, flags, 45)])


def payloads(rows: Sequence[bytes]) -> Payloads:
    ends = np.cumsum([len(r) for r in rows], dtype=np.int64)
    data = np.frombuffer(b"".join(rows) + b"\xee" * PAD, np.uint8)
    return Payloads(data, ends - [len(r) for r in rows], ends)


def decode(table: Capture, code: int, cells: Sequence[bytes | None]) -> DecodedResult:
    rows = [row([struct.pack("<i", i), cell]) for i, cell in enumerate(cells)]
    (found,) = decoder(table, code).decode(payloads(rows))
    found.batch.validate(full=True)
    assert found.batch.schema == captured_schema(table)
    assert found.batch.column("id").to_pylist() == list(range(len(cells)))
    return found


def ymd(year: int, month: int, day: int) -> bytes:
    return struct.pack("<HBB", year, month, day)


CASES: list[tuple[str, int, list[tuple[bytes, Any]]]] = [
    ("tinyint", TINY, [(b"\x80", -128), (b"\x7f", 127)]),
    ("tinyint(1)", TINY, [(b"\2", 2), (b"\xff", -1)]),
    ("tinyint unsigned", TINY, [(b"\xff", 255), (b"\0", 0)]),
    ("smallint", SHORT, [(b"\0\x80", -32768)]),
    ("smallint unsigned", SHORT, [(b"\xff\xff", 65535)]),
    # four bytes on the wire
    ("mediumint", INT24, [(b"\0\0\x80\xff", -8388608), (b"\xff\xff\x7f\0", 8388607)]),
    ("mediumint unsigned", INT24, [(b"\xff\xff\xff\0", 16777215)]),
    ("int", LONG, [(b"\0\0\0\x80", -(2**31)), (b"\xff\xff\xff\x7f", 2**31 - 1)]),
    ("int(10) unsigned zerofill", LONG, [(b"\xff\xff\xff\xff", 2**32 - 1)]),
    ("bigint", LONGLONG, [(b"\0" * 7 + b"\x80", -(2**63)), (b"\xff" * 8, -1)]),
    ("bigint unsigned", LONGLONG, [(b"\xff" * 8, Decimal(2**64 - 1)), (b"\0" * 7 + b"\x80", Decimal(2**63))]),
    ("year", YEAR, [(b"\0\0", 0), (b"\x6b\x08", 2155)]),
    # 2^24: exponent 127 + 24 = 0x97, mantissa 0; the text protocol prints 16777200
    ("float", FLOAT, [(b"\0\0\x80\x4b", 16777216.0), (b"\0\0\0\x80", -0.0)]),
    ("double", DOUBLE, [(struct.pack("<d", 5e-324), 5e-324), (struct.pack("<d", -0.0), -0.0)]),
    ("decimal(10,2)", NEWDECIMAL, [(string(b"-12345678.90"), Decimal("-12345678.90")), (string(b"-0.01"), Decimal("-0.01"))]),
    ("decimal(10,2)", NEWDECIMAL, [(string(b"0.00"), Decimal("0.00")), (string(b"00000042.50"), Decimal("42.50"))]),
    ("decimal(10,0)", NEWDECIMAL, [(string(b"-9999999999"), Decimal(-9999999999)), (string(b"0"), Decimal(0))]),
    ("decimal(5,5)", NEWDECIMAL, [(string(b"-0.00001"), Decimal("-0.00001")), (string(b"0.99999"), Decimal("0.99999"))]),
    ("decimal(18,9)", NEWDECIMAL, [(string(b"-" + b"9" * 9 + b"." + b"9" * 9), Decimal("-" + "9" * 9 + "." + "9" * 9))]),
    ("decimal(38,0)", NEWDECIMAL, [(string(b"-" + b"9" * 38), Decimal("-" + "9" * 38)), (string(b"1"), Decimal(1))]),
    ("decimal(38,30)", NEWDECIMAL, [(string(b"-12345678." + b"9" * 30), Decimal("-12345678." + "9" * 30))]),
    ("decimal(65,30)", NEWDECIMAL, [(string(b"-0." + b"0" * 29 + b"1"), "-0." + "0" * 29 + "1")]),
    ("bit(1)", BIT, [(string(b"\1"), True), (string(b"\0"), False)]),
    ("bit(9)", BIT, [(string(b"\1\xff"), b"\1\xff")]),
    ("bit(64)", BIT, [(string(b"\xff" * 8), b"\xff" * 8), (string(bytes(8)), bytes(8))]),
    # a date is 4 bytes, 0x07e8 = 2024
    ("date", DATE, [(b"\4\xe8\7\2\x1d", date(2024, 2, 29)), (b"\4\1\0\1\1", date(1, 1, 1)), (b"\4\x0f\x27\x0c\x1f", date(9999, 12, 31))]),
    ("date", DATE, [(b"\4" + ymd(1582, 10, 10), date(1582, 10, 10)), (b"\4" + ymd(1970, 1, 1), date(1970, 1, 1))]),
    # midnight has 4 bytes, a whole second 7, a fraction 11: 0x0001e240 = 123456
    ("datetime", DATETIME, [(b"\4\xe8\7\2\x1d", datetime(2024, 2, 29))]),
    ("datetime", DATETIME, [(b"\7\xe8\7\2\x1d\x17\x3b\x3b", datetime(2024, 2, 29, 23, 59, 59))]),
    ("datetime(6)", DATETIME, [(b"\x0b\1\0\1\1\0\0\1\x40\xe2\1\0", datetime(1, 1, 1, 0, 0, 1, 123456))]),
    ("datetime(1)", DATETIME, [(b"\x0b" + ymd(9999, 12, 31) + b"\x17\x3b\x3b\xa0\xbb\x0d\0", datetime(9999, 12, 31, 23, 59, 59, 900_000))]),
    ("timestamp", TIMESTAMP, [(b"\7" + ymd(1970, 1, 1) + b"\0\0\1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))]),
    # zero has no bytes; sign, days, hour, minute, second: 838 hours are 34 days and 22 hours
    ("time", TIME, [(b"\0", "00:00:00"), (b"\x08\1\x22\0\0\0\x16\x3b\x3b", "-838:59:59"), (b"\x08\0\0\0\0\0\1\2\3", "01:02:03")]),
    ("time(6)", TIME, [(b"\0", "00:00:00.000000"), (b"\x08\1\0\0\0\0\1\0\0", "-01:00:00.000000")]),
    ("time(6)", TIME, [(b"\x0c\1\4\0\0\0\5\2\3\x55\xf8\6\0", "-101:02:03.456789"), (b"\x0c\1\0\0\0\0\0\0\0\1\0\0\0", "-00:00:00.000001")]),
    ("time(2)", TIME, [(b"\x0c\0\0\0\0\0\0\0\0" + struct.pack("<I", 990_000), "00:00:00.99"), (b"\x08\0\1\0\0\0\4\0\0", "28:00:00.00")]),
    ("char(5)", STRING, [(string(b""), ""), (string("ä€😀".encode()), "ä€😀"), (string(b"NULL"), "NULL")]),
    ("varchar(20)", VAR_STRING, [(string(b"trailing  "), "trailing  "), (string(b"\0\1"), "\0\1")]),
    # lengths of 1, 3 and 4 bytes
    ("longtext", BLOB, [(string(b"x" * n), "x" * n) for n in (250, 251, 252, 65_535, 65_536, 70_000)]),
    ("longtext", BLOB, [(b"\xfe" + (3).to_bytes(8, "little") + b"abc", "abc"), (string("ü".encode() * 130), "ü" * 130)]),
    ("binary(4)", STRING, [(string(b"ab\0\0"), b"ab\0\0")]),
    ("varbinary(4)", VAR_STRING, [(string(b""), b""), (string(b"\xff\xfe"), b"\xff\xfe")]),
    ("longblob", BLOB, [(string(bytes(range(256))), bytes(range(256)))]),
    ("enum('a','')", STRING, [(string(b"a"), "a"), (string(b""), "")]),
    ("set('a','b')", STRING, [(string(b"a,b"), "a,b"), (string(b""), "")]),
    ("json", JSON, [(string(b"null"), "null"), (string(b'{"a": 1.1}'), '{"a": 1.1}')]),
    ("point", GEOMETRY, [(string(b"\xe6\x10\0\0\1\1\0\0\0" + bytes(16)), b"\xe6\x10\0\0\1\1\0\0\0" + bytes(16))]),
    ("vector(3)", VECTOR, [(string(struct.pack("<3f", 1.5, -0.25, 2.0)), [1.5, -0.25, 2.0]), (string(b""), [])]),
    ("uuid", STRING, [(string(b"123e4567-e89b-12d3-a456-426655440000"), "123e4567-e89b-12d3-a456-426655440000")]),
    ("inet6", STRING, [(string(b"::ffff:1.2.3.4"), "::ffff:1.2.3.4")]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "code", "cells"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_every_value_is_the_printed_one(declared: str, code: int, cells: list[tuple[bytes, Any]]) -> None:
    """Decodes them without a NULL, between NULLs, and each alone."""
    table, wire, wanted = a_table(declared), [c for c, _ in cells], [v for _, v in cells]
    for mixed, expected in ((wire, wanted), ([None, *wire, None], [None, *wanted, None])):
        found = decode(table, code, mixed)
        read = found.batch.column("c").to_pylist()
        assert read == expected
        # -0.0 is not 0.0, 1.50 not 1.5
        assert [str(v) for v in read] == [str(v) for v in expected]
        assert found.nulled == 0
    assert [decode(table, code, [c]).batch.column("c").to_pylist() for c in wire] == [[v] for v in wanted]
    nulls = decode(table, code, [None] * len(wire))
    assert decode(table, code, wire).size - nulls.size == sum(map(len, wire)), "the bytes of the rows"


@pytest.mark.parametrize("declared", sorted({c[0] for c in CASES}))
def test_a_column_of_nulls_has_its_type(declared: str) -> None:
    code = next(c[1] for c in CASES if c[0] == declared)
    found = decode(a_table(declared), code, [None, None])
    assert found.batch.column("c").null_count == 2
    assert found.nulled == 0


NO_DATES = [
    b"\0",
    *(
        b"\4" + ymd(*d)
        for d in ((0, 0, 0), (2024, 0, 10), (2024, 1, 0), (0, 1, 1), (2024, 2, 30), (2023, 2, 29), (10000, 1, 1))
    ),
]


@pytest.mark.parametrize("zero", NO_DATES, ids=bytes.hex)
@pytest.mark.parametrize(("declared", "code"), [("date", DATE), ("datetime(6)", DATETIME), ("timestamp", TIMESTAMP)])
def test_what_is_no_date_of_the_calendar_becomes_null_and_is_counted(declared: str, code: int, zero: bytes) -> None:
    """Zero and partial dates, and those that ALLOW_INVALID_DATES lets in; the values beside them
    are kept."""
    good = b"\4" + ymd(2024, 1, 1)
    found = decode(a_table(declared), code, [good, zero, None, good])
    assert [v is None for v in found.batch.column("c").to_pylist()] == [False, True, True, False]
    assert found.nulled == 1


@pytest.mark.parametrize(("declared", "code"), [("date", DATE), ("datetime", DATETIME), ("timestamp", TIMESTAMP)])
def test_a_zero_date_in_a_key_stops_the_table(declared: str, code: int) -> None:
    """Rule R3: as NULL it would match no row of the target, and two such keys would be one."""
    table = a_table(declared, key=("id", "c"))
    assert decode(table, code, [b"\4" + ymd(2024, 1, 1)]).nulled == 0
    with pytest.raises(DecodeError, match="key") as caught:
        decode(table, code, [b"\0"])
    assert (caught.value.table, caught.value.column) == ("shop.t", "c")


@pytest.mark.parametrize(
    ("declared", "code", "cell"),
    [
        ("mediumint", INT24, b"\0\0\0\1"),
        ("mediumint unsigned", INT24, b"\0\0\0\1"),
        ("year", YEAR, b"\0\x80"),
        ("decimal(10,2)", NEWDECIMAL, string(b"1.555")),
        ("decimal(10,2)", NEWDECIMAL, string(b"123456789.00")),
        ("decimal(10,2)", NEWDECIMAL, string(b"1x.00")),
        ("decimal(10,2)", NEWDECIMAL, string(b"--1.00")),
        ("decimal(10,2)", NEWDECIMAL, string(b"")),
        ("decimal(10,2)", NEWDECIMAL, string(b".")),
        ("bit(1)", BIT, string(b"\0\1")),
        ("date", DATE, b"\3\0\0\0"),
        ("datetime", DATETIME, b"\7" + ymd(2024, 1, 1) + b"\x18\0\0"),
        ("datetime", DATETIME, b"\7" + ymd(2024, 1, 1) + b"\0\x3c\0"),
        ("datetime(6)", DATETIME, b"\x0b" + ymd(2024, 1, 1) + b"\0\0\0\x40\x42\x0f\0"),
        ("datetime", DATETIME, b"\5\0\0\0\0\0"),
        ("time", TIME, b"\x08\2\0\0\0\0\0\0\0"),
        ("time", TIME, b"\x08\0\x23\0\0\0\0\0\0"),
        ("time", TIME, b"\x08\0\0\0\0\0\0\x3c\0"),
        ("time", TIME, b"\x07\0\0\0\0\0\0\0"),
        ("varchar(10)", VAR_STRING, string(b"\xff\xfe")),
        ("json", JSON, string(b"\xc3(")),
        ("vector(2)", VECTOR, string(b"\0\0\0")),
    ],
)  # fmt: skip
def test_what_cannot_be_held_exactly_stops_the_table(declared: str, code: int, cell: bytes) -> None:
    """A wrong value is worse than a stop; the error names table and column."""
    with pytest.raises(DecodeError) as caught:
        decode(a_table(declared), code, [cell])
    assert (caught.value.table, caught.value.column) == ("shop.t", "c")


@pytest.mark.parametrize(
    "cell", [b"\xfb", b"\xff", b"\x05abcd", b"\x03abcd", b"\xfe" + b"\xff" * 8, b"\xfd\xff\xff\xff", b""]
)
def test_lengths_that_do_not_fit_their_row(cell: bytes) -> None:
    """0xfb (NULL in the text protocol) and 0xff begin no length; a value must end with its row. The
    error names the row."""
    for cells in ([cell], [string(b"abc"), cell, string(b"abc"), None]):
        with pytest.raises(DecodeError, match="row"):
            decode(a_table("varchar(10)"), VAR_STRING, cells)


@pytest.mark.parametrize(
    "definitions",
    [
        [Definition("id", LONG, 0, 63)],
        [Definition("id", LONG, 0, 63), Definition("c", LONGLONG, 0, 63)],
        [Definition("id", LONG, 0, 63), Definition("c", LONG, UNSIGNED, 63)],
        [Definition("id", LONG, 0, 63), Definition("d", LONG, 0, 63)],
        [Definition("c", LONG, 0, 63), Definition("id", LONG, 0, 63)],
    ],
)
def test_another_definition_than_the_planned_one_is_refused(definitions: list[Definition]) -> None:
    with pytest.raises(PermanentError) as caught:
        RowDecoder(a_table("int"), definitions)
    assert caught.value.reason is Reason.SCHEMA_CHANGE_REFUSED


def test_tables_with_many_columns() -> None:
    """500 columns: a bitmap of 63 bytes; a row of NULLs alone is as short, so pieces are bounded by
    values."""
    columns = tuple(Column(f"c{i}", SourceType.parse("int" if i % 2 else "varchar(9)", "utf8mb4")) for i in range(500))
    table = Capture(SourceTable(TableId("shop", "t"), columns), ("c0",))
    wire = [Definition(c.name, LONG if i % 2 else VAR_STRING, 0, 45) for i, c in enumerate(columns)]
    cells = [struct.pack("<i", i) if i % 2 else string(b"%d" % i) for i in range(500)]
    some = [None if i % 3 == 0 else c for i, c in enumerate(cells)]
    rows = [row(cells), row([None] * 500), row(some)] * 1000
    found = RowDecoder(table, wire).decode(payloads(rows))
    assert max(d.batch.num_rows for d in found) * 500 <= binary_row.MAX_VALUES
    read = pa.Table.from_batches([d.batch for d in found])
    full = [i if i % 2 else str(i) for i in range(500)]
    assert list(read.slice(0, 1).to_pylist()[0].values()) == full
    assert set(read.slice(2998, 1).to_pylist()[0].values()) == {None}
    assert list(read.slice(2999, 1).to_pylist()[0].values()) == [None if i % 3 == 0 else v for i, v in enumerate(full)]


def test_a_long_row_is_not_copied() -> None:
    """Rows of hundreds of MiB are there once: what is received becomes the column."""
    table, length = a_table("longblob"), 17 << 20
    rows = [row([b"\1\0\0\0", string(b"x" * length)])]
    definitions = [wire_definition("id", LONG), wire_definition("c", BLOB)]
    assert receive(response(definitions, rows), 1 << 22)[1] == rows
    data = payloads(rows)
    lasting = Payloads(data.data, data.starts, data.ends, lasting=True)
    (found,) = decoder(table, BLOB).decode(lasting)
    start = data.data.ctypes.data
    assert start < found.batch.column("c").buffers()[2].address < start + len(data.data)
    assert found.batch.column("c")[0].as_py() == b"x" * length


_TYPES = [(c[0], c[1]) for c in CASES]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(_TYPES), st.sampled_from(_TYPES), st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_garbage_is_an_error_or_a_batch(first: tuple[str, int], second: tuple[str, int], rows: list[bytes]) -> None:
    """Never another exception, never memory beyond the bytes' own."""
    columns = tuple(Column(f"c{i}", SourceType.parse(d, "utf8mb4")) for i, (d, _) in enumerate((first, second)))
    table = Capture(SourceTable(TableId("shop", "t"), columns), ("c0",))
    wire = [
        Definition(c.name, code, UNSIGNED if c.type.unsigned else 0, 45)
        for c, (_, code) in zip(columns, (first, second), strict=True)
    ]
    error: CdcError | None = None
    try:
        for found in RowDecoder(table, wire).decode(payloads([b"\0" + r for r in rows])):
            found.batch.validate(full=True)
    except CdcError as e:
        error = e
    if error:
        assert isinstance(error, DecodeError)
        assert error.table == "shop.t"
        assert error.column or error.position
