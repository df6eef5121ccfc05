"""The tables of the binlog by their numbers, and their rows events.

Why it is right: a TABLE_MAP precedes every use of its number and a new one replaces it; numbers
mean nothing in another file. What makes one table's rows unusable travels as their `defect`. A
table that is not wanted costs its name and nothing else; equal TABLE_MAPs are parsed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog.definition import is_functional
from cdcsync_spark.wire.binlog.event.compression import unpack_mariadb
from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.images.cut_images import Filler, incomplete_image
from cdcsync_spark.wire.binlog.json.partial_rows import whole_images
from cdcsync_spark.wire.binlog.table_map import Named, parse_map, parse_name
from cdcsync_spark.wire.columns.cursor import Buffer, Cursor

#: TABLE_MAPs that are kept parsed; a binlog with more wanted tables parses some again
_KEPT_MAPS = 4096
#: of a TABLE_MAP; with binlog_row_image=MINIMAL each statement may log other columns
_KEPT_FILLERS = 16
#: MySQL ends a statement that changed no row with a rows event of this table
_NO_TABLE = 0xFFFFFF


class _EventForm(NamedTuple):
    """The form of a kind of rows event. `extra`: version 2, with extra data; `compressed`: MariaDB;
    `partial`: MySQL's JSON differences."""

    operation: Operation
    extra: bool = False
    compressed: bool = False
    partial: bool = False


class UnreadableMap(NamedTuple):
    """A wanted table whose TABLE_MAP cannot be read."""

    table: TableId
    defect: DecodeError


class UsableMap:
    """A TABLE_MAP; `heads` has for each kind of rows event what the last one that can be used had
    between its flags and its images: extra data, the number of columns, bitmaps. The servers differ
    in it, the events of one server hardly do. `fillers` are for images that lack columns, by the
    places of these."""

    __slots__ = ("fillers", "heads", "map")

    def __init__(self, table_map: TableMap) -> None:
        self.map = table_map
        self.heads: dict[int, bytes] = {}
        self.fillers: dict[tuple[int, ...], Filler] = {}

    def filler(self, missing: tuple[int, ...], present: list[bool]) -> Filler:
        filler = self.fillers.get(missing)
        if filler is None:
            if len(self.fillers) >= _KEPT_FILLERS:
                self.fillers.clear()
            filler = self.fillers[missing] = Filler(self.map, present)
        return filler


@dataclass(slots=True)
class _Known:
    """A TABLE_MAP event; `map` once its rows were wanted."""

    named: Named
    map: UsableMap | None = None


class MappedTables:
    """What the TABLE_MAP events since the file's beginning said."""

    def __init__(self, mariadb: bool, is_wanted: Callable[[TableId], bool]) -> None:
        self._mariadb = mariadb
        self._wanted = is_wanted
        self._maps: dict[int, UsableMap | UnreadableMap | None] = {}
        self._known: dict[bytes, _Known] = {}

    def forget(self) -> None:
        """Another file begins."""
        self._maps.clear()

    def learn(self, body: Buffer, file: str, offset: int) -> None:
        """A TABLE_MAP event, which ends at `offset` of `file`."""
        raw = bytes(body)
        number, table_map = self.known(raw)
        if isinstance(table_map, UnreadableMap):
            table_map = table_map._replace(defect=table_map.defect.placed(position=f"{file}:{offset}"))
        self._maps[number] = table_map

    def known(self, raw: bytes) -> tuple[int, UsableMap | UnreadableMap | None]:
        """The number of a TABLE_MAP event, and what its rows are read by; None for a table that is
        not wanted."""
        entry = self._known.get(raw) or self._learn(raw)
        table = entry.named.table
        if entry.named.number == _NO_TABLE or not self._wanted(table):
            return entry.named.number, None
        if entry.map is None:
            try:
                entry.map = UsableMap(parse_map(raw, self._mariadb))
            except DecodeError as e:
                return entry.named.number, UnreadableMap(table, DecodeError(e.found, needed=e.needed, table=str(table)))
        return entry.named.number, entry.map

    def _learn(self, raw: bytes) -> _Known:
        if len(self._known) >= _KEPT_MAPS:
            self._known.clear()
        entry = self._known[raw] = _Known(parse_name(raw))
        return entry

    def rows(self, kind: int, length: int, body: Buffer) -> RowsEvent | None:
        """A rows event of the kind `kind` (one of `ROWS`) and `length` bytes; None for a table that
        is not wanted. It begins with the table's number (6 bytes) and flags (2)."""
        table_map = self._maps.get(int.from_bytes(body[:6], "little"))
        if isinstance(table_map, UsableMap) and (head := table_map.heads.get(kind)) and body[8 : 8 + len(head)] == head:
            return _whole(table_map.map, ROWS[kind], body, 8 + len(head), length)
        return self._read(kind, length, body)

    def _read(self, kind: int, length: int, body: Buffer) -> RowsEvent | None:
        """As `rows`, of any event."""
        cursor = Cursor(body)
        table_map = self._mapped(cursor.uint(6))
        if table_map is None:
            return None
        form = ROWS[kind]
        _skip_to_bitmaps(cursor, form)
        if isinstance(table_map, UnreadableMap):
            return RowsEvent(table_map.table, _NO_MAP, form.operation, b"", length, table_map.defect)
        present = _present(table_map.map, form, cursor)
        if not all(present):
            return _cut(table_map, form, present, bytes(body[cursor.at :]), length)
        table_map.heads[kind] = bytes(body[8 : cursor.at])
        return _whole(table_map.map, form, body, cursor.at, length)

    def refused(self, kind: int, body: Buffer, refusal: DecodeError) -> RowsEvent | None:
        """As `rows`, of an event of which only the beginning is there."""
        table_map = self._mapped(Cursor(body).uint(6))
        if table_map is None:
            return None
        operation = ROWS[kind].operation
        if isinstance(table_map, UnreadableMap):
            return RowsEvent(table_map.table, _NO_MAP, operation, b"", len(body), table_map.defect)
        table = table_map.map.table
        return RowsEvent(table, table_map.map, operation, b"", len(body), refusal.placed(table=str(table)))

    def _mapped(self, number: int) -> UsableMap | UnreadableMap | None:
        """Raises DecodeError for a number without TABLE_MAP; None where no rows are wanted."""
        if number == _NO_TABLE:
            return None
        if number not in self._maps:
            raise DecodeError(f"rows of the table number {number} without a TABLE_MAP event")
        return self._maps[number]


