"""Row images to columns, all rows in step: where each row begins, then one column of all rows after
the other.

Rows follow one another without a count, so where a row begins is only known once the one before it
is read. Events are independent: one step reads a row of every event that has one left. Where few
are left (a huge event has thousands of rows) each is walked alone, in a loop that knows the steps
of each NULL bitmap by heart. So no shape of a batch is slow.

Why it is right: `starts` proves that every row ends where the next begins and the last one with its
event. `columns` then takes the same steps again over rows that are known to lie in the buffer. Its
slices are small enough for a cache, and their Arrow columns for memory, however many columns a few
bytes of NULLs stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.event.compression import BOUND
from cdcsync_spark.wire.binlog.facts import MappedColumn
from cdcsync_spark.wire.binlog.images.image import Layout
from cdcsync_spark.wire.binlog.table_map import STRING
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Lanes, Numbers

#: fewer events than this are walked one by one
_FEW_EVENTS = 48
#: NULL bitmaps whose steps are known; a table with more starts again
_KNOWN_BITMAPS = 10_000
_SLICE_BYTES = 4 << 20
#: of a slice as columns, roughly
_SLICE_ARROW_BYTES = 16 << 20
#: of numbers with which cursors move together
_STEP_BYTES = 16 << 20
#: of a value: a cursor, an offset, a number
_VALUE_BYTES = 16


class Rows(NamedTuple):
    """`starts` of all rows in the order of the binlog, then the end of the last one; `counts` of
    each event."""

    starts: Cursors
    counts: npt.NDArray[np.int64]


def rows(lanes: Lanes, sizes: Sequence[int] | npt.NDArray[np.int64], layouts: Sequence[Layout]) -> Rows:
    """Where the rows of the joined events of `sizes` bytes begin; raises DecodeError where they do
    not end with their event."""
    ends = np.cumsum(np.asarray(sizes, np.int64))
    begins = ends - sizes
    walked: list[Cursors] = []
    at, end = begins[begins < ends], ends[begins < ends]
    step = _Step(lanes, layouts) if len(at) >= _FEW_EVENTS else None
    while step and len(at) >= _FEW_EVENTS:
        walked.append(at)
        at = step.over(at)
        if (at > end).any():
            raise _missing(int((at - end).max()))
        unfinished = at < end
        if not unfinished.all():
            at, end = at[unfinished], end[unfinished]
    if len(at):
        walked.append(_RowWalk(lanes.data, layouts).starts(at.tolist(), end.tolist()))
    starts = np.concatenate([*walked, ends[-1:]])
    starts.sort()
    return Rows(starts, np.diff(np.searchsorted(starts[:-1], np.append(begins, ends[-1:]))))


def _missing(count: int) -> DecodeError:
    return DecodeError(f"{count} bytes of a row image are missing")


#: for each byte of a NULL bitmap whether its eight columns are there
_SHOWN = (np.arange(256)[:, None] >> np.arange(8) & 1 ^ 1).astype(np.uint8)


class _Byte(NamedTuple):
    """A byte of the NULL bitmap: for each of its values how far its columns that are there move a
    cursor, in the gaps from `first` on; whether lengths are among them."""

    gaps: Cursors
    first: int
    varies: bool


class _Step:
    """From the beginnings of rows to their ends. Between the lengths of the values that vary there
    are gaps: what has a fixed width, the lengths themselves. They are looked up by the bytes of the
    bitmap."""

    def __init__(self, lanes: Lanes, layouts: Sequence[Layout]) -> None:
        self._lanes = lanes
        #: cursors that move together, each with a number or two for each column
        self._most = max(_FEW_EVENTS, _STEP_BYTES // (8 * max(1, len(layouts))))
        #: of each value that varies: the byte and bit of the bitmap, the width of its length
        self._lengths = [(i >> 3, i & 7, prefix) for i, (_, prefix) in enumerate(layouts) if prefix]
        self._bytes: list[_Byte] = []
        gap = 0
        for low in range(0, len(layouts), 8):
            first, moves = gap, []
            for width, prefix in layouts[low : low + 8]:
                gap += 1 if prefix else 0
                moves.append((gap - first, width + prefix))
            widths = np.zeros((8, gap - first + 1), np.int64)
            for bit, (to, width) in enumerate(moves):
                widths[bit, to] = width
            self._bytes.append(_Byte(_SHOWN @ widths, first, gap > first))

    def over(self, at: Cursors) -> Cursors:
        """May lie beyond the buffer where rows are garbage; then it lies beyond their ends."""
        if len(at) <= self._most:
            return self._over(at)
        return np.concatenate([self._over(at[low : low + self._most]) for low in range(0, len(at), self._most)])

    def _over(self, at: Cursors) -> Cursors:
        gaps: list[list[Cursors]] = [[] for _ in range(len(self._lengths) + 1)]
        shown: list[Numbers] = []
        for j, (moves, first, varies) in enumerate(self._bytes):
            nulls = self._lanes.byte(at, j).astype(np.int64)
            for to, gap in enumerate(moves.take(nulls, axis=0).T, first):
                gaps[to].append(gap)
            shown.append(_SHOWN.take(nulls, axis=0) if varies else nulls)
        at = at + len(self._bytes)
        for gaps_of_length, (j, bit, prefix) in zip(gaps, self._lengths, strict=False):
            for gap in gaps_of_length:
                at += gap
            at += self._length(at, prefix) * shown[j][:, bit]
        for gap in gaps[-1]:
            at += gap
        return at

    def _length(self, at: Cursors, prefix: int) -> Numbers:
        return self._lanes.byte(at) if prefix == 1 else self._lanes.little(self._lanes.clip(at.copy()), prefix)


class _RowWalk:
    """Row after row of one event."""

    def __init__(self, data: bytes, layouts: Sequence[Layout]) -> None:
        self._data = data
        self._layouts = layouts
        self._bitmap = (len(layouts) + 7) // 8
        self._known: dict[bytes, tuple[list[tuple[int, int]], int]] = {}

    def starts(self, begins: Sequence[int], ends: Sequence[int]) -> Cursors:
        starts: list[Cursors] = []
        for at, end in zip(begins, ends, strict=True):
            starts.append(np.fromiter(self._of_event(at, end), np.int64))
        return np.concatenate(starts)

    def _of_event(self, at: int, end: int) -> Iterator[int]:
        data, bitmap, walks, size = self._data, self._bitmap, self._known, len(self._data)
        while at < end:
            yield at
            nulls = data[at : at + bitmap]
            steps, last = walks.get(nulls) or self._learn(nulls)
            for gap, prefix in steps:
                at += gap
                if at >= size:
                    break
                at += data[at] if prefix == 1 else int.from_bytes(data[at : at + prefix], "little")
            at += last
        if at > end:
            raise _missing(at - end)

    def _learn(self, nulls: bytes) -> tuple[list[tuple[int, int]], int]:
        """For a NULL bitmap how far it is to each length, from the end of the length's value before
        it, and at last to the row's end."""
        bits, gap = int.from_bytes(nulls, "little"), self._bitmap
        steps: list[tuple[int, int]] = []
        for i, (width, prefix) in enumerate(self._layouts):
            if bits >> i & 1:
                continue
            if prefix:
                steps.append((gap, prefix))
                gap = prefix
            else:
                gap += width
        if len(self._known) >= _KNOWN_BITMAPS:
            self._known.clear()
        self._known[nulls] = steps, gap
        return steps, gap


