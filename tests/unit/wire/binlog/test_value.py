"""A column's type, its metadata in TABLE_MAP, its bytes in a row image, and the value that SELECT
gives; comments derive the bytes."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.source_table import Column, SourceType, TableId
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.columns import convert as convert_cells
from cdcsync_spark.wire.binlog.facts import MappedColumn, TableMap
from cdcsync_spark.wire.binlog.images.image import layout
from cdcsync_spark.wire.binlog.images.lockstep import columns, rows
from cdcsync_spark.wire.binlog.value import ConvertedValues, convert
from cdcsync_spark.wire.columns.gather import Lanes
from support.images import image

UTF8, LATIN1, UCS2, BINARY = 45, 8, 35, 63

# declared type, code, metadata, bytes, expected
NUMBERS: list[tuple[str, int, int, bytes, Any]] = [
    ("tinyint(4)", types.TINY, 0, b"\x80", -128),
    ("tinyint unsigned", types.TINY, 0, b"\xff", 255),
    ("tinyint(1)", types.TINY, 0, b"\x02", 2),
    ("smallint", types.SHORT, 0, b"\x00\x80", -32768),
    ("smallint unsigned", types.SHORT, 0, b"\xff\xff", 65535),
    ("mediumint", types.INT24, 0, b"\x00\x00\x80", -8388608),
    ("mediumint unsigned", types.INT24, 0, b"\xff\xff\xff", 16777215),
    ("int", types.LONG, 0, b"\xff\xff\xff\xff", -1),
    ("int(10) unsigned zerofill", types.LONG, 0, b"\xff\xff\xff\xff", 4294967295),
    ("bigint", types.LONGLONG, 0, b"\x00" * 7 + b"\x80", -(2**63)),
    ("bigint unsigned", types.LONGLONG, 0, b"\xff" * 8, Decimal(2**64 - 1)),
    ("float", types.FLOAT, 4, b"\x00\x00\x80\x4b", 16777216.0),  # 2^24: exponent 127 + 24 = 0x97, mantissa 0
    ("double", types.DOUBLE, 8, struct.pack("<d", 5e-324), 5e-324),
    ("year(4)", types.YEAR, 0, b"\x00", 0),
    ("year(4)", types.YEAR, 0, b"\x01", 1901),
    ("year(4)", types.YEAR, 0, b"\xff", 2155),
    ("bit(1)", types.BIT, 1, b"\x01", True),
    ("bit(1)", types.BIT, 1, b"\x00", False),
    ("bit(10)", types.BIT, 10, b"\x02\x01", b"\x02\x01"),
    # 1234567890.1234 of DECIMAL(14,4): 1 | 234567890 | 1234 in 1, 4 and 2 bytes, first bit inverted
    # (manual, decimal.cc)
    ("decimal(14,4)", types.DECIMAL, 14 | 4 << 8, b"\x81\x0d\xfb\x38\xd2\x04\xd2", Decimal("1234567890.1234")),
    ("decimal(14,4)", types.DECIMAL, 14 | 4 << 8, b"\x7e\xf2\x04\xc7\x2d\xfb\x2d", Decimal("-1234567890.1234")),
    ("decimal(5,5)", types.DECIMAL, 5 | 5 << 8, b"\x80\x00\x01", Decimal("0.00001")),
    ("decimal(10,0)", types.DECIMAL, 10, b"\x80\x00\x00\x00\x00", Decimal(0)),
    ("decimal(10,2)", types.DECIMAL, 10 | 2 << 8, b"\x7f\xff\xff\xff\xff", Decimal("0.00")),  # a negative zero
    # 40 digits before the point: 4 | 9 | 9 | 9 | 9 in 2 and 4 times 4 bytes
    ("decimal(40,0)", types.DECIMAL, 40, b"\x80\x00" + bytes(12) + b"\x00\x00\x00\x07", "7"),
    ("decimal(40,1)", types.DECIMAL, 40 | 1 << 8, b"\x7f\xff" + b"\xff" * 16 + b"\xfe", "-0.1"),
    # wider than a decimal of the target: the server's text, which ZEROFILL pads to 40 and to 39 + 1
    # digits
    ("decimal(40,0) unsigned zerofill", types.DECIMAL, 40, b"\x80\x00" + bytes(15) + b"\x07", "7".zfill(40)),
    ("decimal(40,1) unsigned zerofill", types.DECIMAL, 40 | 1 << 8, b"\x80" + bytes(17) + b"\x01", "0" * 39 + ".1"),
]

DATE_2024_02_29 = 2024 << 9 | 2 << 5 | 29


def _datetime(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, fraction: bytes = b""
) -> bytes:
    """A one, year * 13 + month in 17 bits, 5 of day, 5, 6, 6 of the time, big endian."""
    number = 1 << 39 | (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
    return number.to_bytes(5, "big") + fraction


TIMES: list[tuple[str, int, int, bytes, Any]] = [
    ("date", types.DATE, 0, DATE_2024_02_29.to_bytes(3, "little"), date(2024, 2, 29)),
    ("date", types.DATE, 0, (1 << 9 | 1 << 5 | 1).to_bytes(3, "little"), date(1, 1, 1)),
    ("date", types.DATE, 0, b"\0\0\0", None),
    ("date", types.DATE, 0, (2023 << 9 | 2 << 5 | 29).to_bytes(3, "little"), None),
    ("date", types.DATE, 0, (2024 << 9 | 10).to_bytes(3, "little"), None),
    ("date", types.DATE, 0, (0 << 9 | 1 << 5 | 1).to_bytes(3, "little"), None),
    ("datetime", types.DATETIME2, 0, _datetime(9999, 12, 31, 23, 59, 59), datetime(9999, 12, 31, 23, 59, 59)),
    # one digit of fraction is stored as hundredths, five as microseconds
    (
        "datetime(1)",
        types.DATETIME2,
        1,
        _datetime(1582, 10, 10, fraction=b"\x0a"),
        datetime(1582, 10, 10, 0, 0, 0, 100_000),
    ),
    (
        "datetime(6)",
        types.DATETIME2,
        6,
        _datetime(1, 1, 1, fraction=b"\x0f\x42\x3f"),
        datetime(1, 1, 1, 0, 0, 0, 999_999),
    ),
    ("datetime", types.DATETIME2, 0, _datetime(0, 0, 0), None),
    ("datetime", types.DATETIME2, 0, _datetime(2024, 2, 31), None),
    ("datetime", types.DATETIME, 0, (20240229235958).to_bytes(8, "little"), datetime(2024, 2, 29, 23, 59, 58)),
    ("timestamp", types.TIMESTAMP2, 0, b"\0\0\0\1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (
        "timestamp(3)",
        types.TIMESTAMP2,
        3,
        b"\x7f\xff\xff\xff\x26\xac",
        datetime(2038, 1, 19, 3, 14, 7, 990_000, tzinfo=UTC),
    ),
    ("timestamp", types.TIMESTAMP2, 0, b"\0\0\0\0", None),
    ("timestamp(6)", types.TIMESTAMP2, 6, b"\0\0\0\0\0\0\0", None),
    # MariaDB from 11.5 on: unsigned
    ("timestamp", types.TIMESTAMP2, 0, b"\xff\xff\xff\xff", datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC)),
    ("timestamp", types.TIMESTAMP, 0, b"\1\0\0\0", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    # 838:59:59 is 838 << 12 | 59 << 6 | 59 = 0x346efb, plus 0x800000
    ("time", types.TIME2, 0, b"\xb4\x6e\xfb", "838:59:59"),
    ("time", types.TIME2, 0, b"\x4b\x91\x05", "-838:59:59"),
    ("time", types.TIME2, 0, b"\x80\x00\x00", "00:00:00"),
    # -00:00:00.1: 0x80000000 - 10 hundredths
    ("time(1)", types.TIME2, 1, b"\x7f\xff\xff\xf6", "-00:00:00.1"),
    # -00:00:01.0001: 0x800000_0000 - (1 << 16 | 1)
    ("time(4)", types.TIME2, 4, b"\x7f\xff\xfe\xff\xff", "-00:00:01.0001"),
    # -101:02:03.456789: 0x800000_000000 - (101 << 12 | 2 << 6 | 3) << 24 | 456789
    (
        "time(6)",
        types.TIME2,
        6,
        ((0x800000 << 24) - ((101 << 12 | 2 << 6 | 3) << 24 | 456789)).to_bytes(6, "big"),
        "-101:02:03.456789",
    ),
    ("time", types.TIME, 0, (-8385959).to_bytes(3, "little", signed=True), "-838:59:59"),
    # as MariaDB 10.11 writes them with mysql56_temporal_format=OFF
    ("time(3)", types.TIME, 3, bytes.fromhex("00b3ced4c0"), "-01:02:03.456"),
    ("datetime(2)", types.DATETIME, 2, bytes.fromhex("069a810a46b7"), datetime(2020, 1, 2, 3, 4, 5, 670_000)),
    ("datetime(2)", types.DATETIME, 2, bytes(6), None),
    (
        "timestamp(6)",
        types.TIMESTAMP,
        6,
        bytes.fromhex("5e0d5da50a5bf5"),
        datetime(2020, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    ),
    ("timestamp(1)", types.TIMESTAMP, 1, bytes(5), None),
]

# the same with a collation
STRINGS: list[tuple[str, int, int, int, bytes, Any]] = [
    ("varchar(10)", types.VARCHAR, 40, UTF8, "ü😀 ".encode(), "ü😀 "),
    ("varchar(10)", types.VARCHAR, 10, LATIN1, b"\x80\x81\xff", "€\x81ÿ"),
    ("char(10)", types.STRING, 40, UTF8, b"a b ", "a b"),
    ("char(10)", types.STRING, 20, UCS2, b"\0a\0 ", "a"),
    ("text", types.BLOB, 2, UTF8, b"", ""),
    ("binary(4)", types.STRING, 4, BINARY, b"", b"\0\0\0\0"),
    ("binary(4)", types.STRING, 4, BINARY, b"\x01 ", b"\x01 \0\0"),
    ("varbinary(4)", types.VARCHAR, 4, BINARY, b"\x01\0", b"\x01\0"),
    ("blob", types.BLOB, 2, BINARY, b"", b""),
    ("point", types.GEOMETRY, 4, BINARY, b"\0\0\0\0\x01", b"\0\0\0\0\x01"),
    ("longtext", types.BLOB, 4, UTF8, b'{"a":1.10}', '{"a":1.10}'),
    ("vector(2)", types.VECTOR, 4, BINARY, struct.pack("<2f", 1, -2.5), [1.0, -2.5]),
    # MariaDB
    ("inet4", types.STRING, 4, BINARY, b"\x0a", "10.0.0.0"),
    ("inet6", types.STRING, 16, BINARY, b"", "::"),
    ("inet6", types.STRING, 16, BINARY, bytes(10) + b"\xff\xff\x01\x02\x03\x04", "::ffff:1.2.3.4"),
    ("inet6", types.STRING, 16, BINARY, bytes.fromhex("00010000000200000003000000040000"), "1::2:0:3:0:4:0"),
    # whatever its version, and where none of RFC 4122 has such bytes
    *(
        ("uuid", types.STRING, 16, BINARY, bytes.fromhex(text.replace("-", "")), text)
        for text in (
            "01234567-5678-4abc-8123-a0b1c2d3e4f5",
            "01890a5d-ac96-774b-bcce-b302099a8057",
            "00112233-4455-8677-1899-aabbccddeeff",
        )
    ),
    ("uuid", types.STRING, 16, BINARY, b"", "00000000-0000-0000-0000-000000000000"),
    # a COMPRESSED column: nothing, 0 and the value, 0x80 | 1 byte of length, zlib
    ("varchar(9) /*M!100301 COMPRESSED*/", types.VARCHAR_COMPRESSED, 10, LATIN1, b"", ""),
    ("varchar(9) /*M!100301 COMPRESSED*/", types.VARCHAR_COMPRESSED, 10, LATIN1, b"\0\xe9", "é"),
    (
        "blob /*M!100301 COMPRESSED*/",
        types.BLOB_COMPRESSED,
        2,
        BINARY,
        b"\x81\x05" + bytes.fromhex("789c4b4c4a4e49050005c801f0"),
        b"abcde",
    ),
    (
        "blob /*M!100301 COMPRESSED*/",
        types.BLOB_COMPRESSED,
        2,
        BINARY,
        b"\x89\x05" + bytes.fromhex("4b4c4a4e4905 00"),
        b"abcde",
    ),
]

LABELS = [
    ("enum('a','ü')", types.ENUM, 1, b"\x00", ""),
    ("enum('a','ü')", types.ENUM, 1, b"\x02", "ü"),
    ("enum('a','ü')", types.ENUM, 2, b"\x01\x00", "a"),
    ("set('a','ü')", types.SET, 1, b"\x00", ""),
    ("set('a','ü')", types.SET, 1, b"\x03", "a,ü"),
]


def _in_step(column: Column, mapped: MappedColumn, raw: list[bytes | None]) -> ConvertedValues:
    """What the lock-step decoder makes of the same values, of a table of this column alone."""
    body = b"".join(image(TableMap(1, TableId("shop", "t"), (mapped,)), [r]) for r in raw)
    layouts, lanes = [layout(mapped)], Lanes([body])
    cells = next(columns(lanes, rows(lanes, [len(body)], layouts).starts[:-1], layouts))
    return convert_cells(column, mapped, cells)


def _convert(declared: str, mapped: MappedColumn, raw: bytes) -> Any:
    column = Column("c", SourceType.parse(declared, "x"))
    converted = convert(column, mapped, [raw, None])
    value, null = converted.values.to_pylist()
    assert null is None
    assert converted.nulled == ([0] if value is None else [])
    in_step = _in_step(column, mapped, [None, raw, raw])
    assert in_step.values.to_pylist() == [None, value, value]
    assert in_step.values.type == converted.values.type
    assert list(in_step.nulled) == ([1, 2] if value is None else [])
    return value


@pytest.mark.parametrize(("declared", "code", "meta", "raw", "expected"), NUMBERS + TIMES)
def test_numbers_and_times(declared: str, code: int, meta: int, raw: bytes, expected: Any) -> None:
    assert _convert(declared, MappedColumn(code, meta, True), raw) == expected


@pytest.mark.parametrize(("declared", "code", "meta", "collation", "raw", "expected"), STRINGS)
def test_strings(declared: str, code: int, meta: int, collation: int, raw: bytes, expected: Any) -> None:
    assert _convert(declared, MappedColumn(code, meta, True, collation=collation), raw) == expected


@pytest.mark.parametrize(("declared", "code", "meta", "raw", "expected"), LABELS)
def test_labels(declared: str, code: int, meta: int, raw: bytes, expected: str) -> None:
    members = (b"a", "ü".encode())
    assert _convert(declared, MappedColumn(code, meta, True, collation=UTF8, members=members), raw) == expected


@pytest.mark.parametrize(
    ("declared", "mapped", "raw"),
    [
        ("decimal(9,0)", MappedColumn(types.DECIMAL, 9, True), b"\xff\xff\xff\xff"),  # 2147483647 in nine digits
        ("time", MappedColumn(types.TIME2, 0, True), b"\x80\x00\x3c"),  # 60 seconds
        ("time(6)", MappedColumn(types.TIME2, 6, True), b"\x80\x00\x00\x0f\x42\x40"),  # 1000000 microseconds
        ("datetime", MappedColumn(types.DATETIME2, 0, True), _datetime(2024, 1, 1, hour=24)),
        ("datetime", MappedColumn(types.DATETIME2, 0, True), bytes(5)),
        ("varchar(9)", MappedColumn(types.VARCHAR, 36, True, collation=UTF8), b"\xff"),
        ("varchar(9)", MappedColumn(types.VARCHAR, 36, True, collation=9999), b"a"),
        ("varchar(9)", MappedColumn(types.VARCHAR, 36, True), b"a"),
        ("varchar(9)", MappedColumn(types.VARCHAR, 9, True, collation=11), b"\x80"),  # ascii
        ("enum('a')", MappedColumn(types.ENUM, 1, True, collation=UTF8, members=(b"a",)), b"\x02"),
        ("enum('a')", MappedColumn(types.ENUM, 1, True, collation=UTF8, members=(b"\xff",)), b"\x01"),
        ("set('a')", MappedColumn(types.SET, 1, True, collation=UTF8, members=(b"a",)), b"\x02"),
        ("vector(2)", MappedColumn(types.VECTOR, 4, True), b"abc"),
        ("json", MappedColumn(types.JSON, 4, True), b"\xff"),
        ("uuid", MappedColumn(types.STRING, 16, True), bytes(17)),
        ("inet6", MappedColumn(types.STRING, 16, True), bytes(17)),
        ("blob", MappedColumn(types.BLOB_COMPRESSED, 2, True), b"\x81\x05garbage"),
        ("blob", MappedColumn(types.BLOB_COMPRESSED, 2, True), b"\x77"),
    ],
)
def test_what_no_server_writes_is_an_error(declared: str, mapped: MappedColumn, raw: bytes) -> None:
    column = Column("c", SourceType.parse(declared, "x"))
    for decode in (convert, _in_step):
        with pytest.raises(DecodeError):
            decode(column, mapped, [raw])