def head(table_map: UsableMap, kind: int, body: bytes) -> bytes | None:
    """What usable rows events of the kind have between their flags and their images, learned from
    the one of `body` if need be; None if that is not usable."""
    if kind not in table_map.heads:
        cursor = Cursor(body, 6)
        try:
            _skip_to_bitmaps(cursor, ROWS[kind])
            if not all(_present(table_map.map, ROWS[kind], cursor)):
                return None
        except DecodeError:
            return None
        table_map.heads[kind] = body[8 : cursor.at]
    return table_map.heads[kind]


def _skip_to_bitmaps(cursor: Cursor, form: _EventForm) -> None:
    """From behind the table's number."""
    cursor.skip(2)
    if form.extra:
        cursor.skip(cursor.uint(2) - 2)


def _present(table_map: TableMap, form: _EventForm, cursor: Cursor) -> list[bool]:
    """For each column of the TABLE_MAP whether the images have it, before whose bitmaps the cursor
    stands. None of them where that is not known: other columns, or an update's images that
    differ."""
    width = cursor.lenenc()
    count = 2 if form.operation is Operation.UPDATE else 1
    first, *others = (cursor.take((width + 7) // 8) for _ in range(count))
    if any(_of_width(other, width) != _of_width(first, width) for other in others):
        return [False] * len(table_map.columns)
    bits = _of_width(first, width)
    logged = iter([bool(bits >> i & 1) for i in range(width)])
    if width == len(table_map.columns):
        return list(logged)
    hidden = [is_functional(column) for column in table_map.columns]
    if width + sum(hidden) != len(hidden):
        return [False] * len(hidden)
    return [not h and next(logged) for h in hidden]


def _of_width(bitmap: bytes, width: int) -> int:
    return int.from_bytes(bitmap, "little") & (1 << width) - 1


def _cut(table_map: UsableMap, form: _EventForm, present: list[bool], raw: bytes, length: int) -> RowsEvent:
    """The event whose images lack columns: with them as NULL where it is known which ones."""
    table = table_map.map.table
    missing = tuple(place for place, there in enumerate(present) if not there)
    if form.partial or not any(present):
        return RowsEvent(table, table_map.map, form.operation, b"", length, incomplete_image(str(table)))
    try:
        filler = table_map.filler(missing, present)
        images = filler.filled(unpack_mariadb(raw) if form.compressed else raw)
    except DecodeError as e:
        return RowsEvent(table, table_map.map, form.operation, b"", length, e.placed(table=str(table)))
    size = length - len(raw) + len(images)
    return RowsEvent(table, table_map.map, form.operation, images, size, filler.defect, missing)


def _whole(table_map: TableMap, form: _EventForm, body: Buffer, at: int, length: int) -> RowsEvent:
    """The event whose images begin at `at`."""
    raw, table = bytes(body[at:]), table_map.table
    try:
        images = whole_images(table_map, raw) if form.partial else unpack_mariadb(raw) if form.compressed else raw
    except DecodeError as e:
        return RowsEvent(table, table_map, form.operation, b"", length, e.placed(table=str(table)))
    return RowsEvent(table, table_map, form.operation, images, length - len(raw) + len(images))


_NO_MAP = TableMap(0, TableId("", ""), ())


ROWS: dict[int, _EventForm] = {
    EventType.WRITE_ROWS_V1.value: _EventForm(Operation.WRITE),
    EventType.UPDATE_ROWS_V1.value: _EventForm(Operation.UPDATE),
    EventType.DELETE_ROWS_V1.value: _EventForm(Operation.DELETE),
    EventType.WRITE_ROWS.value: _EventForm(Operation.WRITE, extra=True),
    EventType.UPDATE_ROWS.value: _EventForm(Operation.UPDATE, extra=True),
    EventType.DELETE_ROWS.value: _EventForm(Operation.DELETE, extra=True),
    EventType.PARTIAL_UPDATE_ROWS.value: _EventForm(Operation.UPDATE, extra=True, partial=True),
    EventType.WRITE_ROWS_COMPRESSED_V1.value: _EventForm(Operation.WRITE, compressed=True),
    EventType.UPDATE_ROWS_COMPRESSED_V1.value: _EventForm(Operation.UPDATE, compressed=True),
    EventType.DELETE_ROWS_COMPRESSED_V1.value: _EventForm(Operation.DELETE, compressed=True),
    EventType.WRITE_ROWS_COMPRESSED.value: _EventForm(Operation.WRITE, extra=True, compressed=True),
    EventType.UPDATE_ROWS_COMPRESSED.value: _EventForm(Operation.UPDATE, extra=True, compressed=True),
    EventType.DELETE_ROWS_COMPRESSED.value: _EventForm(Operation.DELETE, extra=True, compressed=True),
}
