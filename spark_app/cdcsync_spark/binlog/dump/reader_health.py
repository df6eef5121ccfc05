"""What the binlog reader has received so far, visible to the driver's process also while a batch is
being applied, or hangs.

Why it exists: the reader lives in Spark's process for sources, and its batches go through Spark and
the sink. A sink that hangs would hide whether the source still sends. So the reader writes it to a
file of the run's scratch folder, which both processes map. Why it is right: a record is written in
one piece with a checksum, so one that is being written is recognised and reread. Times are those of
the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_RECORD = struct.Struct("<dddQ?")
_CHECK = struct.Struct("<I")
_BYTES = _RECORD.size + _CHECK.size
_NEVER = -1.0
#: a record that is being written is whole a moment later
_ATTEMPTS = 100


@dataclass(frozen=True)
class Received:
    """`since` is when the reader began to receive, `last` the arrival of the last event or
    heartbeat (None: none yet), `end` the arrival of a heartbeat at the end of the binlog after
    which no event came (None: one has). `changes` counts as in `BinlogBatch`. `blocked`: the reader
    does not receive, because it waits until a full batch is consumed, or searches the binlog.
    """

    since: float
    last: float | None = None
    end: float | None = None
    changes: int = 0
    blocked: bool = False

    def to_bytes(self) -> bytes:
        times = (self.since, _stored(self.last), _stored(self.end))
        record = _RECORD.pack(*times, self.changes, self.blocked)
        return record + _CHECK.pack(zlib.crc32(record))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """None for what is no whole record."""
        record = data[: _RECORD.size]
        if _CHECK.unpack(data[_RECORD.size :])[0] != zlib.crc32(record):
            return None
        since, last, end, changes, blocked = _RECORD.unpack(record)
        return cls(since, _read(last), _read(end), changes, blocked)


class ReceivedFile:
    """A record that one process writes and another one reads."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < _BYTES:
                os.ftruncate(descriptor, _BYTES)
            self._map = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)

    def write(self, received: Received) -> None:
        self._map[:] = received.to_bytes()

    def read(self) -> Received | None:
        """None before the first one was written."""
        for _ in range(_ATTEMPTS):
            received = Received.from_bytes(self._map[:])
            if received is not None:
                return received
        return None


def _stored(time: float | None) -> float:
    return _NEVER if time is None else time


def _read(stored: float) -> float | None:
    return None if stored == _NEVER else stored
