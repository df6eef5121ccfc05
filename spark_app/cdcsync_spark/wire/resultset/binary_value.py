"""From the values of one column of a binary result to an Arrow array: a converter per family of
types, a flat registry at the end.

The value must equal what the same server prints (types.md), byte for byte. A number has its own
form, a date or time as many bytes as its last part that is not zero, everything else is text or
bytes. Text comes as it is stored, in the column's own character set. Source: MySQL source
documentation, "Binary Protocol Value".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, TEXTS, SourceType
from cdcsync_spark.rows.arrow_types import arrow_type
from cdcsync_spark.wire.columns import instants, texts
from cdcsync_spark.wire.columns.charset import stored_charset
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Lanes, Numbers, arrow_array, numbers, utf8

_SECOND = 1_000_000
#: every number of so many digits fits in 64 bits
_INT64_DIGITS = 18


class ResultCells(NamedTuple):
    """The values of one column: `at` their first bytes, `sizes` how many where that varies; `valid`
    is None where none is NULL.

    A NULL has the size 0 and a cursor that may be read.
    """

    lanes: Lanes
    at: Cursors
    sizes: Numbers | None = None
    valid: Flags | None = None

    def bytes(self) -> pa.BinaryArray:
        assert self.sizes is not None
        return self.lanes.slices(self.at, self.sizes, self.valid)


class Values(NamedTuple):
    """`nulled` counts the dates that became NULL."""

    array: pa.Array
    nulled: int = 0


Convert = Callable[[SourceType, ResultCells], Values]


def convert(source: SourceType, cells: ResultCells) -> Values:
    """The Arrow array, of `typemap.arrow_type`; raises DecodeError, without table and column, and
    pyarrow's errors."""
    return CODECS[source.base].convert(source, cells)


# --- numbers
# -------------------------------------------------------------------------------------------------


def _integer(width: int) -> Convert:
    def read(source: SourceType, cells: ResultCells) -> Values:
        kind = arrow_type(source)
        if source.unsigned:
            integers = cells.lanes.little(cells.at, width)
            if width == 8:
                return Values(_decimal_array(integers, np.zeros(len(integers), np.int64), kind, cells.valid))
            return Values(numbers(integers.astype(kind.to_pandas_dtype(), copy=False), kind, cells.valid))
        return Values(numbers(cells.lanes.signed(cells.at, width), kind, cells.valid))

    return read


def _int24(source: SourceType, cells: ResultCells) -> Values:
    """Four bytes, of which the value needs three."""
    values = cells.lanes.signed(cells.at, 4)
    low, high = (0, 0xFFFFFF) if source.unsigned else (-0x800000, 0x7FFFFF)
    instants.refuse((values < low) | (values > high), cells.valid, "a number outside of its type")
    return Values(numbers(values, pa.int32(), cells.valid))


def _year(_: SourceType, cells: ResultCells) -> Values:
    years = cells.lanes.signed(cells.at, 2)
    instants.refuse(years < 0, cells.valid, "a year after 32767")
    return Values(numbers(years, pa.int16(), cells.valid))


def _float(width: int) -> Convert:
    def read(source: SourceType, cells: ResultCells) -> Values:
        return Values(numbers(cells.lanes.items(cells.at, width).view(f"<f{width}"), arrow_type(source), cells.valid))

    return read


def _decimal_array(low: Numbers, high: Numbers, kind: pa.DataType, valid: Flags | None) -> pa.Array:
    """128-bit numbers from their halves."""
    halves = np.empty((len(low), 2), np.int64)
    halves[:, 0], halves[:, 1] = low.view(np.int64), high
    return numbers(halves, kind, valid)


def _decimal(source: SourceType, cells: ResultCells) -> Values:
    kind = arrow_type(source)
    if kind == pa.string():
        return _text(source, cells)
    array = _short_decimal(cells, kind) if kind.precision <= _INT64_DIGITS else None
    return Values(utf8(cells.bytes()).cast(kind) if array is None else array)


