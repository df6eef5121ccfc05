"""Compressed events of both servers, unpacked with bounded memory.

MySQL puts a whole transaction into one event (TRANSACTION_PAYLOAD, zstd): it is unpacked one inner
event at a time, and of one beyond the bound the beginning alone, which names its table. MariaDB
compresses single rows and query events (zlib) and states the length beforehand.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.cursor import Buffer, Cursor

_HEADER = 19
#: of an event that is not unpacked: its header, and a table's number and flags
_BEGINNING = _HEADER + 8
#: what is unpacked at once of an event that is passed over
_PIECE = 1 << 20
#: the largest event that a server can write: max_allowed_packet plus what is around it
MAX_EVENT = (1 << 30) + (1 << 20)
_ZSTD, _NONE = 0, 255


@dataclass
class Bound:
    """What one event or value may take unpacked, in bytes; a process that knows its memory lowers
    it."""

    largest: int = MAX_EVENT

    def refuse(self, length: int) -> None:
        if length > self.largest:
            raise DecodeError(
                f"compressed data of {length} bytes",
                needed=f"at most {self.largest} bytes, a part of the driver's memory (spec.driver.memory)",
            )


BOUND = Bound()


def unpack_mariadb(raw: Buffer) -> bytes:
    """First byte: bit 7 set, algorithm (0: zlib) in bits 4 to 6, in the lowest three the width of
    the length, big endian."""
    cursor = Cursor(raw)
    head = cursor.byte()
    width = head & 7
    if not head & 0x80 or head & 0x70 or not 1 <= width <= 4:
        raise DecodeError(f"a compressed event that begins with {head:#x}", needed="zlib")
    length = int.from_bytes(cursor.take(width), "big")
    return _inflated(zlib.decompressobj(), cursor.rest(), length)


def unpack_column(raw: bytes) -> bytes:
    """A value of a MariaDB COMPRESSED column: nothing if empty; 0 and the value; or 0x80 for zlib,
    with the width of the length in the lowest three bits, bit 3 set for a stream without zlib's own
    header, then the length, big endian, and the stream."""
    if not raw:
        return raw
    if not raw[0]:
        return raw[1:]
    width = raw[0] & 7
    if raw[0] & 0xF0 != 0x80 or not 1 <= width <= 4:
        raise DecodeError(f"a compressed value that begins with {raw[0]:#x}", needed="zlib")
    length = int.from_bytes(raw[1 : 1 + width], "big")
    return _inflated(zlib.decompressobj(-zlib.MAX_WBITS if raw[0] & 8 else zlib.MAX_WBITS), raw[1 + width :], length)


def stated_length(raw: bytes | None) -> int:
    """The bytes that `unpack_column` makes of a value, as the value says; refuses nothing."""
    if not raw:
        return 0
    return int.from_bytes(raw[1 : 1 + (raw[0] & 7)], "big") if raw[0] & 0x80 else len(raw) - 1


def unpack_values(raw: Iterable[bytes | None]) -> list[bytes | None]:
    """The values of a COMPRESSED column, bounded together. Raises DecodeError with the row of the
    value that is at fault."""
    values: list[bytes | None] = []
    total = 0
    for row, packed in enumerate(raw):
        try:
            values.append(None if packed is None else unpack_column(packed))
            total += len(values[-1] or b"")
            BOUND.refuse(total)
        except DecodeError as e:
            raise e.placed(row=row) from None
    return values


def _inflated(unpacker: zlib._Decompress, data: bytes, length: int) -> bytes:
    BOUND.refuse(length)
    try:
        unpacked = unpacker.decompress(data, length + 1)
    except zlib.error as e:
        raise DecodeError(f"compressed data that zlib cannot read: {e}") from None
    if len(unpacked) != length or not unpacker.eof:
        raise DecodeError(f"compressed data of {length} bytes unpacks to {len(unpacked)} bytes")
    return unpacked


class OversizedEvent(NamedTuple):
    """An inner event beyond the bound, which was passed over; `refusal` says so. `beginning` is its
    header and the first bytes of its body; the header states `length`."""

    beginning: bytes
    length: int
    refusal: DecodeError


def unpack_payload(body: Buffer) -> Iterator[bytes | OversizedEvent]:
    """The inner events of a TRANSACTION_PAYLOAD event, without checksums.

    The body is fields of (kind, length, value): 1 the payload's length, 2 the algorithm (0 zstd,
    255 none), 3 the unpacked length; kind 0 ends the list, the payload follows.
    """
    cursor = Cursor(body)
    fields: dict[int, int] = {}
    while kind := cursor.lenenc():
        value = Cursor(cursor.take(cursor.lenenc()))
        fields[kind] = value.lenenc()
    if not {1, 2} <= fields.keys():
        raise DecodeError(
            f"a compressed transaction with the fields {sorted(fields)}", needed="length (1) and algorithm (2)"
        )
    payload = pa.BufferReader(pa.py_buffer(cursor.take(fields[1])))
    if fields[2] not in (_ZSTD, _NONE):
        raise DecodeError(f"a transaction compressed by algorithm {fields[2]}", needed="zstd (0)")
    stream = payload if fields[2] == _NONE else pa.CompressedInputStream(payload, "zstd")
    total = 0
    for event in _events(stream):
        total += event.length if isinstance(event, OversizedEvent) else len(event)
        if total > fields.get(3, total):
            raise DecodeError(f"a compressed transaction of {fields[3]} bytes unpacks to more")
        yield event
    if total != fields.get(3, total):
        raise DecodeError(f"a compressed transaction of {fields[3]} bytes unpacks to {total} bytes")


def _events(stream: pa.NativeFile) -> Iterator[bytes | OversizedEvent]:
    while header := _read(stream, _HEADER):
        length = int.from_bytes(header[9:13], "little")
        if len(header) < _HEADER or not _HEADER <= length <= MAX_EVENT:
            raise DecodeError(f"an event header in a compressed transaction: {header.hex()}")
        try:
            BOUND.refuse(length)
        except DecodeError as refusal:
            yield _passed_over(stream, header, length, refusal)
        else:
            yield header + _all(stream, length - _HEADER)


def _passed_over(stream: pa.NativeFile, header: bytes, length: int, refusal: DecodeError) -> OversizedEvent:
    beginning = header + _all(stream, min(length, _BEGINNING) - _HEADER)
    rest = length - len(beginning)
    while rest:
        rest -= len(_all(stream, min(rest, _PIECE)))
    return OversizedEvent(beginning, length, refusal)


def _all(stream: pa.NativeFile, count: int) -> bytes:
    body = _read(stream, count)
    if len(body) != count:
        raise DecodeError(f"a compressed transaction ends inside an event, {count - len(body)} bytes before its end")
    return body


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
