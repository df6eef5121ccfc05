"""Many cursors in one buffer: what lock-step decoders read with, for row images and for result sets
alike.

Rows are joined into one buffer and read column by column: `at` holds, for each row, where its next
value begins (int64, ascending). One call reads one value of every row. A fixed width costs about 5
ns a row whatever the width is, a string about 20 ns whatever its length is, because numpy copies an
opaque item and Arrow a slice; nothing here looks at single bytes in Python.

Why it is right: behind the buffer lie `PAD` zeros, so that a value may be read with more bytes than
it has and be cut after it. A cursor beyond the end reads a zero (`byte`) or is a `DecodeError`
(`items` and what uses it: numpy checks each index); `clip` keeps cursors inside that garbage moved.
Cursors are never negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.cursor import Buffer

Cursors = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]

#: the widest value that may be read at the end of the buffer: the longest CHAR or BINARY
PAD = 256
#: Arrow's offsets of strings have 32 bits
MAX_SIZE = (1 << 31) - 1 - PAD
_WIDER = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 8: 8}


class Lanes:
    """`parts` joined: a value of each row is read in one call. Raises DecodeError where they are
    larger than Arrow's offsets."""

    __slots__ = ("bytes", "data", "lasting", "size")

    def __init__(self, parts: Sequence[Buffer]) -> None:
        size = sum(map(len, parts))
        if size > MAX_SIZE:
            raise DecodeError(f"{size} bytes of rows to decode at once", needed=f"at most {MAX_SIZE}")
        self._take(b"".join([*parts, bytes(PAD)]), size, lasting=True)

    @classmethod
    def over(cls, data: npt.NDArray[np.uint8], size: int, *, lasting: bool) -> Self:
        """The first `size` bytes of `data`, without a copy; `PAD` bytes of anything follow them.
        `lasting`: they will not change, so that an array may hold on to them."""
        lanes = cls.__new__(cls)
        lanes._take(data, size, lasting)
        return lanes

    def _take(self, data: Any, size: int, lasting: bool) -> None:
        self.data = data
        self.size = size
        self.lasting = lasting
        #: the joined bytes, with the padding behind them
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)

    def clip(self, at: Cursors) -> Cursors:
        """Keeps cursors inside, in place: one that ran away stays at the end (lengths must be
        clipped before they overflow)."""
        return np.minimum(at, self.size, out=at)

    def items(self, at: Cursors, width: int, shift: int = 0) -> Numbers:
        """`width` bytes at `at + shift` of every row, as opaque items (`V{width}`); raises
        DecodeError beyond the end."""
        room = len(self.data) - shift - width + 1
        if room <= 0:
            raise DecodeError(f"{width} bytes wanted where {self.size} are left")
        window: Numbers = np.ndarray((room,), f"V{width}", buffer=self.data, offset=shift, strides=(1,))
        try:
            numbers: Numbers = window[at]
        except IndexError:
            raise DecodeError("a value beyond the end of its row") from None
        return numbers

    def byte(self, at: Cursors, shift: int = 0) -> npt.NDArray[np.uint8]:
        """One byte of every row, zero beyond the end."""
        return self.bytes[shift:].take(at, mode="clip")

    def little(self, at: Cursors, width: int, shift: int = 0) -> Numbers:
        """Unsigned little endian numbers of 1 to 8 bytes, in the next wider unsigned type of
        numpy."""
        if width == 1:
            return self.byte(at, shift)
        wide = _WIDER[width]
        number = self.items(at, wide, shift).view(f"<u{wide}")
        return number if wide == width else number & number.dtype.type((1 << 8 * width) - 1)

    def signed(self, at: Cursors, width: int, shift: int = 0) -> Numbers:
        """Two's complement little endian numbers of 1 to 8 bytes, in the next wider signed type of
        numpy."""
        wide = _WIDER[width]
        number = (self.byte(at, shift) if width == 1 else self.items(at, wide, shift)).view(f"<i{wide}")
        spare = 8 * (wide - width)
        return number << spare >> spare if spare else number

    def big(self, at: Cursors, width: int, shift: int = 0) -> npt.NDArray[np.uint64]:
        """Unsigned big endian numbers of 1 to 8 bytes, as uint64."""
        number = self.items(at, 8, shift).view(">u8").astype(np.uint64)
        return number >> np.uint64(64 - 8 * width) if width < 8 else number

    def slices(self, starts: Cursors, lengths: Cursors, valid: Flags | None = None) -> pa.BinaryArray:
        """`lengths[i]` bytes at `starts[i]` of every row, as `slices` of this buffer; a single one,
        which may be huge, is not copied."""
        if len(starts) == 1 and self.lasting:
            raw = pa.py_buffer(self.data).slice(int(starts[0]), int(lengths[0]))
            return arrow_array(pa.binary(), 1, [pa.py_buffer(np.array([0, lengths[0]], np.int32)), raw], valid)
        return slices(pa.py_buffer(self.data), starts, lengths, valid)


