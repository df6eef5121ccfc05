"""What a page of texts by prefixes (DELTA_BYTE_ARRAY), or by lengths (DELTA_LENGTH_BYTE_ARRAY),
takes in memory once it is spelled out, by the numbers in it. Pure.

Why it exists: each text may begin as the one before it, at the price of some bits, so a page of a
few bytes may stand for gigabytes; and the reader takes room for as many lengths as a page
announces. Why it is right: the reader adds up the same numbers, from the same bytes, before it
takes the room. Format: Parquet's `Encodings.md`, "Delta Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

#: encodings of `parquet.thrift`
LENGTHS, PREFIXES = 6, 7
#: values of a block; writers have 128 to 2048
_LONGEST_BLOCK = 2**16
#: bytes of a length in the reader, which keeps those of a page
_LENGTH = 4
#: bits of a length
_WIDEST = 32


def spelled_out_beyond(texts: bytes, encoding: int, levels: int, values: int) -> int:
    """The bytes that a reader takes for the texts of a page, which is unpacked, beyond the page
    itself: it copies each prefix twice. The page begins with `levels` sequences, each with its
    size before it. Raises ValueError for a page that the reader would refuse."""
    rest = memoryview(texts)
    for _ in range(levels):
        size = int.from_bytes(rest[:4], "little")
        if len(rest) < 4 + size:
            raise ValueError("a page of texts that ends within its levels")
        rest = rest[4 + size :]
    if not rest:
        return 0
    lengths = _Numbers(rest, values)
    if encoding == LENGTHS:
        return _LENGTH * lengths.count
    prefixes = sum(lengths.sums())
    suffixes = _Numbers(rest[lengths.at :], values)
    return _LENGTH * (lengths.count + suffixes.count) + 2 * prefixes


class _Numbers:
    """A sequence of numbers by their differences (DELTA_BINARY_PACKED), of which `at` bytes were
    read. Raises ValueError."""

    def __init__(self, data: memoryview, most: int) -> None:
        self._data, self.at = data, 0
        self._block, self._parts, self.count = self._varint(), self._varint(), self._varint()
        self._first = _signed(self._varint())
        if self.count > most:
            raise ValueError(f"a page of {most} texts that announces {self.count}")
        if not 0 < self._block <= _LONGEST_BLOCK or not self._parts or self._block % (32 * self._parts):
            raise ValueError(f"a page of texts with blocks of {self._block} lengths in {self._parts} parts")

    def sums(self) -> Iterator[int]:
        """Sums of the first number, and of those of each block."""
        left = self.count
        numbers = np.array([self._first][:left], np.int64)
        while left > 0:
            if numbers.min() < 0 or numbers.max() >= 2**31:
                raise ValueError("a page of texts with a length that is none")
            yield int(numbers.sum())
            left -= len(numbers)
            if left:
                numbers = numbers[-1] + np.cumsum(self._differences(left))

    def _differences(self, left: int) -> npt.NDArray[np.int64]:
        """The differences of one block, whose last parts are not there where no number is left."""
        least = _signed(self._varint())
        widths = self._bytes(self._parts)
        size = self._block // self._parts
        parts = [self._part(width, size) for width in widths[: -(-left // size)]]
        return np.concatenate(parts)[:left] + least

    def _part(self, width: int, size: int) -> npt.NDArray[np.int64]:
        if width > _WIDEST:
            raise ValueError(f"a page of texts with lengths of {width} bits")
        packed = np.frombuffer(self._bytes(size * width // 8), np.uint8)
        bits = np.unpackbits(packed, bitorder="little").reshape(size, width)
        return bits @ (1 << np.arange(width, dtype=np.int64))

    def _bytes(self, size: int) -> memoryview:
        self.at += size
        if self.at > len(self._data):
            raise ValueError("a page of texts that ends within their lengths")
        return self._data[self.at - size : self.at]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 2**32:
                return value
        raise ValueError("a number of more than 32 bits in a page of texts")


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)
