"""The bytes of one binary JSON value, read within bounds."""

from __future__ import annotations

from cdcsync_core.errors import DecodeError


class JsonBytes:
    """`_left` bounds the work and what is made of it, because in a sound document every value and
    key has bytes of its own."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._left = len(raw)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise DecodeError("a JSON value that nests or repeats without end")

    def _bytes(self, at: int, count: int) -> bytes:
        self._spend(count)
        if at + count > len(self._raw):
            raise DecodeError(f"{count} bytes of a JSON value wanted where {len(self._raw) - at} are left")
        return self._raw[at : at + count]
