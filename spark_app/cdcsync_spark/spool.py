"""Rows events that wait for the end of their transaction, in memory up to a bound and on local disk beyond.

A transaction may be larger than memory. Its events are kept as the log has them, so that they can be dropped
(ROLLBACK TO SAVEPOINT) before anything is decoded. What goes to disk goes to a segment, an unnamed file that lives as long as
an event in it is referred to: nothing is left behind, however the process ends.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass, replace

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.wire.facts import RowsEvent


class _Segment:
    """Bytes that are appended and read back."""

    def __init__(self, folder: str) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with its last reference)
        self._end = 0

    def append(self, data: bytes) -> int:
        offset = self._end
        self._file.seek(offset)
        self._file.write(data)
        self._file.flush()
        self._end += len(data)
        return offset

    def read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)


@dataclass(frozen=True, slots=True)
class Spooled:
    """An event whose body is in memory, or `length` bytes at `offset` of a segment."""

    head: RowsEvent
    segment: _Segment | None = None
    offset: int = 0
    length: int = 0

    def event(self) -> RowsEvent:
        """The event with its body."""
        if self.segment is None:
            return self.head
        return replace(self.head, body=self.segment.read(self.offset, self.length))


class Spool:
    """Holds about `memory_bytes` of bodies in memory, the rest in `folder`."""

    def __init__(self, folder: str, memory_bytes: int) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._in_memory = 0
        self._segment: _Segment | None = None

    def add(self, event: RowsEvent) -> Spooled:
        """Raises TransactionTooLarge when the disk is full."""
        if self._in_memory + len(event.body) <= self._memory_bytes:
            self._in_memory += len(event.body)
            return Spooled(event)
        try:
            self._segment = self._segment or _Segment(self._folder)
            offset = self._segment.append(event.body)
        except OSError as e:
            raise disk_error(e, self._folder) from e
        return Spooled(replace(event, body=b""), self._segment, offset, len(event.body))

    def rotate(self) -> None:
        """What is added from now on does not share a file with what was added before."""
        self._segment, self._in_memory = None, 0


def disk_error(error: OSError, folder: str) -> CdcError:
    """A full scratch disk is the bound of a transaction's size; anything else is worth a retry."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = os.statvfs(folder)
        return fail(
            Reason.TRANSACTION_TOO_LARGE,
            f"the scratch disk is full ({free.f_bavail * free.f_frsize >> 20} MiB left)",
            needed="room for the largest transaction twice: as the log has it and as Arrow",
            remedy="give the driver more scratch space, then run again",
        )
    return fail(Reason.INTERNAL_ERROR, f"the scratch disk failed: {error.strerror}", remedy="check the driver's disk")
