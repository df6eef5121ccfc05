"""What every event has: the 19 bytes before its body, and the checksum behind it."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.event.event_type import EventType

HEADER = struct.Struct("<IBIIIH")
CRC = struct.Struct("<I")
#: where an event's type is, behind its timestamp
KIND = 4
_IN_USE = 0x01
#: a heartbeat of 32 bits that seems to lead so far ahead comes from behind
_FAR = 1 << 31
_ROTATE, _FORMAT = EventType.ROTATE.value, EventType.FORMAT_DESCRIPTION.value


class Header(NamedTuple):
    """The 19 bytes that begin every event."""

    timestamp: int
    kind: int
    server: int
    length: int
    log_pos: int
    flags: int


def read_header(event: memoryview) -> Header:
    if len(event) < HEADER.size:
        raise DecodeError(f"an event of {len(event)} bytes", needed=f"at least {HEADER.size}")
    header = tuple.__new__(Header, HEADER.unpack_from(event))  # without the Python of its constructor
    if header.length != len(event):
        raise DecodeError(f"an event of {len(event)} bytes whose header gives {header.length}")
    return header


def has_crc(event: memoryview, end: int) -> bool:
    return zlib.crc32(event[:end]) == CRC.unpack_from(event, end)[0]


def damaged(header: Header) -> DecodeError:
    return DecodeError(f"an event of kind {header.kind} whose CRC32 is wrong", needed="an undamaged binlog and network")


def continued(offset: int, log_pos: int) -> int:
    """The next 64-bit place from `offset` on whose low 32 bits are `log_pos`."""
    place = offset & ~0xFFFFFFFF | log_pos
    return place if place >= offset else place + (1 << 32)


def waited_at(offset: int, place: int) -> int | None:
    """Where a heartbeat at `place` is, whose 32 bits are continued from `offset`; None for an older
    one, which has no new position: read as one beyond 4 GiB it would skip events."""
    if place >> 32:
        return place if place >= offset else None
    at = continued(offset, place)
    return at if at - offset < _FAR else None


def body_end(header: Header, event: memoryview, checksum: bool) -> int:
    """Where the body ends, for events before it is known whether there are checksums, and for
    binlogs without; `checksum` is whether the binlog has them. Raises DecodeError where one is
    wrong."""
    end = len(event) - CRC.size
    if header.kind == _ROTATE and not header.log_pos:
        # artificial, sent on connect and before a file: no format description says yet whether
        # it has a checksum
        return end if end > HEADER.size and has_crc(event, end) else len(event)
    if not checksum:
        return end if header.kind == _FORMAT else len(event)
    if header.kind == _FORMAT and header.flags & _IN_USE:
        # the checksum was computed before the server marked the file as open
        closed = bytearray(event)
        closed[17] &= ~_IN_USE & 0xFF
        event = memoryview(closed)
    if end < HEADER.size or not has_crc(event, end):
        raise damaged(header)
    return end
