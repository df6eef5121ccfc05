"""MySQL's binary JSON to the text that the server prints for it.

Offsets are relative to the object or array that holds them. Printing follows the server: a blank
after `,` and `:`, members in stored order (by length, then bytes), shortest numbers that read back
the same. Sources: MySQL `sql-common/json_binary.h` (the format), `sql-common/json_dom.cc`
(wrapper_to_string), `strings/dtoa.cc` (my_gcvt).
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from functools import lru_cache

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.json.json_bytes import JsonBytes
from cdcsync_spark.wire.binlog.number import decimal_text, shortest_double
from cdcsync_spark.wire.binlog.temporal import packed_date_text, packed_datetime_text, packed_time_text

_MAX_DEPTH = 200
_BASE64_LINE = 76
_LITERALS = {0: "null", 1: "true", 2: "false"}
_OBJECTS, _CONTAINERS = (0, 1), (0, 1, 2, 3)
_LITERAL, _INT16, _UINT16, _INT32, _UINT32 = 4, 5, 6, 7, 8
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
#: numbers by their kind
_NUMBERS = {
    5: struct.Struct("<h"),
    6: struct.Struct("<H"),
    7: struct.Struct("<i"),
    8: struct.Struct("<I"),
    9: struct.Struct("<q"),
}
_NUMBERS[10] = struct.Struct("<Q")
#: keys whose text is kept are not longer
_SHORT_KEY = 64

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\f": "\\f", "\n": "\\n", "\r": "\\r"}


class _ContainerForm:
    """How a container is written: small ones have offsets of 2 bytes, large ones of 4."""

    def __init__(self, width: int, letter: str) -> None:
        self.width = width
        self.head = struct.Struct(f"<{letter}{letter}")
        self.key = struct.Struct(f"<{letter}H")
        self.element = struct.Struct(f"<B{letter}")
        self.inlined = frozenset({_LITERAL, _INT16, _UINT16} | ({_INT32, _UINT32} if width == 4 else set()))


_FORMS = (_ContainerForm(2, "H"), _ContainerForm(4, "I"))


def json_text(raw: bytes) -> str:
    """`raw` is a JSON column's value in a row image; raises DecodeError."""
    if not raw:
        return "null"
    try:
        return _Document(raw).value(raw[0], 1, 0)
    except (IndexError, struct.error):
        raise DecodeError(f"a JSON value that ends before its {len(raw)} bytes do") from None
    except UnicodeDecodeError as e:
        raise DecodeError(f"a string in a JSON value that is not UTF-8: {e}") from None


def quote(text: str) -> str:
    """A JSON string as the server quotes it."""
    if _ESCAPED.search(text):
        text = _ESCAPED.sub(lambda m: _ESCAPES.get(m[0]) or f"\\u{ord(m[0]):04x}", text)
    return f'"{text}"'


@lru_cache(maxsize=4096)
def _short_key(raw: bytes) -> str:
    return quote(raw.decode())


class _Document(JsonBytes):
    """One value."""

    def value(self, kind: int, at: int, depth: int) -> str:
        if kind == _STRING:
            length, at = self._length(at)
            return quote(self._bytes(at, length).decode())
        if kind in _CONTAINERS:
            return self._container(kind, at, depth)
        number = _NUMBERS.get(kind)
        if number:
            return str(number.unpack_from(self._raw, at)[0])
        if kind == _DOUBLE:
            return shortest_double(self._bytes(at, 8))
        if kind == _OPAQUE:
            length, start = self._length(at + 1)
            return _opaque(self._raw[at], self._bytes(start, length))
        if kind == _LITERAL:
            return _literal(self._raw[at])
        raise DecodeError(f"a JSON value of the kind {kind}")

    def _container(self, kind: int, at: int, depth: int) -> str:
        raw, form = self._raw, _FORMS[kind & 1]
        count, size = form.head.unpack_from(raw, at)
        if at + size > len(raw) or depth > _MAX_DEPTH:
            raise DecodeError(f"a JSON value of {size} bytes, {depth} deep, where {len(raw) - at} bytes are left")
        self._spend(count)
        first = at + form.head.size
        if kind not in _OBJECTS:
            return "[" + ", ".join(self._elements(first, count, at, form, depth)) + "]"
        keys = raw[first : first + count * form.key.size]
        names = [self._key(at + offset, length) for offset, length in form.key.iter_unpack(keys)]
        elements = self._elements(first + len(keys), count, at, form, depth)
        return "{" + ", ".join([f"{n}: {e}" for n, e in zip(names, elements, strict=True)]) + "}"

    def _key(self, at: int, length: int) -> str:
        raw = self._bytes(at, length)
        return _short_key(raw) if length <= _SHORT_KEY else quote(raw.decode())

    def _elements(self, first: int, count: int, start: int, form: _ContainerForm, depth: int) -> list[str]:
        """Entries of kind and number, which is the value itself if it is small enough, else where
        it is, seen from `start`."""
        entries = self._raw[first : first + count * form.element.size]
        if len(entries) < count * form.element.size:
            raise DecodeError(f"a JSON value with {count} elements and without room for them")
        elements = []
        at = first + 1
        for kind, number in form.element.iter_unpack(entries):
            elements.append(self.value(kind, at if kind in form.inlined else start + number, depth + 1))
            at += form.element.size
        return elements

    def _length(self, at: int) -> tuple[int, int]:
        """A length and where it ends: seven bits a byte, the lowest first; the highest bit says
        that more follow."""
        length = 0
        for shift in range(0, 35, 7):
            byte = self._raw[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return length, at
        raise DecodeError("a length in a JSON value that does not end")


def _literal(number: int) -> str:
    if number not in _LITERALS:
        raise DecodeError(f"the JSON literal {number}")
    return _LITERALS[number]


def _opaque(kind: int, data: bytes) -> str:
    """A value of a column type that JSON has not."""
    printer = _PRINTERS.get(kind)
    if printer:
        return printer(data)
    digits = base64.b64encode(data).decode()
    lines = "\n".join(digits[i : i + _BASE64_LINE] for i in range(0, len(digits), _BASE64_LINE))
    return quote(f"base64:type{kind}:{lines}")


def _decimal(data: bytes) -> str:
    if len(data) < 2:
        raise DecodeError("a decimal in a JSON value without precision and scale")
    return decimal_text(data[2:], data[0], data[1])


def _packed(printer: Callable[[int], str]) -> Callable[[bytes], str]:
    def text(data: bytes) -> str:
        if len(data) != 8:
            raise DecodeError(f"a temporal value of {len(data)} bytes in a JSON value", needed="8")
        return f'"{printer(int.from_bytes(data, "little", signed=True))}"'

    return text


_PRINTERS: dict[int, Callable[[bytes], str]] = {
    246: _decimal,
    7: _packed(packed_datetime_text),
    10: _packed(packed_date_text),
    11: _packed(packed_time_text),
    12: _packed(packed_datetime_text),
}