def arrow_width(columns: Sequence[MappedColumn]) -> int:
    """About how many bytes a row may take as columns, where the binlog has few for it: a NULL, a
    BINARY without its zeros."""
    return sum(_VALUE_BYTES + (c.meta if c.code == STRING else 0) for c in columns)


def slices(rows: Rows, width: int, together: Flags) -> Iterator[slice]:
    """Rows that are decoded together; `width` is their `arrow_width`. Those of `together` stay with
    the row after them."""
    starts, total = rows.starts, len(rows.starts) - 1
    most = max(1, _SLICE_ARROW_BYTES // width)
    low = 0
    while low < total:
        full = int(np.searchsorted(starts, starts[low] + _SLICE_BYTES))
        high = min(low + most, max(full, low + 1), total)
        high += int(together[high - 1])
        yield slice(low, high)
        low = high


def pieces(weights: Numbers, width: int) -> Iterator[slice]:
    """Rows that take the bytes `weights` unpacked, in pieces of no more than a slice and than what
    may be unpacked, or of one row; `width` is their `arrow_width`."""
    ends, low = np.cumsum(weights), 0
    most, room = max(1, _SLICE_ARROW_BYTES // width), min(_SLICE_BYTES, BOUND.largest)
    while low < len(ends):
        full = int(np.searchsorted(ends, room + (ends[low - 1] if low else 0), "right"))
        high = min(low + most, max(full, low + 1))
        yield slice(low, high)
        low = high


def columns(lanes: Lanes, starts: Cursors, layouts: Sequence[Layout]) -> Iterator[Cells]:
    """The cells of each column, of rows that `rows` found."""
    at, shift = starts, (len(layouts) + 7) // 8
    byte, any_null = np.empty(0, np.uint8), 0
    for i, (width, prefix) in enumerate(layouts):
        if not i & 7:
            byte = lanes.byte(starts, i >> 3)
            any_null = int(np.bitwise_or.reduce(byte))
        mask = 1 << (i & 7)
        valid = (byte & np.uint8(mask)) == 0 if any_null & mask else None
        if prefix:
            cells = _varying(lanes, at, shift, prefix, valid)
            at, shift = cells.at + cells.sizes, cells.shift
            yield cells
        else:
            yield Cells(lanes, at, shift, width, None, valid)
            if valid is None:
                shift += width
            else:
                at = at + np.multiply(valid, width, dtype=np.int64)


def _varying(lanes: Lanes, at: Cursors, shift: int, prefix: int, valid: Flags | None) -> Cells:
    lengths = lanes.little(at, prefix, shift).astype(np.int64)
    if valid is not None:
        shown = valid.astype(np.int64)
        lengths *= shown
        shown *= prefix
        return Cells(lanes, at + shown, shift, 0, lengths, valid)
    return Cells(lanes, at, shift + prefix, 0, lengths, None)
