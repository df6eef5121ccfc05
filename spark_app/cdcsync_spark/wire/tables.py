"""The tables that the log speaks of, by their numbers, and the rows events about them.

Why it is right: a TABLE_MAP precedes every use of its number and a new one replaces it; numbers mean nothing in another file. What
makes one table's rows unusable travels as their `defect`. A table that is not wanted costs its name and nothing else; equal
TABLE_MAPs are parsed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cdcsync_core.errors import CdcError, DecodeError, Reason, fail
from cdcsync_core.table import TableId
from cdcsync_spark.wire.compression import unpack_mariadb
from cdcsync_spark.wire.cursor import Buffer, Cursor
from cdcsync_spark.wire.facts import Operation, RowsEvent, TableMap
from cdcsync_spark.wire.tablemap import parse_map, parse_name

#: TABLE_MAPs that are kept parsed; a log with more wanted tables parses some again
_KEPT_MAPS = 4096
#: MySQL ends a statement that changed no row with a rows event of this table
_NO_TABLE = 0xFFFFFF


class _Form(NamedTuple):
    """Of a kind of rows event. `extra`: version 2, with extra data; `compressed`: MariaDB; `partial`: MySQL's JSON differences."""

    operation: Operation
    extra: bool = False
    compressed: bool = False
    partial: bool = False


class _Unreadable(NamedTuple):
    """A wanted table whose TABLE_MAP cannot be read."""

    table: TableId
    defect: CdcError


class MappedTables:
    """What the TABLE_MAP events since the file's beginning said."""

    def __init__(self, mariadb: bool, wanted: Callable[[TableId], bool]) -> None:
        self._mariadb = mariadb
        self._wanted = wanted
        self._maps: dict[int, TableMap | _Unreadable | None] = {}
        self._parsed: dict[bytes, TableMap] = {}

    def forget(self) -> None:
        """Another file begins."""
        self._maps.clear()

    def learn(self, body: Buffer, position: str) -> None:
        """A TABLE_MAP event."""
        named = parse_name(body)
        self._maps[named.number] = self._map(named.table, bytes(body), position) if self._wanted(named.table) else None

    def _map(self, table: TableId, body: bytes, position: str) -> TableMap | _Unreadable:
        known = self._parsed.get(body)
        if known is None:
            try:
                known = parse_map(body, self._mariadb)
            except DecodeError as e:
                return _Unreadable(table, DecodeError(e.found, needed=e.needed, table=str(table), position=position))
            if len(self._parsed) >= _KEPT_MAPS:
                self._parsed.clear()
            self._parsed[body] = known
        return known

    def rows(self, kind: int, length: int, body: Buffer) -> RowsEvent | None:
        """A rows event of the kind `kind` (one of `ROWS`) and `length` bytes; None for a table that is not wanted."""
        cursor = Cursor(body)
        number = cursor.uint(6)
        if number == _NO_TABLE:
            return None
        if number not in self._maps:
            raise DecodeError(f"rows of the table number {number} without a TABLE_MAP event")
        known = self._maps[number]
        if known is None:
            return None
        form = ROWS[kind]
        cursor.skip(2)
        if form.extra:
            cursor.skip(cursor.uint(2) - 2)
        if isinstance(known, _Unreadable):
            return RowsEvent(known.table, _NO_MAP, form.operation, b"", length, known.defect)
        return _rows_event(known, form, cursor, length)


def _rows_event(table_map: TableMap, form: _Form, cursor: Cursor, length: int) -> RowsEvent:
    table = table_map.table
    if form.partial:
        return RowsEvent(table, table_map, form.operation, b"", length, _partial_json(str(table)))
    width = cursor.lenenc()
    bitmaps = [cursor.take((width + 7) // 8) for _ in range(2 if form.operation is Operation.UPDATE else 1)]
    every = (1 << width) - 1
    if width != len(table_map.columns) or any(int.from_bytes(b, "little") & every != every for b in bitmaps):
        return RowsEvent(table, table_map, form.operation, b"", length, _incomplete_image(str(table)))
    raw = cursor.rest()
    images = unpack_mariadb(raw) if form.compressed else raw
    return RowsEvent(table, table_map, form.operation, images, length - len(raw) + len(images))


_NO_MAP = TableMap(0, TableId("", ""), ())


def _partial_json(table: str) -> CdcError:
    return fail(
        Reason.ROW_IMAGE_NOT_FULL,
        "a partial JSON update in the log",
        needed="whole row images",
        remedy="SET GLOBAL binlog_row_value_options = '', and the same in every session that writes; then read the table again",
        table=table,
    )


def _incomplete_image(table: str) -> CdcError:
    return fail(
        Reason.ROW_IMAGE_NOT_FULL,
        "a row image without all columns in the log",
        needed="binlog_row_image=FULL in every session that writes",
        remedy="SET GLOBAL binlog_row_image = 'FULL'; then read the table again",
        table=table,
    )


ROWS: dict[int, _Form] = {
    23: _Form(Operation.WRITE),
    24: _Form(Operation.UPDATE),
    25: _Form(Operation.DELETE),
    30: _Form(Operation.WRITE, extra=True),
    31: _Form(Operation.UPDATE, extra=True),
    32: _Form(Operation.DELETE, extra=True),
    39: _Form(Operation.UPDATE, extra=True, partial=True),
    166: _Form(Operation.WRITE, compressed=True),
    167: _Form(Operation.UPDATE, compressed=True),
    168: _Form(Operation.DELETE, compressed=True),
    169: _Form(Operation.WRITE, extra=True, compressed=True),
    170: _Form(Operation.UPDATE, extra=True, compressed=True),
    171: _Form(Operation.DELETE, extra=True, compressed=True),
}
