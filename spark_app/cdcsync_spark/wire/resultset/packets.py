"""A result's packets from bytes as they come: one buffer that is filled and emptied over and over,
no I/O.

The caller fills `room()`, says how much came, and takes complete payloads; those lie in the buffer
itself and are valid until `room()` is asked for again. A payload that does not fit in the buffer,
up to one that spans many packets, is gathered in a buffer of its own. Every sequence number is
checked, so that a byte too many or too few cannot pass. Source: MySQL source documentation, "MySQL
Packets".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.gather import PAD, Cursors
from cdcsync_spark.wire.resultset.framing import FULL, HEADER, Bytes, walk

#: bytes that are gathered before they are decoded
CAPACITY = 4 << 20
#: max_allowed_packet is at most that
MAX_PAYLOAD = 1 << 30


@dataclass(frozen=True)
class Payloads:
    """`data[starts[i]:ends[i]]` is the i-th one; `PAD` bytes behind the last are readable.
    `lasting`: `data` will not be reused."""

    data: Bytes
    starts: Cursors
    ends: Cursors
    lasting: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, start: int, end: int) -> Payloads:
        return Payloads(self.data, self.starts[start:end], self.ends[start:end], self.lasting)


class ResultPackets:
    """Packets in the order of the wire; the first has the sequence number `sequence`."""

    def __init__(self, sequence: int = 1, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._sequence = sequence
        memory = bytearray(capacity + PAD)
        self._view = memoryview(memory)
        self._data: Bytes = np.frombuffer(memory, np.uint8)
        # what came and is not taken
        self._low = self._high = 0
        self._long: _LongPayload | None = None

    @property
    def full(self) -> bool:
        """Nothing more comes in before something is taken."""
        if self._long:
            return self._long.complete
        return self._high - self._low == self._capacity and not self._too_long()

    @property
    def pending(self) -> bool:
        """Bytes came that no taken payload holds."""
        return self._long is not None or self._high > self._low

    def room(self) -> memoryview:
        """Where the next bytes go: not empty unless `full`. What was taken is not valid any more.
        Raises DecodeError."""
        if self._low:
            self._data[: self._high - self._low] = self._data[self._low : self._high].copy()
            self._low, self._high = 0, self._high - self._low
        if self._long is None and self._too_long():
            self._long = _LongPayload(self._sequence, bytes(self._view[: self._high]))
            self._high = 0
        return self._long.room() if self._long else self._view[self._high : self._capacity]

    def filled(self, count: int) -> None:
        """`count` bytes came into `room()`. Raises DecodeError."""
        if self._long:
            self._long.filled(count)
        else:
            self._high += count

    def last(self, count: int) -> bytes:
        """At most `count` bytes that came last."""
        return b"" if self._long else bytes(self._view[max(self._high - count, self._low) : self._high])

    def take(self) -> Payloads:
        """Every complete payload, perhaps none. Raises DecodeError."""
        if self._long:
            return self._take_long(self._long)
        headers, after = walk(self._data, self._low, self._high)
        self._count(self._data[headers + (HEADER - 1)])
        self._low = after
        return Payloads(self._data, headers + HEADER, np.append(headers[1:], after) if len(headers) else headers)

    def take_one(self) -> bytes | None:
        """A copy of the next payload alone; None where it is not complete. For the packets before
        the rows."""
        if self._long or self._too_long():
            raise DecodeError("a long packet where a result is described")
        start, end = self._low + HEADER, self._low + HEADER + self._length()
        if self._high < start or self._high < end:
            return None
        self._count(self._data[start - 1 : start])
        self._low = end
        return bytes(self._view[start:end])

    def _length(self) -> int:
        """The length of the next payload; 0 where its header has not come."""
        head = self._view[self._low : self._low + HEADER]
        return int.from_bytes(head[:-1], "little") if self._high - self._low >= HEADER else 0

    def _too_long(self) -> bool:
        length = self._length()
        return length == FULL or HEADER + length > self._capacity

    def _take_long(self, payload: _LongPayload) -> Payloads:
        if not payload.complete:
            none = np.empty(0, np.int64)
            return Payloads(self._data, none, none)
        self._long, self._sequence = None, payload.sequence
        end = payload.size
        return Payloads(np.frombuffer(payload.data, np.uint8), np.zeros(1, np.int64), np.array([end]), lasting=True)

    def _count(self, numbers: Bytes) -> None:
        expected = np.arange(self._sequence, self._sequence + len(numbers)).astype(np.uint8)
        if not np.array_equal(numbers, expected):
            at = int(np.flatnonzero(numbers != expected)[0])
            raise _out_of_order(numbers[at], expected[at])
        self._sequence += len(numbers)


class _LongPayload:
    """One payload that spans packets or does not fit in the buffer; `begun` is what came of it, its
    header first."""

    def __init__(self, sequence: int, begun: bytes) -> None:
        self.sequence = sequence
        self.data = bytearray(PAD)
        self.size = 0
        self.complete = False
        self._header = bytearray(HEADER)
        self._header_size = 0
        self._left = 0
        self._more = True
        while begun:
            count = min(len(room := self.room()), len(begun))
            room[:count] = begun[:count]
            room.release()
            self.filled(count)
            begun = begun[count:]

    def room(self) -> memoryview:
        """The rest of the packet or of its header: so no header ever lies between the payload's
        bytes."""
        if self._left:
            return memoryview(self.data)[self.size : self.size + self._left]
        return memoryview(self._header)[self._header_size :]

    def filled(self, count: int) -> None:
        if not self._left:
            self._header_size += count
            if self._header_size == HEADER:
                self._begin_packet(int.from_bytes(self._header[:-1], "little"))
            return
        self.size += count
        self._left -= count
        self.complete = not self._left and not self._more

    def _begin_packet(self, length: int) -> None:
        if self._header[-1] != self.sequence & 0xFF:
            raise _out_of_order(self._header[-1], self.sequence & 0xFF)
        if self.size + length > MAX_PAYLOAD:
            raise DecodeError(f"a row of more than {MAX_PAYLOAD} bytes")
        self.sequence += 1
        self._header_size, self._left, self._more = 0, length, length == FULL
        self.complete = not length
        self.data += bytes(length)


def _out_of_order(number: int, expected: int) -> DecodeError:
    return DecodeError(f"a packet with the number {number} of 256", needed=f"{expected}")
