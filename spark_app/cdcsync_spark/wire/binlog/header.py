"""What every event has: the 19 bytes before its body, and the checksum behind it."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from cdcsync_core.errors import DecodeError

HEADER = struct.Struct("<IBIIIH")
CRC = struct.Struct("<I")


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
