"""Where packets begin: the header walk, over many packets at once.

A packet is 3 bytes of length, a sequence number, the payload; so where one begins is known only
from the one before it, and one step of Python for each would cost more than decoding the row that
it holds. Hence, for short packets, many walks in lock step: each begins at a place that looks like
a header and ends where the next one began.

Why it is right: the first walk begins at a header that is known. A walk whose start the walk before
it reached exactly is right, by induction; one that was not reached is dropped and its part walked
step by step. What looks like a header decides the speed, never the result. Source: MySQL source
documentation, "MySQL Packets".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cdcsync_spark.wire.columns.gather import Cursors

Bytes = npt.NDArray[np.uint8]

HEADER = 4
#: a payload of this size goes on in the next packet
FULL = 0xFFFFFF
_PROBED = 32
_STEPS = 64
#: packets longer than this are walked one by one: a step of Python for each is little then
_LONG = 512
_FEW = 1 << 14
_WORD: Callable[[Any, int], tuple[int]] = struct.Struct("<I").unpack_from


class Walked(NamedTuple):
    """Where the complete packets' headers are, and where the first incomplete one begins."""

    headers: Cursors
    after: int


def walk(data: Bytes, at: int, end: int) -> Walked:
    """The complete packets in `data[at:end]`; one of `FULL` bytes is never complete. `PAD` bytes
    behind `end` are readable."""
    probe, after = _one_by_one(data, at, end, _PROBED)
    if len(probe) < _PROBED:
        return Walked(np.array(probe, np.int64), after)
    if after - at > _LONG * _PROBED or end - after < _FEW:
        rest, after = _one_by_one(data, after, end)
        return Walked(np.array(probe + rest, np.int64), after)
    longest = max(b - a for a, b in zip(probe, [*probe[1:], after], strict=True))
    return _complete(
        np.concatenate((probe, _in_lock_step(data, after, end, (after - at) // _PROBED, longest))), data, end
    )


def _one_by_one(data: Bytes, at: int, end: int, most: int = 1 << 62) -> tuple[list[int], int]:
    begins: list[int] = []
    while at + HEADER <= end and len(begins) < most:
        length = _WORD(data, at)[0] & FULL
        if length == FULL or at + HEADER + length > end:
            break
        begins.append(at)
        at += HEADER + length
    return begins, at


def _headers(data: Bytes) -> npt.NDArray[np.uint32]:
    """The four bytes from each byte on, as a number: the sequence number above the length."""
    return np.ndarray((len(data) - 3,), "<u4", buffer=data, strides=(1,))


def _in_lock_step(data: Bytes, at: int, end: int, average: int, longest: int) -> Cursors:
    """Headers from the one at `at` on, ascending; the last may be of an incomplete packet."""
    words = _headers(data)
    starts = _likely_starts(data, words, at, end, _STEPS * average, longest + 8)
    bounds = np.append(starts[1:], end - HEADER + 1)
    reached = np.empty_like(starts)
    places, walks = [], []
    place, number, bound = starts, np.arange(len(starts)), bounds
    while len(place):
        places.append(place)
        walks.append(number)
        place = place + (words[place] & FULL) + HEADER
        going = place < bound
        if not going.all():
            done = ~going
            reached[number[done]] = place[done]
            place, number, bound = place[going], number[going], bound[going]
    headers = np.concatenate(places)
    right, between = _linked(data, end, starts, reached)
    if not right.all():
        headers = np.concatenate((headers[right[np.concatenate(walks)]], between))
    headers.sort()
    return headers


def _likely_starts(data: Bytes, words: npt.NDArray[np.uint32], at: int, end: int, stride: int, window: int) -> Cursors:
    """`at`, and about one place every `stride` bytes that looks like the header of a row shorter
    than 64 KiB: its payload begins with a zero byte, and the two packets behind it have the next
    sequence numbers."""
    count = (end - at - window - HEADER) // stride
    if count <= 0:
        return np.array([at], np.int64)
    seen = np.lib.stride_tricks.as_strided(data[at + stride :], (count, window + HEADER), (stride, 1), writeable=False)
    walks, shifts = np.divmod(np.flatnonzero((seen[:, 2:-2] == 0) & (seen[:, HEADER:] == 0)), window)
    place = (walks + 1) * stride + shifts + at
    following = place
    for _ in range(2):
        word = words[following]
        then = following + (word & FULL) + HEADER
        likely = then < end - HEADER
        place, walks, then, word = place[likely], walks[likely], then[likely], word[likely]
        likely = (words[then] >> 24) == ((word >> 24) + 1 & 0xFF)
        place, walks, following = place[likely], walks[likely], then[likely]
    first = np.flatnonzero(np.diff(walks, prepend=-1))
    return np.concatenate(([at], place[first]))


def _linked(data: Bytes, end: int, starts: Cursors, reached: Cursors) -> tuple[npt.NDArray[np.bool_], Cursors]:
    """Which walks are right, and the headers between them that no right walk has."""
    right = np.ones(len(starts), np.bool_)
    between: list[int] = []
    for walk_number in np.flatnonzero(reached[:-1] != starts[1:]).tolist():
        if not right[walk_number]:
            continue
        at, following = int(reached[walk_number]), walk_number + 1
        while following < len(starts) and starts[following] != at:
            if starts[following] < at:
                right[following] = False
                following += 1
                continue
            step, at = _one_by_one(data, at, end, 1)
            between += step
            if not step:
                right[following:] = False
                break
    return right, np.array(between, np.int64)


def _complete(headers: Cursors, data: Bytes, end: int) -> Walked:
    """Leaves out the last packet where that is incomplete."""
    last = int(headers[-1])
    length = _WORD(data, last)[0] & FULL
    if length == FULL or last + HEADER + length > end:
        return Walked(headers[:-1], last)
    return Walked(headers, last + HEADER + length)
