"""What is known of the columns of a data file, in no format's form: how many NULLs, and bounds.

Bounds may be wide, never narrow: a reader, and a MERGE, skips a file when a key lies outside of
them. Texts are cut, the low one as it is, the high one with its last character raised (order of
code points, which is the order of UTF-8 bytes); so a table's metadata stays small. Floats (NaN and
negative zero order differently everywhere), booleans, binaries and lists have none.

A format writes them as it has to: Delta as JSON that is wider still
(`sinks.delta.table.statistics`); Iceberg takes integers, dates, microseconds and decimals as they
are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: bounds are kept for the first columns and for the key, as other writers do
INDEXED_COLUMNS = 32
_LONGEST_TEXT = 32


class BoundKind(Enum):
    """The types of bounds, in Python: `int`; `dt.date`; microseconds since 1970 in UTC; the same of
    a time without a zone; `str`; `Decimal`."""

    INTEGER = "integer"
    DATE = "date"
    INSTANT = "instant"
    LOCAL_TIME = "local time"
    TEXT = "text"
    DECIMAL = "decimal"


@dataclass(frozen=True)
class ColumnBounds:
    """No value of the column is below `low` or above `high`."""

    kind: BoundKind
    low: Any
    high: Any


@dataclass(frozen=True)
class FileBounds:
    """The NULLs of each column of a file, deleted rows included, and the bounds of those that have
    any."""

    nulls: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, ColumnBounds] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        columns = {n: [b.kind.value, _text(b.low), _text(b.high)] for n, b in self.columns.items()}
        return {"nulls": dict(self.nulls), "columns": columns}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FileBounds:
        return cls(data["nulls"], {n: _from_texts(*texts) for n, texts in data["columns"].items()})


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _from_texts(kind: str, low: str, high: str) -> ColumnBounds:
    parse = _PARSED.get(BoundKind(kind), int)
    return ColumnBounds(BoundKind(kind), parse(low), parse(high))


_PARSED: dict[BoundKind, Callable[[str], Any]] = {
    BoundKind.DATE: dt.date.fromisoformat,
    BoundKind.TEXT: str,
    BoundKind.DECIMAL: Decimal,
}


class BoundsOfFile:
    """Gathers the bounds of one file, batch by batch; the columns `bounded` have some wherever they
    are."""

    def __init__(self, schema: pa.Schema, bounded: tuple[str, ...]) -> None:
        kinds = {f.name: kind_of(f.type) for i, f in enumerate(schema) if i < INDEXED_COLUMNS or f.name in bounded}
        self._kinds = {name: kind for name, kind in kinds.items() if kind is not None}
        self._nulls = dict.fromkeys(schema.names, 0)
        self._extremes: dict[str, tuple[Any, Any]] = {}

    def add(self, table: pa.Table) -> None:
        """One more part of the file."""
        for name in self._nulls:
            self._nulls[name] += table[name].null_count
        for name in self._kinds:
            part = _min_max(table[name])
            if part:
                whole = self._extremes.get(name, part)
                self._extremes[name] = (min(whole[0], part[0]), max(whole[1], part[1]))

    def bounds(self) -> FileBounds:
        columns = {n: _cut(kind, *self._extremes[n]) for n, kind in self._kinds.items() if n in self._extremes}
        return FileBounds(dict(self._nulls), {n: bounds for n, bounds in columns.items() if bounds is not None})


def _min_max(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    extremes = pc.min_max(column)
    return None if extremes["min"].as_py() is None else (extremes["min"].as_py(), extremes["max"].as_py())


def _cut(kind: BoundKind, low: Any, high: Any) -> ColumnBounds | None:
    if kind is not BoundKind.TEXT:
        return ColumnBounds(kind, low, high)
    upper = high if len(high) <= _LONGEST_TEXT else _raised(high[:_LONGEST_TEXT])
    return None if upper is None else ColumnBounds(kind, low[:_LONGEST_TEXT], upper)


def _raised(prefix: str) -> str | None:
    """The least text of that length that is greater than everything with this prefix; None where
    there is none."""
    code = ord(prefix[-1]) + 1
    if code > 0x10FFFF:
        return None
    return prefix[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def kind_of(t: pa.DataType) -> BoundKind | None:
    """None for a type without bounds."""
    return next((kind for matches, kind in _KINDS if matches(t)), None)


def _has_zone(t: pa.DataType) -> bool:
    return pa.types.is_timestamp(t) and t.tz is not None


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], BoundKind], ...] = (
    (pa.types.is_integer, BoundKind.INTEGER),
    (pa.types.is_date, BoundKind.DATE),
    (_has_zone, BoundKind.INSTANT),
    (pa.types.is_timestamp, BoundKind.LOCAL_TIME),
    (pa.types.is_string, BoundKind.TEXT),
    (pa.types.is_decimal, BoundKind.DECIMAL),
)
