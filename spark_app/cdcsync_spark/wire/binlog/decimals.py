"""DECIMALs of a whole column: what `number.decimal_text` does for one value, for all at once.

Groups of nine digits become the words of one integer of 128 bits, which is Arrow's decimal; wider
ones are written as the server's text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.images.image import DIGIT_BYTES
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Flags, Numbers, numbers, slices

_Words = npt.NDArray[np.uint64]
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def decimals128(cells: Cells, precision: int, scale: int, kind: pa.DataType) -> pa.Array:
    """Decimals of at most 38 digits."""
    negative, groups = _groups(cells, precision, scale)
    high, low = np.zeros(len(negative), np.uint64), np.zeros(len(negative), np.uint64)
    for digits, group in groups:
        high, low = _appended(high, low, np.uint64(10**digits), group)
    words = np.empty((len(negative), 2), np.uint64)
    words[:, 0] = np.where(negative, ~low + np.uint64(1), low)
    words[:, 1] = np.where(negative, ~high + (low == 0), high)
    return numbers(words, kind, cells.valid)


def _appended(high: _Words, low: _Words, factor: np.uint64, group: _Words) -> tuple[_Words, _Words]:
    """`(high, low) * factor + group`, in halves of 32 bits, so that no product overflows."""
    first = (low & _LOW) * factor + group
    second = (low >> _HALF) * factor + (first >> _HALF)
    return high * factor + (second >> _HALF), second << _HALF | first & _LOW


def decimal_texts(cells: Cells, precision: int, scale: int, least_width: int) -> pa.Array:
    """The server's text, padded with zeros to `least_width` (ZEROFILL)."""
    negative, groups = _groups(cells, precision, scale)
    whole, point = precision - scale, bool(scale)
    width = 1 + max(whole, 1) + point + scale
    text = np.full((len(negative), width), ord("0"), np.uint8)
    if point:
        text[:, -scale - 1] = ord(".")
    at = width - point - precision
    for digits, group in groups:
        if at == width - point - scale:
            at += point
        rest = group
        for place in range(at + digits - 1, at - 1, -1):
            text[:, place] += (rest % np.uint64(10)).astype(np.uint8)
            rest = rest // np.uint64(10)
        at += digits
    return _cut(text, negative, width - (point + scale), least_width, cells.valid)


def _cut(text: npt.NDArray[np.uint8], negative: Flags, point: int, least_width: int, valid: Flags | None) -> pa.Array:
    """Leading zeros are left out, up to the digit before `point`; a number that is not zero has its
    sign before."""
    rows, width = text.shape
    shown = text[:, :point] != ord("0")
    shown[:, -1] = True
    signed = negative & ((text != ord("0")) & (text != ord("."))).any(axis=1)
    begin = np.minimum(shown.argmax(axis=1) - signed, width - least_width)
    minus = np.flatnonzero(signed)
    text[minus, begin[minus]] = ord("-")
    lengths = width - begin
    if valid is not None:
        lengths *= valid
    raw = slices(pa.py_buffer(text), np.arange(rows, dtype=np.int64) * width + begin, lengths, valid)
    return pa.Array.from_buffers(pa.string(), rows, raw.buffers())


def _groups(cells: Cells, precision: int, scale: int) -> tuple[Flags, list[tuple[int, _Words]]]:
    """The sign, and the groups of digits (their number, their value) from the highest on."""
    raw = cells.lanes.items(cells.at, cells.width, cells.shift).view(np.uint8).reshape(-1, cells.width)
    negative = raw[:, 0] < 0x80
    raw = raw ^ np.where(negative, np.uint8(0xFF), np.uint8(0))[:, None]
    raw[:, 0] ^= 0x80
    whole = precision - scale
    groups: list[tuple[int, _Words]] = []
    at = 0
    for digits in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9):
        if digits:
            width = DIGIT_BYTES[digits]
            group = _big(raw[:, at : at + width])
            _refuse(group >= np.uint64(10**digits), cells.valid, digits)
            groups.append((digits, group))
            at += width
    return negative, groups


def _big(raw: Numbers) -> _Words:
    number = raw[:, 0].astype(np.uint64)
    for i in range(1, raw.shape[1]):
        number = number << np.uint64(8) | raw[:, i]
    return number


def _refuse(bad: Flags, valid: Flags | None, digits: int) -> None:
    if valid is not None:
        bad = bad & valid
    if bad.any():
        raise DecodeError(
            f"a decimal with more than {digits} digits in a group, in row {int(bad.argmax())} of {len(bad)}"
        )
