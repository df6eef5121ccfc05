"""The protocol's packets from a socket, through one buffer that is refilled in place.

A source with a backlog sends faster than events are read, so that the buffer fills: then all
packets in it are found at once, and their events can be read as columns.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.event.compression import MAX_EVENT
from cdcsync_spark.wire.columns.gather import PAD, Cursors
from cdcsync_spark.wire.resultset.framing import FULL, HEADER, walk

_BUFFER = 1 << 20
#: so much at once comes from a source with more: the socket is read until it is empty
_BACKLOG = 1 << 13
#: bytes a second that come at least of a packet which has begun, on an average over the socket's
#: timeout: a server that sends a byte now and then is never silent, and its packet never ends
_LEAST_RATE = 1 << 10


@dataclass(frozen=True)
class Arrived:
    """Payloads `data[starts[i]:ends[i]]`, in memory that the next ones are written to."""

    data: memoryview
    starts: Cursors
    ends: Cursors

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> memoryview:
        return self.data[int(self.starts[index]) : int(self.ends[index])]

    def __iter__(self) -> Iterator[memoryview]:
        return map(self.data.__getitem__, map(slice, self.starts.tolist(), self.ends.tolist()))

    def part(self, first: int, after: int) -> Arrived:
        """Payload `first` to before payload `after`."""
        return Arrived(self.data, self.starts[first:after], self.ends[first:after])

    def events(self) -> Arrived:
        """The events among the first payloads that are events, without the byte that says so."""
        status = np.frombuffer(self.data, np.uint8)[np.minimum(self.starts, len(self.data) - 1)]
        other = (self.ends == self.starts) | (status != 0)
        count = int(other.argmax()) if other.any() else len(self)
        return Arrived(self.data, self.starts[:count] + 1, self.ends[:count])


class DumpPackets:
    def __init__(self, sock: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        self._sock, self._clock = sock, clock
        self._buffer = memoryview(bytearray(_BUFFER + PAD))
        self._low = 0
        self._high = 0

    def arrived(self) -> Arrived:
        """At least one payload, which is waited for, and those that lie whole in the buffer behind
        it; valid until the next call."""
        length = self._length()
        if length == FULL:
            joined = self._joined()
            return Arrived(joined, np.array([0]), np.array([len(joined)]))
        self._fill(HEADER + length)
        arrived = walk(np.frombuffer(self._buffer, np.uint8), self._low, self._high)
        self._low = arrived.after
        ends = np.append(arrived.headers[1:], arrived.after)
        return Arrived(self._buffer, arrived.headers + HEADER, ends)

    def _length(self) -> int:
        if self._low == self._high and len(self._buffer) > _BUFFER + PAD:
            self._buffer, self._low, self._high = memoryview(bytearray(_BUFFER + PAD)), 0, 0
        self._fill(HEADER)
        return int.from_bytes(self._buffer[self._low : self._low + 3], "little")

    def _joined(self) -> memoryview:
        """A payload that spans packets."""
        joined, length = bytearray(), FULL
        while length == FULL:
            length = self._length()
            if len(joined) + length > MAX_EVENT:
                raise DecodeError(f"an event of more than {MAX_EVENT} bytes")
            self._fill(HEADER + length)
            start = self._low + HEADER
            self._low = start + length
            joined += self._buffer[start : self._low]
        return memoryview(joined)

    def _fill(self, count: int) -> None:
        """Has at least `count` bytes from `_low` on in the buffer."""
        if self._high - self._low >= count:
            return
        rest = bytes(self._buffer[self._low : self._high])
        if len(self._buffer) < count + PAD:
            self._buffer = memoryview(bytearray(max(count, _BUFFER) + PAD))
        self._buffer[: len(rest)] = rest
        self._low, self._high = 0, len(rest)
        received = self._received(count)
        if received >= _BACKLOG:
            self._drain()

    def _received(self, count: int) -> int:
        """Waits for `count` bytes from `_low` on; how many came at once at the end. Raises
        ConnectionError for a server that closes or that sends too slowly."""
        received, begun, before = 0, float("inf"), self._high
        while self._high < count:
            received = self._receive()
            if not received:
                raise ConnectionError("the server closed the connection")
            now, seconds = self._clock(), self._sock.gettimeout() or float("inf")
            if now - begun > seconds:
                if self._high - before < _LEAST_RATE * seconds:
                    raise ConnectionError(f"less than {_LEAST_RATE} bytes a second of a packet")
                begun, before = now, self._high
            begun = min(begun, now)
        return received

    def _receive(self) -> int:
        received = self._sock.recv_into(self._buffer[self._high : len(self._buffer) - PAD])
        self._high += received
        return received

    def _drain(self) -> None:
        """What has come already, without waiting for more. An end or an error is met by the next
        wait: what came before it counts, such as the reason for which the server ends the dump."""
        seconds = self._sock.gettimeout()
        self._sock.settimeout(0)
        try:
            while self._high < len(self._buffer) - PAD and self._receive():
                continue
        except OSError:
            pass
        finally:
            self._sock.settimeout(seconds)
