"""A data file's bounds as the statistics of a Delta log, and back. Pure.

Wherever their JSON form is less exact than the value, bounds are widened, and left out where no
safe form exists:

- timestamps travel as milliseconds: the minimum is rounded down, the maximum up;
- decimals travel as JSON numbers, which readers may parse as doubles: beyond 2^53 they are moved
  outwards by more than a double's error.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cdcsync_spark.sinks.lake.files.bounds import BoundKind, ColumnBounds, FileBounds, kind_of
from cdcsync_spark.sinks.lake.files.staging import DataFile

_EXACT = 2**53
#: a double's error is below 2^-53 of the value: 14 digits and one more unit of the last are safely
#: outside
_DIGITS = 14
_MILLISECOND, _MICROSECOND = dt.timedelta(milliseconds=1), dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: a file's statistics stay the same from batch to batch, however often its vector changes
_KNOWN_STATISTICS = 4096
#: the least double has 4.9e-324
_LARGEST_EXPONENT = 400

Forms = tuple[Any, Any]


def statistics(file: DataFile) -> str:
    """Delta's statistics of a new file: numRecords, minValues, maxValues, nullCount; empty where
    nothing was gathered."""
    if file.bounds is None:
        return ""
    forms = {name: _FORMS[bounds.kind](bounds.low, bounds.high) for name, bounds in file.bounds.columns.items()}
    low, high = ({n: form[side] for n, form in forms.items() if form is not None} for side in (0, 1))
    return as_json({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": dict(file.bounds.nulls)})


def bounds_of(stats: str, schema: pa.Schema) -> FileBounds | None:
    """The bounds that an entry gives a file; those that are not understood are left out. None
    where it gives none."""
    if not stats:
        return None
    data = json.loads(stats, parse_float=_decimal)
    low, high, nulls = (data.get(part) or {} for part in ("minValues", "maxValues", "nullCount"))
    named = {f.name: kind_of(f.type) for f in schema if f.name in low and f.name in high}
    columns = {n: _parsed(kind, low[n], high[n]) for n, kind in named.items() if kind is not None}
    return FileBounds(
        {n: count for n, count in nulls.items() if isinstance(count, int)},
        {n: bounds for n, bounds in columns.items() if bounds is not None},
    )


def _parsed(kind: BoundKind, low: Any, high: Any) -> ColumnBounds | None:
    try:
        return ColumnBounds(kind, _VALUES[kind](low), _VALUES[kind](high))
    except (ValueError, TypeError, ArithmeticError):
        return None


def _microseconds(text: str) -> int:
    time = dt.datetime.fromisoformat(text)
    return ((time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def _of_type(kind: type) -> Callable[[Any], Any]:
    """No other type is turned into it: an integer made of a fraction would be a narrower bound."""

    def checked(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"a bound that is no {kind.__name__}")
        return value

    return checked


_VALUES: Mapping[BoundKind, Callable[[Any], Any]] = {
    BoundKind.INTEGER: _of_type(int),
    BoundKind.DATE: dt.date.fromisoformat,
    BoundKind.INSTANT: _microseconds,
    BoundKind.LOCAL_TIME: _microseconds,
    BoundKind.TEXT: _of_type(str),
    BoundKind.DECIMAL: Decimal,
}


@lru_cache(_KNOWN_STATISTICS)
def counted(stats: str) -> int | None:
    """The rows of a file, where its statistics say."""
    records = json.loads(stats).get("numRecords")
    return None if records is None else counting(records)


@lru_cache(_KNOWN_STATISTICS)
def loosened(stats: str, rows: int) -> str:
    """Statistics of a file whose bounds may be wide; numbers keep their digits."""
    parsed = json.loads(stats, parse_float=_decimal) if stats else {}
    if parsed.get("tightBounds") is False and parsed.get("numRecords") == rows:
        return stats
    return as_json({**parsed, "numRecords": rows, "tightBounds": False})


def counting(value: Any) -> int:
    """A number of the protocol's type long that counts something."""
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError("a number that counts nothing")
    return number


def _decimal(text: str) -> Decimal:
    """All digits of one are written, so an exponent beyond every type's is refused."""
    number = Decimal(text)
    if abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError("a number beyond every type")
    return number


def _as_is(low: Any, high: Any) -> Forms:
    return low, high


def _date(low: dt.date, high: dt.date) -> Forms:
    return low.isoformat(), high.isoformat()


def _instant(low: int, high: int) -> Forms | None:
    forms = _local_time(low, high)
    return forms and (forms[0] + "Z", forms[1] + "Z")


def _local_time(low: int, high: int) -> Forms | None:
    """Microseconds since 1970 to text without a zone; None where the rounded value leaves the
    calendar."""
    try:
        texts = [_EPOCH + (m * _MILLISECOND) for m in (low // 1000, -(-high // 1000))]
    except OverflowError:
        return None
    low_text, high_text = (t.replace(tzinfo=None).isoformat(timespec="milliseconds") for t in texts)
    return low_text, high_text


def _number(low: Decimal, high: Decimal) -> Forms:
    return _outward(low, ROUND_FLOOR, -1), _outward(high, ROUND_CEILING, +1)


def _outward(value: Decimal, rounding: str, sign: int) -> Decimal:
    if len(value.as_tuple().digits) <= 15 or (value == value.to_integral_value() and abs(value) <= _EXACT):
        return value
    rounded = Context(prec=_DIGITS, rounding=rounding).plus(value)
    return rounded + sign * Decimal(1).scaleb(rounded.adjusted() - _DIGITS + 1)


_FORMS: Mapping[BoundKind, Callable[[Any, Any], Forms | None]] = {
    BoundKind.INTEGER: _as_is,
    BoundKind.DATE: _date,
    BoundKind.INSTANT: _instant,
    BoundKind.LOCAL_TIME: _local_time,
    BoundKind.TEXT: _as_is,
    BoundKind.DECIMAL: _number,
}


def as_json(value: Any) -> str:
    """JSON with decimals as plain numbers, never in exponent form or through a double."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{as_json(v)}" for k, v in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
