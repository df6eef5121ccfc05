"""Writes MySQL's binary JSON, small and large, for tests of its readers (after `json_binary.h`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from support.images import stored_decimal


@dataclass(frozen=True)
class Opaque:
    """A value of a column type that JSON has not: the type and its bytes."""

    kind: int
    data: bytes


def document(value: Any, *, large: bool = False) -> bytes:
    """The value's kind and its bytes."""
    kind, data = _encoded(value, large)
    return bytes([kind]) + data


def _encoded(value: Any, large: bool) -> tuple[int, bytes]:
    match value:
        case None | True | False:
            return 4, bytes([{None: 0, True: 1, False: 2}[value]])
        case int():
            return _integer(value)
        case float():
            return 11, struct.pack("<d", value)
        case str():
            raw = value.encode()
            return 12, _length(len(raw)) + raw
        case Decimal():
            return _encoded(Opaque(246, _decimal(value)), large)
        case Opaque():
            return 15, bytes([value.kind]) + _length(len(value.data)) + value.data
        case dict():
            return int(large), _container(list(value.values()), [k.encode() for k in value], large)
        case _:
            return 2 + int(large), _container(list(value), None, large)


def _integer(value: int) -> tuple[int, bytes]:
    for kind, form in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q")):
        try:
            return kind, struct.pack(form, value)
        except struct.error:
            continue
    return 10, struct.pack("<Q", value)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale + 1)
    return bytes([precision, scale]) + stored_decimal(int("".join(map(str, digits))), bool(sign), precision, scale)


def _length(count: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = b""
    while count > 0x7F:
        out, count = out + bytes([count & 0x7F | 0x80]), count >> 7
    return out + bytes([count])


def _container(values: list[Any], keys: list[bytes] | None, large: bool) -> bytes:
    """The number of elements, the size; entries of keys (place, length), of elements (kind, place
    or value); keys; elements."""
    width = 4 if large else 2
    inlined = {4, 5, 6} | ({7, 8} if large else set())
    head = 2 * width + len(values) * (1 + width) + len(keys or ()) * (width + 2)
    tail = bytearray()
    key_entries, entries = b"", b""
    for key in keys or ():
        key_entries += (head + len(tail)).to_bytes(width, "little") + len(key).to_bytes(2, "little")
        tail += key
    for value in values:
        kind, data = _encoded(value, large)
        if kind in inlined:
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + (head + len(tail)).to_bytes(width, "little")
            tail += data
    size = head + len(tail)
    return len(values).to_bytes(width, "little") + size.to_bytes(width, "little") + key_entries + entries + bytes(tail)
