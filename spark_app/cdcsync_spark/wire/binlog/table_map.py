"""TABLE_MAP events: the table's number, name and columns, with the optional metadata of
`binlog_row_metadata`: all of it with FULL, signs and character sets of texts with MINIMAL.

The optional metadata lists values only for the columns that they concern, so the parser must know
which types count as numeric, character, or ENUM/SET, exactly as the server does: one wrong answer
shifts every column after it. Source: MySQL `libs/mysql/binlog/event/rows_event.h`
(Table_map_event), MariaDB `sql/log_event_server.cc` (Table_map_log_event::init_metadata_fields).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog.facts import MappedColumn, TableMap
from cdcsync_spark.wire.columns.cursor import Buffer, Cursor

TINY, SHORT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4, 5
TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE = 7, 8, 9, 10, 11, 12, 13, 14
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
#: of MariaDB's columns that are declared COMPRESSED
COMPRESSED = frozenset((BLOB_COMPRESSED, VARCHAR_COMPRESSED))
VECTOR, JSON, DECIMAL, ENUM, SET = 242, 245, 246, 247, 248
BLOB, VAR_STRING, STRING, GEOMETRY = 252, 253, 254, 255

# YEAR too: the servers give it a bit, although it has no sign
_NUMERIC = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE, YEAR})
_STRINGS = frozenset({STRING, VAR_STRING, VARCHAR, BLOB})
# a vector has the binary character set
_CHARACTER_MYSQL = _STRINGS | {VECTOR}
# MariaDB's geometries and compressed columns are blobs and strings to its metadata
_CHARACTER_MARIADB = _STRINGS | {GEOMETRY, BLOB_COMPRESSED, VARCHAR_COMPRESSED}

_META_WIDTH = {
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, VECTOR, TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED), 1),
    **dict.fromkeys((VARCHAR, VAR_STRING, VARCHAR_COMPRESSED, BIT, DECIMAL, STRING, ENUM, SET), 2),
}


_T = TypeVar("_T")


class Named(NamedTuple):
    """The beginning of a TABLE_MAP event's body, enough to see whether the table is wanted; `rest`
    is where columns begin."""

    number: int
    table: TableId
    rest: int


def parse_name(body: Buffer) -> Named:
    """`body` is the event without header and checksum."""
    cursor = Cursor(body)
    number = cursor.uint(6)
    cursor.skip(2)
    database = cursor.text(cursor.byte())
    cursor.skip(1)
    name = cursor.text(cursor.lenenc())
    cursor.skip(1)
    return Named(number, TableId(database, name), cursor.at)


def parse_map(body: Buffer, mariadb: bool) -> TableMap:
    """The whole event; raises DecodeError."""
    named = parse_name(body)
    cursor = Cursor(body, named.rest)
    codes = cursor.take(cursor.lenenc())
    metas = Cursor(cursor.take(cursor.lenenc()))
    types = [_unpack_type(code, metas) for code in codes]
    nullable = _bits(cursor.take((len(codes) + 7) // 8), len(codes))
    extra = _Optional([code for code, _ in types], mariadb)
    while cursor:
        kind = cursor.byte()
        extra.read(kind, Cursor(cursor.take(cursor.lenenc())))
    return TableMap(
        named.number,
        named.table,
        tuple(
            MappedColumn(
                code,
                meta,
                nullable[i],
                extra.names.get(i),
                extra.unsigned.get(i),
                extra.collation(i),
                extra.members.get(i),
            )
            for i, (code, meta) in enumerate(types)
        ),
        extra.key,
    )


def _unpack_type(code: int, metas: Cursor) -> tuple[int, int]:
    width = _META_WIDTH.get(code, 0)
    meta = metas.uint(width) if width else 0
    low, high = meta & 0xFF, meta >> 8
    if code == BIT:
        return code, high * 8 + low
    if code != STRING:
        return code, meta
    if low & 0x30 != 0x30:
        # CHAR longer than 255 bytes: two bits of the length are folded into the type
        return low | 0x30, high | ((low & 0x30) ^ 0x30) << 4
    return low, high


def _bits(raw: bytes, count: int) -> list[bool]:
    """A bitmap whose lowest bit comes first."""
    number = int.from_bytes(raw, "little")
    return [bool(number >> i & 1) for i in range(count)]


class _Optional:
    """The optional fields, gathered by column index."""

    def __init__(self, codes: list[int], mariadb: bool) -> None:
        character = _CHARACTER_MARIADB if mariadb else _CHARACTER_MYSQL
        self._all = range(len(codes))
        self._numeric = [i for i, code in enumerate(codes) if code in _NUMERIC]
        self._character = [i for i, code in enumerate(codes) if code in character]
        self._enums = [i for i, code in enumerate(codes) if code == ENUM]
        self._sets = [i for i, code in enumerate(codes) if code == SET]
        self._labels = [i for i, code in enumerate(codes) if code in (ENUM, SET)]
        self._collations: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.unsigned: dict[int, bool] = {}
        self.members: dict[int, tuple[bytes, ...]] = {}
        self.key: tuple[tuple[int, int], ...] | None = None

    def collation(self, column: int) -> int | None:
        return self._collations.get(column)

    def read(self, kind: int, field: Cursor) -> None:
        """One optional field; kinds that no definition is compared with (visibility, geometry
        types) are passed over."""
        reader = _FIELDS.get(kind)
        if reader:
            reader(self, field)

    def _signedness(self, field: Cursor) -> None:
        # the highest bit comes first
        raw = field.rest()
        if len(raw) != (len(self._numeric) + 7) // 8:
            raise DecodeError(f"signedness of {len(raw)} bytes for {len(self._numeric)} numeric columns")
        for k, column in enumerate(self._numeric):
            self.unsigned[column] = bool(raw[k >> 3] & 0x80 >> (k & 7))

    def _default_charset(self, columns: list[int], field: Cursor) -> None:
        self._collations |= dict.fromkeys(columns, field.lenenc())
        while field:
            k = field.lenenc()
            self._collations[_nth(columns, k)] = field.lenenc()

    def _column_charset(self, columns: list[int], field: Cursor) -> None:
        collations = list(_each(field, Cursor.lenenc))
        if len(collations) != len(columns):
            raise DecodeError(f"{len(collations)} character sets for {len(columns)} character columns")
        self._collations |= dict(zip(columns, collations, strict=True))

    def _names(self, field: Cursor) -> None:
        names = list(_each(field, lambda f: f.text(f.lenenc())))
        if len(names) != len(self._all):
            raise DecodeError(f"{len(names)} names for {len(self._all)} columns")
        self.names = dict(enumerate(names))

    def _simple_key(self, field: Cursor) -> None:
        self.key = tuple((column, 0) for column in _each(field, Cursor.lenenc))

    def _prefixed_key(self, field: Cursor) -> None:
        self.key = tuple(_each(field, lambda f: (f.lenenc(), f.lenenc())))

    def _members(self, columns: list[int], field: Cursor) -> None:
        lists = list(_each(field, _member_list))
        if len(lists) != len(columns):
            raise DecodeError(f"{len(lists)} member lists for {len(columns)} columns")
        self.members |= dict(zip(columns, lists, strict=True))


def _nth(columns: list[int], k: int) -> int:
    if k >= len(columns):
        raise DecodeError(f"a character set for character column {k} of {len(columns)}")
    return columns[k]


def _each(field: Cursor, read: Callable[[Cursor], _T]) -> Iterator[_T]:
    while field:
        yield read(field)


def _member_list(field: Cursor) -> tuple[bytes, ...]:
    return tuple(field.take(field.lenenc()) for _ in range(field.lenenc()))


_FIELDS: dict[int, Callable[[_Optional, Cursor], None]] = {
    1: _Optional._signedness,
    2: lambda o, f: o._default_charset(o._character, f),
    3: lambda o, f: o._column_charset(o._character, f),
    4: _Optional._names,
    5: lambda o, f: o._members(o._sets, f),
    6: lambda o, f: o._members(o._enums, f),
    8: _Optional._simple_key,
    9: _Optional._prefixed_key,
    10: lambda o, f: o._default_charset(o._labels, f),
    11: lambda o, f: o._column_charset(o._labels, f),
}
