"""A server's response to COM_STMT_EXECUTE, as bytes: what decoders of result sets are tested
with."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from cdcsync_spark.wire.resultset.framing import FULL
from cdcsync_spark.wire.resultset.packets import CAPACITY, Payloads, ResultPackets
from cdcsync_spark.wire.resultset.response import Definition, ResultSet

UTF8, BINARY = 45, 63
UNSIGNED = 0x20
#: header 0xfe, no warnings, status autocommit
EOF = b"\xfe\0\0\2\0"
#: 1317 (0x0525), state 70100
KILLED = b"\xff\x25\x05#70100Query execution was interrupted"


def lenenc(number: int) -> bytes:
    for limit, code, width in ((251, b"", 1), (1 << 16, b"\xfc", 2), (1 << 24, b"\xfd", 3)):
        if number < limit:
            return code + number.to_bytes(width, "little")
    return b"\xfe" + number.to_bytes(8, "little")


def string(raw: bytes) -> bytes:
    return lenenc(len(raw)) + raw


def definition(name: str, code: int, flags: int = 0, collation: int = BINARY) -> bytes:
    names = (b"def", b"shop", b"t", b"t", name.encode(), name.encode())
    return b"".join(map(string, names)) + b"\x0c" + struct.pack("<HIBHBH", collation, 11, code, flags, 0, 0)


def row(cells: Sequence[bytes | None]) -> bytes:
    """The cells as the wire has them, lengths included; a NULL is a bit, the first of them the
    third."""
    bits = sum(1 << i for i, cell in enumerate(cells, 2) if cell is None)
    return b"\0" + bits.to_bytes((len(cells) + 9) // 8, "little") + b"".join(c for c in cells if c is not None)


def packets(payloads: Iterable[bytes], sequence: int = 1) -> Iterator[bytes]:
    """A payload of 16 MiB or more in as many packets as it needs, the last of them shorter than
    that."""
    for payload in payloads:
        for start in range(0, len(payload) + 1, FULL):
            part = payload[start : start + FULL]
            yield struct.pack("<I", len(part) | (sequence & 0xFF) << 24) + part
            sequence += 1


def response(definitions: Sequence[bytes], rows: Iterable[bytes], end: bytes = EOF) -> bytes:
    return b"".join(packets([lenenc(len(definitions)), *definitions, EOF, *rows, end]))


def receive(
    data: bytes, step: int = 1 << 16, capacity: int = CAPACITY
) -> tuple[list[Definition], list[bytes], ResultSet]:
    """Definitions and rows of what comes `step` bytes at a time."""
    result = ResultSet(ResultPackets(capacity=capacity))
    found: list[bytes] = []
    definitions: list[Definition] | None = None
    at = 0
    while True:
        definitions = definitions or result.definitions()
        if definitions is not None:
            found += payloads(result.rows())
        if result.ended or at == len(data):
            return definitions or [], found, result
        room = result.packets.room()
        count = min(step, len(room), len(data) - at)
        room[:count] = data[at : at + count]
        room.release()
        result.packets.filled(count)
        at += count


def payloads(found: Payloads) -> list[bytes]:
    return [bytes(found.data[s:e]) for s, e in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
