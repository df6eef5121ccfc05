"""Columns as the binlog has them, for tests of row decoders: definitions, stored values, row
images.

`KINDS` is the catalogue: what a server declares, how its TABLE_MAP describes it, and a strategy of
stored bytes that it may write. Bytes that no server writes come from `GARBAGE`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import MappedColumn, Operation, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.images.image import layout

TABLE = TableId("shop", "t")
UTF8, LATIN1, BINARY, GBK, UTF16, UCS2, UTF32, SJIS, ASCII, SWE7 = 45, 8, 63, 28, 54, 35, 60, 13, 11, 10


@dataclass(frozen=True)
class ImageType:
    """A column's type; `stored` draws the bytes of a value."""

    declared: str
    code: int
    meta: int
    stored: st.SearchStrategy[bytes]
    collation: int | None = None
    charset: str = ""
    unsigned: bool = False
    members: tuple[bytes, ...] | None = None

    def column(self, name: str) -> Column:
        return Column(name, SourceType.parse(self.declared, self.charset))

    def mapped(self, name: str) -> MappedColumn:
        return MappedColumn(self.code, self.meta, True, name, self.unsigned, self.collation, self.members)


Stored = Sequence[bytes | None]


def table_of(kinds: Sequence[ImageType], excluded: frozenset[str] = frozenset()) -> tuple[Capture, TableMap]:
    """A table with the columns c0, c1, ..., the first of them its key."""
    names = [f"c{i}" for i in range(len(kinds))]
    columns = tuple(k.column(n) for k, n in zip(kinds, names, strict=True))
    mapped = tuple(k.mapped(n) for k, n in zip(kinds, names, strict=True))
    return Capture(SourceTable(TABLE, columns), ("c0",), excluded), TableMap(1, TABLE, mapped)


def image(table_map: TableMap, row: Stored) -> bytes:
    """One row: a bitmap of the NULLs with its unused bits set, as servers write it, and the values,
    with their lengths where they vary."""
    bits = -1 << len(row)
    parts = []
    for i, (mapped, raw) in enumerate(zip(table_map.columns, row, strict=True)):
        if raw is None:
            bits |= 1 << i
        else:
            prefix = layout(mapped)[1]
            parts.append((len(raw).to_bytes(prefix, "little") if prefix else b"") + raw)
    width = (len(row) + 7) // 8
    return (bits & (1 << 8 * width) - 1).to_bytes(width, "little") + b"".join(parts)


def rows_event(table_map: TableMap, body: bytes, operation: Operation = Operation.WRITE) -> RowsEvent:
    return RowsEvent(TABLE, table_map, operation, body, len(body))


def _number(width: int) -> st.SearchStrategy[bytes]:
    edges = [
        bytes(width),
        b"\xff" * width,
        b"\xff" * (width - 1) + b"\x7f",
        bytes(width - 1) + b"\x80",
        b"\1" + bytes(width - 1),
    ]
    return st.sampled_from(edges) | st.binary(min_size=width, max_size=width)


def _decimal(precision: int, scale: int) -> st.SearchStrategy[bytes]:
    return st.tuples(st.integers(0, 10**precision - 1) | st.integers(0, 1000), st.booleans()).map(
        lambda drawn: stored_decimal(drawn[0], drawn[1], precision, scale)
    )


def stored_decimal(digits: int, negative: bool, precision: int, scale: int) -> bytes:
    """Nine digits in four bytes, the rest of each side in fewer; the first bit inverted, all of
    them where it is negative."""
    text = str(digits).zfill(precision)
    whole = precision - scale
    groups = [text[: whole % 9], *(text[i : i + 9] for i in range(whole % 9, whole, 9))]
    groups += [text[i : i + 9] for i in range(whole, precision, 9)]
    raw = b"".join(int(g).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(g)], "big") for g in groups if g)
    raw = bytes([raw[0] ^ 0x80]) + raw[1:]
    return bytes(b ^ 0xFF for b in raw) if negative else raw