def slices(data: pa.Buffer, starts: Cursors, lengths: Cursors, valid: Flags | None = None) -> pa.BinaryArray:
    """`lengths[i]` bytes at `starts[i]` of every row; where `valid` is False NULL (its length must
    be 0).

    Slices must lie in the buffer and follow one another without overlap, as the rows' values of one
    column do: then the pieces and the gaps between them are themselves an Arrow array of slices of
    the buffer, of which Arrow takes every second one.
    """
    rows = len(starts)
    if not rows:
        return arrow_array(pa.binary(), 0, [pa.py_buffer(bytes(4)), pa.py_buffer(b"")])
    # both offsets of a slice, of 32 bits each, as one number: no step over every second one, no
    # cast
    edges: Cursors = np.add(starts, lengths, dtype=np.int64)
    edges <<= 32
    edges |= starts
    both = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), data])
    taken = pc.take(both, numbers(np.arange(0, 2 * rows, 2, dtype=np.int32), pa.int32()), boundscheck=False)
    return arrow_array(pa.binary(), rows, taken.buffers()[1:], valid)


def arrow_array(kind: pa.DataType, rows: int, buffers: Sequence[pa.Buffer], valid: Flags | None = None) -> pa.Array:
    """An Arrow array over buffers as they are; NULL where `valid` is False."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [bits, *buffers])


def numbers(values: Numbers, kind: pa.DataType, valid: Flags | None = None) -> pa.Array:
    """An Arrow array over numpy's values without a copy; `kind` has their width."""
    return arrow_array(kind, len(values), [pa.py_buffer(np.ascontiguousarray(values))], valid)


def indices(order: Numbers) -> pa.Int32Array:
    """For Arrow's `take`."""
    return numbers(order.astype(np.int32), pa.int32())


def strings(values: Sequence[str]) -> pa.StringArray:
    """Python's texts as Arrow has them."""
    raw = [v.encode() for v in values]
    offsets = np.zeros(len(raw) + 1, np.int64)
    np.cumsum([len(r) for r in raw], out=offsets[1:])
    if offsets[-1] > MAX_SIZE:
        raise DecodeError(f"{offsets[-1]} bytes of text at once", needed=f"at most {MAX_SIZE}")
    return arrow_array(pa.string(), len(raw), [pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(raw))])


def utf8(raw: pa.BinaryArray) -> pa.StringArray:
    """The same slices as text; raises DecodeError where they are not UTF-8."""
    text = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    if not is_ascii(raw):
        try:
            text.validate(full=True)
        except pa.ArrowException as e:
            raise DecodeError(f"text that is not UTF-8: {e}") from None
    return text


def is_ascii(raw: pa.BinaryArray) -> bool:
    """Whether every byte of every slice is below 128."""
    return largest_byte(raw) < 128


def largest_byte(raw: pa.BinaryArray) -> int:
    """The largest byte of all slices (which are all of the array's data); 0 where there is none."""
    data = raw.buffers()[2]
    return int(np.frombuffer(data, np.uint8).max()) if data is not None and len(data) else 0