def _short_decimal(cells: ResultCells, kind: pa.DataType) -> pa.Array | None:
    """The digits without the point are an integer. None for what the server never prints, which
    Arrow's own cast is to refuse."""
    digits = _digits(cells, kind.scale)
    characters = np.frombuffer(digits.buffers()[2] or b"", np.uint8)
    # an integer may be hexadecimal for Arrow
    if not ((characters - ord("0") < 10) | (characters == ord("-"))).all():
        return None
    try:
        integers = digits.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    unscaled = np.frombuffer(integers.buffers()[1], np.int64)[: len(integers)]
    fits = (np.abs(unscaled) < 10**kind.precision) & _has_point(cells, kind.scale)
    if not (fits if cells.valid is None else fits | ~cells.valid).all():
        return None
    return _decimal_array(unscaled, unscaled >> 63, kind, cells.valid)


def _digits(cells: ResultCells, scale: int) -> pa.StringArray:
    """The text of every value without its point."""
    assert cells.sizes is not None
    count = len(cells.at)
    edges = np.empty((count, 4), np.int64)
    edges[:, 0] = cells.at
    # a NULL has no point and no fraction: its slices are empty, where it would be
    edges[:, 1] = cells.at + np.maximum(cells.sizes.astype(np.int64) - (scale + 1 if scale else 0), 0)
    edges[:, 2] = cells.at + np.maximum(cells.sizes.astype(np.int64) - scale, 0)
    edges[:, 3] = cells.at + cells.sizes
    parts = cells.lanes.slices(edges[:, ::2].ravel(), (edges[:, 1::2] - edges[:, ::2]).ravel())
    offsets = np.frombuffer(parts.buffers()[1], np.int32)[: 2 * count + 1 : 2]
    buffers = [pa.py_buffer(np.ascontiguousarray(offsets)), parts.buffers()[2]]
    return arrow_array(pa.string(), count, buffers, cells.valid)


def _has_point(cells: ResultCells, scale: int) -> Flags:
    """Which values have it where it belongs, with a digit before it."""
    assert cells.sizes is not None
    if not scale:
        return cells.sizes > 0
    point = cells.lanes.byte(np.maximum(cells.at + cells.sizes - (scale + 1), 0)) == ord(".")
    return point & (cells.sizes > scale + 1)


def _bit(source: SourceType, cells: ResultCells) -> Values:
    if arrow_type(source) != pa.bool_():
        return Values(cells.bytes())
    assert cells.sizes is not None
    instants.refuse(cells.sizes != 1, cells.valid, "a BIT(1) that is not one byte")
    bits = np.packbits(cells.lanes.byte(cells.at) != 0, bitorder="little")
    return Values(arrow_array(pa.bool_(), len(cells.at), [pa.py_buffer(bits)], cells.valid))


# --- dates and times
# --------------------------------------------------------------------------------------------------


def _date(source: SourceType, cells: ResultCells) -> Values:
    number = _leading(cells, {0: 0, 4: 4})
    day, exists = instants.days(number & 0xFFFF, number >> 16 & 0xFF, number >> 24 & 0xFF)
    return _dates(instants.finished(day.astype(np.int32), arrow_type(source), exists, cells.valid))


def _datetime(source: SourceType, cells: ResultCells) -> Values:
    """Year (2 bytes), month, day, hour, minute, second, microseconds (4)."""
    number = _leading(cells, {0: 0, 4: 4, 7: 7, 11: 7})
    day, exists = instants.days(number & 0xFFFF, number >> 16 & 0xFF, number >> 24 & 0xFF)
    hour, minute, second = number >> 32 & 0xFF, number >> 40 & 0xFF, number >> 48
    micro = _fraction(cells, 7, 11)
    instants.refuse((hour > 23) | (minute > 59) | (second > 59), cells.valid, "an impossible time of day")
    instants.refuse(micro >= _SECOND, cells.valid, "a fraction of more than a second")
    micros = instants.micros(day, hour, minute, second) + micro
    return _dates(instants.finished(micros, arrow_type(source), exists, cells.valid))


def _time(source: SourceType, cells: ResultCells) -> Values:
    """Sign (1 byte), days (4), hour, minute, second, microseconds (4): printed as the server prints
    it."""
    number = _leading(cells, {0: 0, 8: 8, 12: 8})
    day, hour, minute = number >> 8 & 0xFFFFFFFF, number >> 40 & 0xFF, number >> 48 & 0xFF
    instants.refuse((number & 0xFF > 1) | (day > 34) | (hour > 23), cells.valid, "a time beyond 838:59:59")
    clock = day * 24 + hour, minute, number >> 56 & 0xFF
    micro = _fraction(cells, 8, 12)
    return Values(instants.clocks(number & 1 != 0, clock, micro, max(source.size, 0), cells.valid))


