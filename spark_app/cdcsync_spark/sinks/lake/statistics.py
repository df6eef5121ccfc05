"""Delta file statistics that may be wide but never narrow.

A reader, and a MERGE, skips a file when a key lies outside the file's bounds. A bound that is too
narrow by a microsecond therefore loses a row or inserts it twice; a bound that is too wide costs a
read. So bounds are widened wherever their JSON form is less exact than the value, and left out
where no safe form exists:

- timestamps travel as milliseconds: the minimum is rounded down, the maximum up;
- strings are cut to 32 characters, the maximum's last one is raised (order of code points, which is
  the order of UTF-8 bytes);
- decimals travel as JSON numbers, which readers may parse as doubles: beyond 2^53 they are moved
  outwards by more than a double's error;
- floats (NaN and negative zero order differently everywhere), booleans, binaries and lists have
  null counts only.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: bounds are kept for the first columns and for the key, as other Delta writers do
INDEXED_COLUMNS = 32
_TEXT = 32
_EXACT = 2**53
#: a double's error is below 2^-53 of the value: 14 digits and one more unit of the last are safely
#: outside
_DIGITS = 14
_MILLISECOND = dt.timedelta(milliseconds=1)

Bounds = tuple[Any, Any]


class FileStatistics:
    """Gathers the statistics of one file, batch by batch."""

    def __init__(self, schema: pa.Schema, key: tuple[str, ...]) -> None:
        self._bounded = [
            f for i, f in enumerate(schema) if _safe_form(f.type) and (i < INDEXED_COLUMNS or f.name in key)
        ]
        self._rows = 0
        self._nulls = dict.fromkeys(schema.names, 0)
        self._bounds: dict[str, Bounds] = {}

    def add(self, table: pa.Table) -> None:
        """One more part of the file."""
        self._rows += table.num_rows
        for name in self._nulls:
            self._nulls[name] += table[name].null_count
        for field in self._bounded:
            found = _min_max(table[field.name])
            if found:
                known = self._bounds.get(field.name, found)
                self._bounds[field.name] = (min(known[0], found[0]), max(known[1], found[1]))

    def to_json(self) -> str:
        """Delta's statistics: numRecords, nullCount, minValues, maxValues."""
        low, high = {}, {}
        for field in self._bounded:
            if field.name in self._bounds:
                bounds = _safe_form(field.type)(*self._bounds[field.name])  # type: ignore[misc]
                if bounds:
                    low[field.name], high[field.name] = bounds
        return as_json({"numRecords": self._rows, "minValues": low, "maxValues": high, "nullCount": self._nulls})


def _min_max(column: pa.ChunkedArray) -> Bounds | None:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found = pc.min_max(column)
    return None if found["min"].as_py() is None else (found["min"].as_py(), found["max"].as_py())


def _integer(low: int, high: int) -> Bounds:
    return low, high


def _date(low: dt.date, high: dt.date) -> Bounds:
    return low.isoformat(), high.isoformat()


def _timestamp(low: int, high: int) -> Bounds | None:
    bounds = _local_time(low, high)
    return bounds and (bounds[0] + "Z", bounds[1] + "Z")


def _local_time(low: int, high: int) -> Bounds | None:
    """Microseconds since 1970 to text without a zone; None where the rounded value leaves the
    calendar."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    try:
        texts = [epoch + (m * _MILLISECOND) for m in (low // 1000, -(-high // 1000))]
    except OverflowError:
        return None
    return tuple(t.replace(tzinfo=None).isoformat(timespec="milliseconds") for t in texts)  # type: ignore[return-value]


def _text(low: str, high: str) -> Bounds | None:
    if len(high) > _TEXT:
        raised = _raised(high[:_TEXT])
        return None if raised is None else (low[:_TEXT], raised)
    return low[:_TEXT], high


def _raised(prefix: str) -> str | None:
    """The least text of that length that is greater than everything with this prefix; None where
    there is none."""
    code = ord(prefix[-1]) + 1
    if code > 0x10FFFF:
        return None
    return prefix[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def _decimal(low: Decimal, high: Decimal) -> Bounds:
    return _outward(low, ROUND_FLOOR, -1), _outward(high, ROUND_CEILING, +1)


def _outward(value: Decimal, rounding: str, sign: int) -> Decimal:
    if len(value.as_tuple().digits) <= 15 or (value == value.to_integral_value() and abs(value) <= _EXACT):
        return value
    rounded = Context(prec=_DIGITS, rounding=rounding).plus(value)
    return rounded + sign * Decimal(1).scaleb(rounded.adjusted() - _DIGITS + 1)


def as_json(value: Any) -> str:
    """JSON with decimals as plain numbers, never in exponent form or through a double."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{as_json(v)}" for k, v in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def has_safe_form(t: pa.DataType) -> bool:
    """Whether columns of this type have bounds at all."""
    return _safe_form(t) is not None


def _safe_form(t: pa.DataType) -> Callable[[Any, Any], Bounds | None] | None:
    """The function that turns a type's bounds into safe JSON values; None for a type without
    bounds."""
    return next((form for matches, form in _FORMS if matches(t)), None)


def _has_zone(t: pa.DataType) -> bool:
    return pa.types.is_timestamp(t) and t.tz is not None


_FORMS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], Bounds | None]], ...] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_date, _date),
    (_has_zone, _timestamp),
    (pa.types.is_timestamp, _local_time),
    (pa.types.is_string, _text),
    (pa.types.is_decimal, _decimal),
)
