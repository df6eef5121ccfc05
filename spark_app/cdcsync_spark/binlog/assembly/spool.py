"""Rows events that wait for the end of their transaction, in memory up to a bound and on local disk
beyond.

A transaction may be larger than memory. Its events are kept as the binlog has them, so that they
can be dropped (ROLLBACK TO SAVEPOINT) before anything is decoded. What goes to disk goes to a
segment, an unnamed file that lives as long as an event in it is referred to: nothing is left
behind, however the process ends.

An event is small where rows are changed one by one, so what Python keeps per event counts as
memory, too; on disk the images of successive events of one table and operation become one event,
which is the same to the decoder.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from typing import NamedTuple

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.wire.binlog.facts import RowsEvent


class _Segment:
    """Bytes that are appended and read back; closed with the last reference."""

    def __init__(self, folder: str) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._end = 0
        weakref.finalize(self, self._file.close)

    @property
    def size(self) -> int:
        return self._end

    def append(self, data: bytes) -> int:
        """The offset of `data`; after an error the segment is as before."""
        offset, rest = self._end, memoryview(data)
        while rest:
            rest = rest[os.pwrite(self._file.fileno(), rest, offset + len(data) - len(rest)) :]
        self._end += len(data)
        return offset

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._file.fileno(), length, offset)
        if len(data) != length:
            raise OSError(errno.EIO, f"{len(data)} of {length} bytes were read back")
        return data


#: what an event costs besides its body: the event, its entries in lists, Python's overhead of both
EVENT_BYTES = 400
#: events on disk are joined up to this size, or this part of what lies before them: small ones are
#: decoded in step, and few are kept
_JOINED_BYTES = 1 << 16
_JOINED_PART = 1 << 14


#: the part of the memory for rows that wait for longer than their batch
_HELD_PART = 8
#: those on disk share a file up to this size: a file takes a descriptor, and its space until the
#: last of them is gone
_HELD_SEGMENT_BYTES = 64 << 20


class Spooled(NamedTuple):
    """An event whose body is in memory, or `length` bytes at `offset` of a segment."""

    head: RowsEvent
    segment: _Segment | None = None
    offset: int = 0
    length: int = 0

    @property
    def size(self) -> int:
        """The size of the body, in bytes."""
        return len(self.head.body) if self.segment is None else self.length

    def event(self) -> RowsEvent:
        """The event with its body."""
        if self.segment is None:
            return self.head
        return self.head._replace(body=self.segment.read(self.offset, self.length))

    def joined(self, other: Spooled) -> Spooled | None:
        """Both as one event; None where they are not one after the other, or not alike."""
        follows = (
            self.segment is not None and self.segment is other.segment and self.offset + self.length == other.offset
        )
        own, others = self.head, other.head
        alike = own.map is others.map and own.operation is others.operation and own.defect is others.defect
        # one without images stays by itself
        usable = own.defect is None or (own.left_out == others.left_out != ())
        longest = max(_JOINED_BYTES, other.offset // _JOINED_PART)
        if not follows or not alike or not usable or self.length + other.length > longest:
            return None
        return self._replace(length=self.length + other.length)


def _in_memory(rows: list[Spooled]) -> int:
    return sum(item.size + EVENT_BYTES for item in rows if item.segment is None)


class Spool:
    """Holds about `memory_bytes` of events in memory, the rest in `folder`."""

    def __init__(self, folder: str, memory_bytes: int) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._in_memory = 0
        self._segment: _Segment | None = None
        self._held = 0
        self._held_segment: _Segment | None = None

    def add_to(self, rows: list[Spooled], event: RowsEvent, barrier: int = 0) -> None:
        """Appends to `rows`, of which those before index `barrier` stay as they are; raises
        TransactionTooLarge for a full disk."""
        needed = len(event.body) + EVENT_BYTES
        if self._in_memory + needed <= self._memory_bytes:
            self._in_memory += needed
            rows.append(Spooled(event))
            return
        added = self._written(event)
        joined = rows[-1].joined(added) if len(rows) > barrier else None
        if joined is None:
            rows.append(added)
        else:
            rows[-1] = joined

    def account(self, size: int) -> None:
        """Rows of `size` bytes in memory, `EVENT_BYTES` of each event included, that are kept
        elsewhere."""
        self._in_memory += size

    def _written(self, event: RowsEvent) -> Spooled:
        self._segment = self._segment or self._new_segment()
        return self._write(event, self._segment)

    def _new_segment(self) -> _Segment:
        try:
            return _Segment(self._folder)
        except OSError as e:
            raise disk_error(e, self._folder) from e

    def _write(self, event: RowsEvent, segment: _Segment) -> Spooled:
        try:
            offset = segment.append(event.body)
        except OSError as e:
            raise disk_error(e, self._folder) from e
        return Spooled(event._replace(body=b""), segment, offset, len(event.body))

    def hold(self, rows: list[Spooled]) -> list[Spooled]:
        """Rows that wait for longer than their batch (XA): in a part of the memory, beyond it on
        disk."""
        needed = _in_memory(rows)
        if self._held + needed <= self._memory_bytes // _HELD_PART:
            self._held += needed
            return rows
        if self._held_segment is None or self._held_segment.size > _HELD_SEGMENT_BYTES:
            self._held_segment = self._new_segment()
        segment = self._held_segment
        return [item if item.segment else self._write(item.head, segment) for item in rows]

    def release(self, rows: list[Spooled]) -> None:
        """The end of what `hold` returned."""
        self._held -= _in_memory(rows)

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
            needed="room for the largest transaction three times: from the binlog, as Arrow, and its last images",
            remedy="give the driver more scratch space, then run again",
        )
    return fail(Reason.INTERNAL_ERROR, f"the scratch disk failed: {error.strerror}", remedy="check the driver's disk")
