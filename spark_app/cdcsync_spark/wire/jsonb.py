"""MySQL's binary JSON to the text that the server prints for it.

Offsets are relative to the object or array that holds them. Printing follows the server: a blank after `,` and `:`, members in stored
order (by length, then bytes), shortest numbers that read back the same. Sources: MySQL `sql-common/json_binary.h` (the format),
`sql-common/json_dom.cc` (wrapper_to_string), `strings/dtoa.cc` (my_gcvt).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.cursor import Cursor
from cdcsync_spark.wire.number import decimal_text, shortest_double
from cdcsync_spark.wire.temporal import packed_date_text, packed_datetime_text, packed_time_text

_MAX_DEPTH = 200
_BASE64_LINE = 76
_LITERAL = {0: "null", 1: "true", 2: "false"}
_OBJECTS, _ARRAYS = (0, 1), (2, 3)
_LITERAL_TYPE, _INT16, _UINT16, _INT32, _UINT32 = 4, 5, 6, 7, 8
_INTEGERS = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\f": "\\f", "\n": "\\n", "\r": "\\r"}


def json_text(raw: bytes) -> str:
    """`raw` is a JSON column's value in a row image; raises DecodeError."""
    if not raw:
        return "null"
    return _Document(raw).value(raw[0], 1, 0)


def quote(text: str) -> str:
    """A JSON string as the server quotes it."""
    return '"' + _ESCAPED.sub(lambda m: _ESCAPES.get(m[0]) or f"\\u{ord(m[0]):04x}", text) + '"'


class _Document:
    """One value; `_left` bounds the work, because every element of a sound document takes bytes of its own."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._left = len(raw)

    def value(self, kind: int, at: int, depth: int) -> str:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            raise DecodeError("a JSON value that nests or repeats without end")
        if kind in _OBJECTS or kind in _ARRAYS:
            return self._container(kind, at, depth)
        cursor = Cursor(self._raw, at)
        if kind in _INTEGERS:
            width, signed = _INTEGERS[kind]
            return str(int.from_bytes(cursor.take(width), "little", signed=signed))
        reader = _SCALARS.get(kind)
        if reader is None:
            raise DecodeError(f"a JSON value of the kind {kind}")
        return reader(cursor)

    def _container(self, kind: int, at: int, depth: int) -> str:
        width = 4 if kind & 1 else 2
        cursor = Cursor(self._raw, at)
        count, size = cursor.uint(width), cursor.uint(width)
        if at + size > len(self._raw):
            raise DecodeError(f"a JSON value of {size} bytes where {len(self._raw) - at} are left")
        keys = [(cursor.uint(width), cursor.uint(2)) for _ in range(count)] if kind in _OBJECTS else []
        elements = [self._element(cursor, at, width, depth) for _ in range(count)]
        if kind in _ARRAYS:
            return "[" + ", ".join(elements) + "]"
        names = [quote(Cursor(self._raw, at + offset).text(length)) for offset, length in keys]
        return "{" + ", ".join(f"{n}: {e}" for n, e in zip(names, elements, strict=True)) + "}"

    def _element(self, cursor: Cursor, start: int, width: int, depth: int) -> str:
        """An entry of a container: kind, and the value itself if it is small enough, else where it is."""
        kind = cursor.byte()
        inlined = kind in (_LITERAL_TYPE, _INT16, _UINT16) or (width == 4 and kind in (_INT32, _UINT32))
        here = cursor.skip(width)
        at = here if inlined else start + int.from_bytes(self._raw[here : here + width], "little")
        return self.value(kind, at, depth + 1)


def _length(cursor: Cursor) -> int:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    length = 0
    for shift in range(0, 35, 7):
        byte = cursor.byte()
        length |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return length
    raise DecodeError("a length in a JSON value that does not end")


def _literal(cursor: Cursor) -> str:
    number = cursor.byte()
    if number not in _LITERAL:
        raise DecodeError(f"the JSON literal {number}")
    return _LITERAL[number]


def _string(cursor: Cursor) -> str:
    return quote(cursor.text(_length(cursor)))


def _double(cursor: Cursor) -> str:
    return shortest_double(cursor.take(8))


def _opaque(cursor: Cursor) -> str:
    """A value of a column type that JSON has not."""
    kind = cursor.byte()
    data = cursor.take(_length(cursor))
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


_SCALARS: dict[int, Callable[[Cursor], str]] = {
    _LITERAL_TYPE: _literal,
    _DOUBLE: _double,
    _STRING: _string,
    _OPAQUE: _opaque,
}
_PRINTERS: dict[int, Callable[[bytes], str]] = {
    246: _decimal,
    7: _packed(packed_datetime_text),
    10: _packed(packed_date_text),
    11: _packed(packed_time_text),
    12: _packed(packed_datetime_text),
}
