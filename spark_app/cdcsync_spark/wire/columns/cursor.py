"""Reading bytes in order, never past their end.

Every number of the protocol is little endian unless stated otherwise. Whatever does not fit is a
`DecodeError`, so that no caller has to think of short input. Source: MySQL source documentation,
"Protocol Data Types" and "Binary Log Event".
"""

from __future__ import annotations

from cdcsync_core.errors import DecodeError

Buffer = bytes | bytearray | memoryview


class Cursor:
    """A place in `data`; each read moves it."""

    __slots__ = ("_data", "at", "end")

    def __init__(self, data: Buffer, at: int = 0, end: int | None = None) -> None:
        self._data = data
        self.at = at
        self.end = len(data) if end is None else end

    def __bool__(self) -> bool:
        return self.at < self.end

    @property
    def left(self) -> int:
        return self.end - self.at

    def skip(self, count: int) -> int:
        """Moves by `count` bytes; returns where they begin."""
        start = self.at
        if count < 0 or start + count > self.end:
            raise DecodeError(f"{count} bytes wanted where {self.end - start} are left")
        self.at = start + count
        return start

    def take(self, count: int) -> bytes:
        start = self.skip(count)
        return bytes(self._data[start : start + count])

    def rest(self) -> bytes:
        return self.take(self.end - self.at)

    def uint(self, width: int) -> int:
        start = self.skip(width)
        return int.from_bytes(self._data[start : start + width], "little")

    def byte(self) -> int:
        return self._data[self.skip(1)]

    def lenenc(self) -> int:
        """A length-encoded integer: one byte below 251, else 2, 3 or 8 bytes after 252, 253,
        254."""
        first = self.byte()
        if first < 251:
            return first
        if first in _LENENC:
            return self.uint(_LENENC[first])
        raise DecodeError(f"a length may not begin with the byte {first:#x}")

    def varlen(self) -> int:
        """An integer of MySQL's serialization library: as many low one bits as bytes follow, then a
        zero bit, then the value."""
        first = self.byte()
        more = (~first & (first + 1)).bit_length() - 1
        value = first | self.uint(more) << 8
        return value >> 8 if more == 8 else value >> (more + 1)

    def signed_varlen(self) -> int:
        """`varlen` with the sign in the lowest bit; a negative number is stored as its
        complement."""
        value = self.varlen()
        return ~(value >> 1) if value & 1 else value >> 1

    def text(self, count: int) -> str:
        """A name: identifiers in the binlog are always UTF-8."""
        raw = self.take(count)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise DecodeError(f"a name that is not UTF-8: {raw!r}") from None


_LENENC = {252: 2, 253: 3, 254: 8}