def _leading(cells: ResultCells, leading: dict[int, int]) -> Cursors:
    """The first bytes of each value as one number: of a value of `size` bytes `kept[size]`."""
    assert cells.sizes is not None
    masks = np.zeros(256, np.uint64)
    expected = np.zeros(256, np.bool_)
    for size, count in leading.items():
        masks[size], expected[size] = (1 << 8 * count) - 1, True
    if not expected.take(cells.sizes).all():
        raise DecodeError("a date or time of a size that none has")
    return (cells.lanes.little(cells.at, 8) & masks.take(cells.sizes)).view(np.int64)


def _fraction(cells: ResultCells, shift: int, size: int) -> Cursors:
    """Microseconds, in the last 4 of `size` bytes; 0 where the value is shorter."""
    assert cells.sizes is not None
    long = cells.sizes == size
    if not long.any():
        return np.zeros(len(long), np.int64)
    return cells.lanes.little(cells.at, 4, shift).astype(np.int64) * long


def _dates(moments: instants.Instants) -> Values:
    return Values(moments.values, int(moments.nulled.sum()))


# --- texts and bytes
# --------------------------------------------------------------------------------------------------


def _text(source: SourceType, cells: ResultCells) -> Values:
    return Values(texts.decoded(cells.bytes(), stored_charset(source.charset), source))


def _binary(_: SourceType, cells: ResultCells) -> Values:
    return Values(cells.bytes())


def _vector(_: SourceType, cells: ResultCells) -> Values:
    assert cells.sizes is not None
    if (cells.sizes % 4).any():
        raise DecodeError("a vector that is not of 4-byte numbers")
    raw = cells.bytes()
    offsets = np.frombuffer(raw.buffers()[1], np.int32)[: len(raw) + 1] // 4
    data = raw.buffers()[2]
    items = pa.Array.from_buffers(pa.float32(), int(offsets[-1]), [None, data])
    return Values(
        pa.Array.from_buffers(
            pa.list_(pa.float32()), len(raw), [raw.buffers()[0], pa.py_buffer(offsets)], children=[items]
        )
    )


class Codec(NamedTuple):
    """The type codes by which the wire may announce a column, the bytes of a value (0: it says
    itself), the converter."""

    codes: frozenset[int]
    width: int
    convert: Convert


_STRINGS = frozenset({15, 247, 248, 249, 250, 251, 252, 253, 254})

CODECS: dict[str, Codec] = {
    "tinyint": Codec(frozenset({1}), 1, _integer(1)),
    "smallint": Codec(frozenset({2}), 2, _integer(2)),
    "mediumint": Codec(frozenset({9}), 4, _int24),
    "int": Codec(frozenset({3}), 4, _integer(4)),
    "bigint": Codec(frozenset({8}), 8, _integer(8)),
    "year": Codec(frozenset({13}), 2, _year),
    "float": Codec(frozenset({4}), 4, _float(4)),
    "double": Codec(frozenset({5}), 8, _float(8)),
    "decimal": Codec(frozenset({0, 246}), 0, _decimal),
    "bit": Codec(frozenset({16}), 0, _bit),
    "date": Codec(frozenset({10, 14}), 0, _date),
    "datetime": Codec(frozenset({12}), 0, _datetime),
    "timestamp": Codec(frozenset({7}), 0, _datetime),
    "time": Codec(frozenset({11}), 0, _time),
    **dict.fromkeys(TEXTS, Codec(_STRINGS, 0, _text)),
    **dict.fromkeys(BINARIES, Codec(_STRINGS, 0, _binary)),
    **dict.fromkeys(("enum", "set", "uuid", "inet4", "inet6"), Codec(_STRINGS, 0, _text)),
    "json": Codec(_STRINGS | {245}, 0, _text),
    **dict.fromkeys(GEOMETRIES, Codec(frozenset({255}), 0, _binary)),
    "vector": Codec(_STRINGS | {242}, 0, _vector),
}
