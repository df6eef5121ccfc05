"""Values as Debezium's JSON converter writes them, by the types of the source's columns.

The texts are those of Debezium with `time.precision.mode=isostring`,
`decimal.handling.mode=string`, `bigint.unsigned.handling.mode=precise`,
`binary.handling.mode=base64` and `enable.time.adjuster=false`. Where Debezium's value is wrong, as
for a negative TIME, the value is the server's. JSON documents of MySQL are the server's text, in
the stream without the blanks between its members. `debezium_reader` reads these texts back; a test
compares them with Debezium's own engine byte by byte.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.tables.source_table import GEOMETRIES, Column, SourceType
from cdcsync_spark.sinks.formats.json_text import Quoted, Style, bracketed, quoted_texts

_STYLE = Style(escape="\\u{:04X}")
_BEYOND = "[\U00010000-\U0010ffff]"
#: zeros that end a fraction, and the point before them
_LAST_ZEROS = r"\.0+$|(\.[0-9]*[1-9])0+$"
_TIME_OF_DAY = r"^(?:[01][0-9]|2[0-3]):"
_FIRST_ZEROS = r"^0+([0-9])"
#: of a JSON document: an escape; a text, which stays, or what MySQL has a blank behind
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.S)
_TEXT_OR_BLANK = r'("(?:[^"\\]|\\.)*")|([,:]) '
#: Java writes a number without an exponent from 1e-3 up to 1e7
_PLAIN = range(-3, 7)
#: of `2024-02-29T23:59:59`
_SECONDS_LENGTH = 19
SRID_BYTES = 4
_POINT = struct.Struct("<BI2d")

Texts = Callable[[pa.Array], Quoted]


def debezium_texts(columns: Iterable[Column], *, snapshot: bool = False) -> Callable[[str, pa.Array], Quoted]:
    """What makes the texts of a column's values, by its name; `snapshot`: in a snapshot's rows."""
    texts_by_column = {c.name: texts for c in columns if (texts := _texts_of(c.type, snapshot)) is not None}

    def texts_of(name: str, values: pa.Array) -> Quoted:
        return texts_by_column.get(name, _others)(values)

    return texts_of


def debezium_name(text: str) -> str:
    """A column's name, or another text, with the same escapes as values."""
    begin, texts, end = _others(pa.array([text]))
    return f"{begin}{texts[0]}{end}"


def _others(values: pa.Array) -> Quoted:
    """Texts of the character sets' columns, and what is written as everywhere."""
    begin, texts, end = quoted_texts(values, _STYLE)
    return begin, _in_pairs(texts) if pa.types.is_string(values.type) else texts, end


def _in_pairs(texts: pa.Array) -> pa.Array:
    """Characters beyond U+FFFF as two escapes, as Java's writer has them in UTF-8."""
    beyond = pc.fill_null(pc.match_substring_regex(texts, _BEYOND), False)
    if not pc.any(beyond).as_py():
        return texts
    escaped = [re.sub(_BEYOND, _pair, text) for text in texts.filter(beyond).to_pylist()]
    return pc.replace_with_mask(texts, beyond, pa.array(escaped, pa.string()))


def _pair(character: re.Match[str]) -> str:
    high, low = struct.unpack(">2H", character[0].encode("utf-16-be"))
    return f"\\u{high:04X}\\u{low:04X}"


def _texts_of(kind: SourceType, snapshot: bool) -> Texts | None:
    """None: as `json_text` has them."""
    if kind.base == "json":
        return None if snapshot else _documents
    if kind.base == "bigint":
        return _unsigned if kind.unsigned else None
    if kind.base == "bit":
        return None if kind.size in (-1, 1) else _bits
    if kind.base in GEOMETRIES:
        return _points if kind.base == "point" else _shapes
    if kind.base == "float":
        return _doubles_of_floats if kind.size >= 0 else _numbers
    if kind.base == "timestamp":
        return _instants(kind.size)
    return _TEXTS.get(kind.base)


