"""Compressed events of both servers, unpacked with bounded memory.

MySQL puts a whole transaction into one event (TRANSACTION_PAYLOAD, zstd): it is unpacked one inner event at a time. MariaDB
compresses single rows and query events (zlib) and states the length beforehand.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.cursor import Buffer, Cursor

_HEADER = 19
#: the largest event that a server can write: max_allowed_packet plus what is around it
MAX_EVENT = (1 << 30) + (1 << 20)
_ZSTD, _NONE = 0, 255


def unpack_mariadb(raw: Buffer) -> bytes:
    """First byte: bit 7 set, algorithm (0: zlib) in bits 4 to 6, in the lowest three the width of the length, big endian."""
    cursor = Cursor(raw)
    head = cursor.byte()
    width = head & 7
    if not head & 0x80 or head & 0x70 or not 1 <= width <= 4:
        raise DecodeError(f"a compressed event that begins with {head:#x}", needed="zlib")
    length = int.from_bytes(cursor.bytes(width), "big")
    if length > MAX_EVENT:
        raise DecodeError(f"a compressed event of {length} bytes", needed=f"at most {MAX_EVENT}")
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(cursor.rest(), length + 1)
    except zlib.error as e:
        raise DecodeError(f"a compressed event that zlib cannot read: {e}") from None
    if len(data) != length or not unpacker.eof:
        raise DecodeError(f"a compressed event of {length} bytes unpacks to {len(data)} bytes")
    return data


def unpack_payload(body: Buffer) -> Iterator[bytes]:
    """The inner events of a TRANSACTION_PAYLOAD event, without checksums.

    The body is fields of (kind, length, value): 1 the payload's length, 2 the algorithm (0 zstd, 255 none), 3 the unpacked length;
    kind 0 ends the list, the payload follows.
    """
    cursor = Cursor(body)
    fields: dict[int, int] = {}
    while kind := cursor.lenenc():
        value = Cursor(cursor.bytes(cursor.lenenc()))
        fields[kind] = value.lenenc()
    if not {1, 2} <= fields.keys():
        raise DecodeError(
            f"a compressed transaction with the fields {sorted(fields)}", needed="length (1) and algorithm (2)"
        )
    payload = pa.BufferReader(pa.py_buffer(cursor.bytes(fields[1])))
    if fields[2] not in (_ZSTD, _NONE):
        raise DecodeError(f"a transaction compressed by algorithm {fields[2]}", needed="zstd (0)")
    stream = payload if fields[2] == _NONE else pa.CompressedInputStream(payload, "zstd")
    total = 0
    for event in _events(stream):
        total += len(event)
        yield event
    if total != fields.get(3, total):
        raise DecodeError(f"a compressed transaction of {fields[3]} bytes unpacks to {total} bytes")


def _events(stream: pa.NativeFile) -> Iterator[bytes]:
    while header := _read(stream, _HEADER):
        length = int.from_bytes(header[9:13], "little")
        if len(header) < _HEADER or not _HEADER <= length <= MAX_EVENT:
            raise DecodeError(f"an event header in a compressed transaction: {header.hex()}")
        body = _read(stream, length - _HEADER)
        if len(body) != length - _HEADER:
            raise DecodeError(f"a compressed transaction ends inside an event of {length} bytes")
        yield header + body


def _read(stream: pa.NativeFile, count: int) -> bytes:
    """Exactly `count` bytes, fewer at the end only."""
    pieces: list[bytes] = []
    while count:
        try:
            piece = stream.read(count)
        except (OSError, pa.ArrowException) as e:
            raise DecodeError(f"a compressed transaction that zstd cannot read: {e}") from None
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
