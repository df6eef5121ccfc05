"""Dates and times of a whole column: what `temporal` does for one value, for all at once.

A month's first day and its number of days are looked up by `year * 13 + month`, the number that
DATETIME stores; months that the calendar of the years 1 to 9999 has not have no days, so that no
day fits. Sources and forms: see `temporal`.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Numbers, numbers, slices

_MICROS = 1_000_000
_DAY = 86_400 * _MICROS
_MONTHS = 1 << 17
#: of "-hhhh:mm:ss.ffffff"
_CLOCK_WIDTH = 18
_MAX_DIGITS = 6


class Instants(NamedTuple):
    """`nulled` says which values became NULL."""

    values: pa.Array
    nulled: Flags


@cache
def _calendar() -> tuple[Numbers, Numbers]:
    """The days since 1970 before the first day of each `year * 13 + month`, and how many days it
    has."""
    before, days = np.zeros(_MONTHS, np.int32), np.zeros(_MONTHS, np.uint8)
    months = np.arange("0001-01", "10000-01", dtype="datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    index = (months.astype(np.int64) // 12 + 1970) * 13 + months.astype(np.int64) % 12 + 1
    before[index] = first - 1
    days[index] = np.diff(np.append(first, date(9999, 12, 31).toordinal() - date(1970, 1, 1).toordinal() + 1))
    return before, days


def days(year: Cursors, month: Cursors, day: Cursors) -> tuple[Cursors, Flags]:
    """Days since 1970, and which ones exist."""
    before, days = _calendar()
    months = np.where((month > 12) | (year > 9999), 0, year * 13 + month)
    exists = (day > 0) & (day <= days.take(months))
    return before.take(months) + day, exists


def finished(values: Numbers, kind: pa.DataType, exists: Flags, valid: Flags | None) -> Instants:
    if valid is not None:
        shown = exists & valid
        return Instants(numbers(values, kind, shown), valid & ~exists)
    return Instants(numbers(values, kind, None if exists.all() else exists), ~exists)


def refuse(bad: Flags, valid: Flags | None, what: str) -> None:
    if valid is not None:
        bad = bad & valid
    if bad.any():
        raise DecodeError(f"{what} in row {int(bad.argmax())} of {len(bad)}")


def dates(cells: Cells, kind: pa.DataType) -> Instants:
    """DATE."""
    number = cells.lanes.little(cells.at, 3, cells.shift).astype(np.int64)
    day, exists = days(number >> 9, number >> 5 & 15, number & 31)
    return finished(day.astype(np.int32), kind, exists, cells.valid)


def micros(day: Cursors, hour: Numbers, minute: Numbers, second: Numbers) -> Cursors:
    return day * _DAY + ((hour * 60 + minute) * 60 + second) * _MICROS


def _whole(cells: Cells, whole: int, number: Cursors) -> tuple[Cursors, Cursors]:
    """`number` without its last bytes, `whole` bytes of it, and the microseconds that they are."""
    places = cells.width - whole
    return number >> 8 * places, (number & (1 << 8 * places) - 1) * 100 ** (3 - places)


def datetimes2(cells: Cells, kind: pa.DataType) -> Instants:
    """DATETIME."""
    number, micro = _whole(cells, 5, cells.lanes.big(cells.at, cells.width, cells.shift).astype(np.int64))
    refuse(number >> 39 == 0, cells.valid, "a DATETIME before the year 0")
    refuse(micro >= _MICROS, cells.valid, "a fraction of more than a second")
    hour, minute, second = number >> 12 & 31, number >> 6 & 63, number & 63
    refuse((hour > 23) | (minute > 59) | (second > 59), cells.valid, "an impossible time of day")
    months = number >> 22 & 0x1FFFF
    day, exists = days(months // 13, months % 13, number >> 17 & 31)
    return finished(micros(day, hour, minute, second) + micro, kind, exists, cells.valid)


def datetimes(cells: Cells, kind: pa.DataType) -> Instants:
    """DATETIME of old tables."""
    number = cells.lanes.little(cells.at, 8, cells.shift)
    day, clock = (number // 1_000_000).astype(np.int64), (number % 1_000_000).astype(np.int64)
    hour, minute, second = clock // 10000, clock // 100 % 100, clock % 100
    refuse((hour > 23) | (minute > 59) | (second > 59), cells.valid, "an impossible time of day")
    day, exists = days(day // 10000, day // 100 % 100, day % 100)
    return finished(micros(day, hour, minute, second), kind, exists, cells.valid)


def timestamps2(cells: Cells, kind: pa.DataType) -> Instants:
    """TIMESTAMP."""
    seconds, micro = _whole(cells, 4, cells.lanes.big(cells.at, cells.width, cells.shift).astype(np.int64))
    refuse(micro >= _MICROS, cells.valid, "a fraction of more than a second")
    instant = seconds * _MICROS + micro
    return finished(instant, kind, instant != 0, cells.valid)


def timestamps(cells: Cells, kind: pa.DataType) -> Instants:
    """TIMESTAMP of old tables."""
    seconds = cells.lanes.little(cells.at, 4, cells.shift).astype(np.int64)
    return finished(seconds * _MICROS, kind, seconds != 0, cells.valid)


def times2(cells: Cells, digits: int) -> pa.Array:
    """TIME with 0 to 6 digits of fraction."""
    zero = 0x800000 << 8 * (cells.width - 3)
    number = cells.lanes.big(cells.at, cells.width, cells.shift).astype(np.int64) - zero
    whole, micro = _whole(cells, 3, np.abs(number))
    return clocks(number < 0, (whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63), micro, digits, cells.valid)


def times(cells: Cells) -> pa.Array:
    """TIME of old tables."""
    number = cells.lanes.signed(cells.at, 3, cells.shift).astype(np.int64)
    magnitude = np.abs(number)
    clock = magnitude // 10000, magnitude // 100 % 100, magnitude % 100
    return clocks(number < 0, clock, np.zeros_like(number), 0, cells.valid)


def clocks(
    negative: Flags, clock: tuple[Cursors, Cursors, Cursors], micro: Cursors, digits: int, valid: Flags | None
) -> pa.Array:
    """The server's text, written into a row of `_CLOCK_WIDTH` bytes each and cut from it."""
    hour, minute, second = clock
    refuse(micro >= _MICROS, valid, "a fraction of more than a second")
    refuse((minute > 59) | (second > 59), valid, "an impossible time")
    shape = np.tile(np.frombuffer(b"-0000:00:00.000000", np.uint8), (len(hour), 1))
    for number, low, count in ((hour, 1, 4), (minute, 6, 2), (second, 9, 2), (micro, 12, _MAX_DIGITS if digits else 0)):
        for place in range(low + count - 1, low - 1, -1):
            shape[:, place] += (number % 10).astype(np.uint8)
            number = number // 10
    begin = 3 - (hour > 99).astype(np.int64) - (hour > 999)
    minus = np.flatnonzero(negative)
    begin[minus] -= 1
    shape[minus, begin[minus]] = ord("-")
    lengths = 11 + (min(digits, _MAX_DIGITS) + 1 if digits else 0) - begin
    if valid is not None:
        lengths *= valid
    starts = np.arange(len(hour), dtype=np.int64) * _CLOCK_WIDTH + begin
    raw = slices(pa.py_buffer(shape), starts, lengths, valid)
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