def _each(values: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    """A text for each value that is none of NULL."""
    return pa.array([None if v is None else text(v) for v in values.to_pylist()], pa.string())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unsigned(values: pa.Array) -> Quoted:
    """The fewest bytes of two's complement, big endian, as Java's BigInteger has them."""
    numbers = [None if v is None else int(v) for v in values.to_pylist()]
    data = [None if n is None else n.to_bytes(n.bit_length() // 8 + 1, "big") for n in numbers]
    return '"', _each(pa.array(data, pa.binary()), _base64), '"'


def _bits(values: pa.Array) -> Quoted:
    """Little endian."""
    return '"', _each(values, lambda data: _base64(data[::-1])), '"'


def _shapes(values: pa.Array) -> Quoted:
    return "", _each(values, lambda data: f"{{{_members(data)}}}"), ""


def _points(values: pa.Array) -> Quoted:
    """Each point as an object that has its coordinates, too."""

    def text(data: bytes) -> str:
        _, _, x, y = _POINT.unpack(data[SRID_BYTES:])
        return f'{{"x":{java_text(repr(x))},"y":{java_text(repr(y))},{_members(data)}}}'

    return "", _each(values, text), ""


def _members(data: bytes) -> str:
    srid = int.from_bytes(data[:SRID_BYTES], "little")
    return f'"wkb":"{_base64(data[SRID_BYTES:])}","srid":{srid or "null"}'


def _dates(values: pa.Array) -> Quoted:
    return '"', pc.cast(values, pa.string()), 'Z"'


def _moments(values: pa.Array) -> Quoted:
    return '"', _fewest_digits(quoted_texts(values, _STYLE)[1]), 'Z"'


def _instants(digits: int) -> Texts:
    """Prints instants with as many digits of the second as the column has."""
    length = _SECONDS_LENGTH + (digits + 1 if digits > 0 else 0)

    def texts(values: pa.Array) -> Quoted:
        return '"', pc.utf8_slice_codeunits(quoted_texts(values, _STYLE)[1], 0, length), 'Z"'

    return texts


def _times(values: pa.Array) -> Quoted:
    """A time of day as ISO 8601 has it; a longer or negative one is the server's text."""
    days = pc.match_substring_regex(values, _TIME_OF_DAY)
    return '"', pc.if_else(days, pc.binary_join_element_wise(_fewest_digits(values), "Z", ""), values), '"'


def _fewest_digits(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, _LAST_ZEROS, r"\1")


def _decimals(values: pa.Array) -> Quoted:
    """One of more than 38 digits is the server's text, which ZEROFILL fills with zeros."""
    if pa.types.is_string(values.type):
        return '"', pc.replace_substring_regex(values, _FIRST_ZEROS, r"\1"), '"'
    return quoted_texts(values, _STYLE)


def _documents(values: pa.Array) -> Quoted:
    """Takes out the blanks that MySQL prints between members, and gives escapes the case that they
    have in Debezium's records."""
    texts = pc.replace_substring_regex(values, _TEXT_OR_BLANK, r"\1\2")
    escaped = pc.fill_null(pc.match_substring(texts, "\\u00"), False)
    if pc.any(escaped).as_py():
        upper = [with_escapes(text, str.upper) for text in texts.filter(escaped).to_pylist()]
        texts = pc.replace_with_mask(texts, escaped, pa.array(upper, pa.string()))
    return _others(texts)


def with_escapes(document: str, case: Callable[[str], str]) -> str:
    """A JSON document whose escapes of control characters have their digits in the case."""
    return _ESCAPE.sub(lambda match: f"\\u{case(match[1])}" if match[1] else match[0], document)


def _vectors(values: pa.Array) -> Quoted:
    return bracketed(values, _numbers(values.flatten())[1])


def _numbers(values: pa.Array) -> Quoted:
    """Each distinct number once."""
    distinct = pc.cast(values, pa.string()).dictionary_encode()
    narrow = pa.types.is_float32(values.type)
    texts = [java_text(text, narrow=narrow) for text in distinct.dictionary.to_pylist()]
    return "", pa.array(texts, pa.string()).take(distinct.indices), ""


def _doubles_of_floats(values: pa.Array) -> Quoted:
    """FLOAT(M,D) is a double to Debezium."""
    return _numbers(values.cast(pa.float64()))


def java_text(shortest: str, *, narrow: bool = False) -> str:
    """A number as Java 19 and later print it, of its shortest text; `narrow`: of 32 bits."""
    number = Decimal(shortest).normalize()
    if not number:
        return "-0.0" if number.is_signed() else "0.0"
    if len(number.as_tuple().digits) == 1:
        number = _of_two_digits(number, np.float32 if narrow else np.float64)
    if number.adjusted() in _PLAIN:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = number.as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{number.adjusted()}"


def _of_two_digits(number: Decimal, kind: Callable[[str], np.floating]) -> Decimal:
    """Java prefers the nearest decimal of two digits to one of one: 4.9E-324, not 5.0E-324."""
    stored = kind(str(number))
    near = Decimal(f"{float(stored):.1e}").normalize()
    return near if kind(str(near)) == stored else number


_TEXTS: dict[str, Texts] = {
    "date": _dates,
    "datetime": _moments,
    "time": _times,
    "decimal": _decimals,
    "double": _numbers,
    "vector": _vectors,
}