_FRACTION = {
    0: st.just(0),
    1: st.integers(0, 9).map(lambda n: n * 10),
    2: st.integers(0, 99),
    3: st.integers(0, 999).map(lambda n: n * 10),
    4: st.integers(0, 9999),
    5: st.integers(0, 99_999).map(lambda n: n * 10),
    6: st.integers(0, 999_999),
}


def _bits(count: int) -> st.SearchStrategy[bytes]:
    return st.integers(0, 2**count - 1).map(lambda v: v.to_bytes((count + 7) // 8, "big"))


def _vector() -> st.SearchStrategy[bytes]:
    return st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(lambda v: struct.pack(f"<{len(v)}f", *v))


_CLOCK = st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
#: zero, partial and impossible dates too
_DAY = st.tuples(st.sampled_from([0, 1, 1582, 1900, 2000, 2023, 2024, 9999]), st.integers(0, 12), st.integers(0, 31))


def _date() -> st.SearchStrategy[bytes]:
    return _DAY.map(lambda d: (d[0] << 9 | d[1] << 5 | d[2]).to_bytes(3, "little"))


def _datetime(digits: int) -> st.SearchStrategy[bytes]:
    def stored(drawn: tuple[tuple[int, int, int], tuple[int, int, int], int]) -> bytes:
        (year, month, day), (hour, minute, second), fraction = drawn
        number = 1 << 39 | (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
        return number.to_bytes(5, "big") + fraction.to_bytes((digits + 1) // 2, "big")

    return st.tuples(_DAY, _CLOCK, _FRACTION[digits]).map(stored)


def _timestamp(digits: int) -> st.SearchStrategy[bytes]:
    return st.tuples(st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1]) | st.integers(0, 2**32 - 1), _FRACTION[digits]).map(
        lambda d: d[0].to_bytes(4, "big") + d[1].to_bytes((digits + 1) // 2, "big")
    )


def _time(digits: int) -> st.SearchStrategy[bytes]:
    def stored(drawn: tuple[bool, int, int, int, int]) -> bytes:
        negative, hour, minute, second, fraction = drawn
        places = (digits + 1) // 2
        magnitude = (hour << 12 | minute << 6 | second) << 8 * places | fraction
        return ((0x800000 << 8 * places) + (-magnitude if negative else magnitude)).to_bytes(3 + places, "big")

    sixty = st.integers(0, 59)
    return st.tuples(st.booleans(), st.sampled_from([0, 1, 99, 100, 838]), sixty, sixty, _FRACTION[digits]).map(stored)


def _old_datetime_digits(digits: int) -> st.SearchStrategy[bytes]:
    def stored(drawn: tuple[tuple[int, int, int], tuple[int, int, int], int]) -> bytes:
        (year, month, day), (hour, minute, second), fraction = drawn
        number = ((((year * 13 + month) * 32 + day) * 24 + hour) * 60 + minute) * 60 + second
        return (number * 10**digits + fraction).to_bytes((8, 6, 6, 7, 7, 7, 8)[digits], "big")

    return st.tuples(_DAY, _CLOCK, st.integers(0, 10**digits - 1)).map(stored)


def _old_timestamp_digits(digits: int) -> st.SearchStrategy[bytes]:
    return st.tuples(st.sampled_from([0, 1, 2**31 - 1]), st.integers(0, 10**digits - 1)).map(
        lambda d: d[0].to_bytes(4, "big") + d[1].to_bytes((digits + 1) // 2, "big")
    )


def _old_time_digits(digits: int) -> st.SearchStrategy[bytes]:
    least = 3_020_400 * 10**digits
    return st.integers(1 - least, least - 1).map(lambda n: (n + least).to_bytes((3, 4, 4, 5, 5, 5, 6)[digits], "big"))


def _clock_number() -> st.SearchStrategy[int]:
    return _CLOCK.map(lambda c: c[0] * 10000 + c[1] * 100 + c[2])


def _old_datetime() -> st.SearchStrategy[bytes]:
    return st.tuples(_DAY, _clock_number()).map(
        lambda d: ((d[0][0] * 10000 + d[0][1] * 100 + d[0][2]) * 1_000_000 + d[1]).to_bytes(8, "little")
    )


def _old_time() -> st.SearchStrategy[bytes]:
    return st.tuples(_clock_number(), st.sampled_from([1, -1])).map(
        lambda d: (d[0] * d[1]).to_bytes(3, "little", signed=True)
    )


def _text(codec: str, alphabet: str, longest: int = 12) -> st.SearchStrategy[bytes]:
    return st.text(alphabet, max_size=longest).map(lambda t: t.encode(codec))


def _compressed(raw: bytes) -> bytes:
    """Short values as they are after a 0, long ones by zlib after 0x81 and their length."""
    return b"\0" + raw if len(raw) < 6 else b"\x81" + bytes([len(raw)]) + zlib.compress(raw)


_LATIN, _WIDE = "a \x00~éÿ€", "a ü😀你\ufffd"
_CODES = {
    "tinyint": types.TINY,
    "smallint": types.SHORT,
    "mediumint": types.INT24,
    "int": types.LONG,
    "bigint": types.LONGLONG,
}
_WIDTHS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_BYTES = st.binary(max_size=12)
_DECIMALS = [(1, 0), (5, 5), (9, 0), (10, 2), (18, 9), (19, 0), (20, 10), (38, 0), (38, 30), (39, 0), (40, 1), (65, 30)]
_ENUM = (b"a", "ü".encode(), b"")
_SET = tuple(bytes([b]) for b in range(97, 97 + 9))
#: by hand, after json_binary.h: null; true; 7; "a"; [1, "b"]; an inlined 32-bit number in a large
#: array
_JSON = [
    b"\x04\x00",
    b"\x04\x01",
    b"\x05\x07\x00",
    b"\x0c\x01a",
    bytes.fromhex("02 0200 0c00 05 0100 0c 0a00 0162"),
    b"",
]

KINDS = [
    *(ImageType(name, _CODES[name], 0, _number(w)) for name, w in _WIDTHS.items()),
    *(ImageType(f"{name} unsigned", _CODES[name], 0, _number(w), unsigned=True) for name, w in _WIDTHS.items()),
    ImageType("float", types.FLOAT, 4, st.floats(width=32, allow_nan=False).map(lambda n: struct.pack("<f", n))),
    ImageType("double", types.DOUBLE, 8, st.floats(allow_nan=False).map(lambda n: struct.pack("<d", n))),
    *(ImageType(f"decimal({p},{s})", types.DECIMAL, p | s << 8, _decimal(p, s)) for p, s in _DECIMALS),
    ImageType("decimal(40,2) unsigned zerofill", types.DECIMAL, 40 | 2 << 8, _decimal(40, 2)),
    *(ImageType(f"bit({n})", types.BIT, n, _bits(n)) for n in (1, 8, 9, 64)),
    ImageType("year", types.YEAR, 0, _number(1), unsigned=True),
    ImageType("date", types.DATE, 0, _date()),
    ImageType("datetime", types.DATETIME, 0, _old_datetime()),
    ImageType("timestamp", types.TIMESTAMP, 0, _number(4)),
    ImageType("time", types.TIME, 0, _old_time()),
    *(ImageType(f"datetime({d})", types.DATETIME, d, _old_datetime_digits(d)) for d in range(1, 7)),
    *(ImageType(f"timestamp({d})", types.TIMESTAMP, d, _old_timestamp_digits(d)) for d in range(1, 7)),
    *(ImageType(f"time({d})", types.TIME, d, _old_time_digits(d)) for d in range(1, 7)),
    *(ImageType(f"datetime({d})", types.DATETIME2, d, _datetime(d)) for d in range(7)),
    *(ImageType(f"timestamp({d})", types.TIMESTAMP2, d, _timestamp(d)) for d in range(7)),
    *(ImageType(f"time({d})", types.TIME2, d, _time(d)) for d in range(7)),
    ImageType("varchar(12)", types.VARCHAR, 48, _text("utf-8", _WIDE), UTF8, "utf8mb4"),
    ImageType("varchar(300)", types.VARCHAR, 1200, _text("utf-8", _WIDE, 90), UTF8, "utf8mb4"),
    ImageType("char(12)", types.STRING, 48, _text("utf-8", _WIDE), UTF8, "utf8mb4"),
    ImageType("char(200)", types.STRING, 800, _text("utf-8", "a "), UTF8, "utf8mb4"),
    ImageType("varchar(12)", types.VARCHAR, 12, _text("cp1252", _LATIN), LATIN1, "latin1"),
    ImageType("char(12)", types.STRING, 12, _text("cp1252", _LATIN), LATIN1, "latin1"),
    ImageType("varchar(12)", types.VARCHAR, 12, _text("ascii", "a ~"), ASCII, "ascii"),
    ImageType("varchar(12)", types.VARCHAR, 12, _text("ascii", "a[]|"), SWE7, "swe7"),
    ImageType("varchar(12)", types.VARCHAR, 24, _text("gbk", "a 你好"), GBK, "gbk"),
    ImageType("char(12)", types.STRING, 24, _text("shift_jis", "a あ"), SJIS, "sjis"),
    ImageType("varchar(12)", types.VARCHAR, 48, _text("utf-16-be", _WIDE), UTF16, "utf16"),
    ImageType("char(12)", types.STRING, 24, _text("utf-16-be", "a ü"), UCS2, "ucs2"),
    ImageType("char(3)", types.STRING, 12, _text("utf-32-be", _WIDE, 3), UTF32, "utf32"),
    ImageType("tinytext", types.BLOB, 1, _text("utf-8", _WIDE), UTF8, "utf8mb4"),
    ImageType("text", types.BLOB, 2, _text("utf-8", _WIDE), UTF8, "utf8mb4"),
    ImageType("mediumtext", types.BLOB, 3, _text("utf-8", _WIDE), UTF8, "utf8mb4"),
    ImageType("longtext", types.BLOB, 4, _text("utf-8", _WIDE), UTF8, "utf8mb4"),
    ImageType("varchar(9)", types.VARCHAR_COMPRESSED, 40, _text("utf-8", _WIDE).map(_compressed), UTF8, "utf8mb4"),
    ImageType("blob", types.BLOB_COMPRESSED, 2, st.just(b"") | _BYTES.map(_compressed), BINARY),
    *(ImageType(f"binary({n})", types.STRING, n, st.binary(max_size=min(n, 20)), BINARY) for n in (0, 1, 16, 255)),
    ImageType("varbinary(12)", types.VARCHAR, 12, _BYTES, BINARY),
    ImageType("longblob", types.BLOB, 4, _BYTES, BINARY),
    ImageType("point", types.GEOMETRY, 4, st.binary(min_size=25, max_size=25)),
    ImageType("enum('a','ü','')", types.ENUM, 1, st.integers(0, 3).map(lambda n: bytes([n])), UTF8, "utf8mb4", members=_ENUM),
    ImageType("enum('a','ü','')", types.ENUM, 2, st.integers(0, 3).map(lambda n: bytes([n, 0])), UTF8, "utf8mb4", members=_ENUM),
    ImageType("enum('a','ü','')", types.ENUM, 1, st.integers(0, 3).map(lambda n: bytes([n])), BINARY, members=_ENUM),
    ImageType(
        f"set({','.join(repr(m.decode()) for m in _SET)})", types.SET, 2,
        st.integers(0, 511).map(lambda n: n.to_bytes(2, "little")), UTF8, "utf8mb4", members=_SET,
    ),
    ImageType("json", types.JSON, 4, st.sampled_from(_JSON)),
    ImageType("json", types.BLOB, 4, st.sampled_from([b'{"a": 1}', b"null", b""]), UTF8, "utf8mb4"),
    ImageType("vector(3)", types.VECTOR, 4, _vector()),
    ImageType("uuid", types.STRING, 16, st.binary(max_size=16), BINARY),
    ImageType("inet4", types.STRING, 4, st.binary(max_size=4), BINARY),
    ImageType("inet6", types.STRING, 16, st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\xff\xff"]), max_size=8).map(b"".join), BINARY),
]  # fmt: skip
