"""Rows as JSON text, made column by column: no Python object for a value, none for a row.

Why it exists: a record of a message broker is the text of a row within a few fixed members.
`to_pylist` and a JSON library take four times the CPU for the rows [measured]. Arrow prints
integers, floats, dates and timestamps exactly; what it prints otherwise than JSON or a reader wants
is done here: escapes of texts, decimals below 1e-6 (`1E-18`), bytes, vectors. `json_rows` and
Python's own library are compared value by value in the tests.

No text may exceed 2 GiB in sum (Arrow's offsets): callers pass slices, see `json_records.slices`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_spark.sinks.formats.text_join import Part, Pick, join

_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_encode = json.JSONEncoder(ensure_ascii=False).encode
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = 34, 92, 32
#: up to which Arrow prints no decimal with an exponent
_PLAIN_SCALE = 6
#: of `2024-02-29`
_DATE_LENGTH = 10


#: texts, NULL where the value is, between what is before and behind each that is not
Quoted: TypeAlias = "tuple[str, pa.Array, str]"


@dataclass(frozen=True)
class Style:
    """How a format writes what JSON has no type for.

    `decimals_as_text`: "1.10" in quotation marks (also BIGINT UNSIGNED, whose values a reader may
    parse as a double otherwise), else as the number 1.10. `separator` is between date and time.
    `escape` is the form of characters below U+0020 that have no short one.
    """

    decimals_as_text: bool = True
    separator: str = "T"
    escape: str = "\\u{:04x}"


def json_rows(rows: pa.Table, style: Style) -> pa.Array:
    """A JSON object a row, of all columns in their order; NULL is `null`. A string array."""
    return join(rows.num_rows, *json_parts(rows, style))


def json_parts(rows: pa.Table, style: Style) -> list[Part]:
    """What the texts of `json_rows` are joined of, for a join with more."""
    return member_parts(rows, lambda _, values: quoted_texts(values, style), quoted)


def member_parts(
    rows: pa.Table, texts_of: Callable[[str, pa.Array], Quoted], name_text: Callable[[str], str]
) -> list[Part]:
    """The same, with the texts that `texts_of` makes of a column's values and `name_text` of its
    name."""
    parts, end = list[Part](), _End("{")
    for i, name in enumerate(rows.column_names):
        begin, texts, close = texts_of(name, single(rows[name]))
        presence = pc.cast(texts.is_valid(), pa.int32()) if texts.null_count else None
        parts += [_between(end, f"{',' if i else ''}{name_text(name)}:", begin, presence), texts]
        end = _End(close, presence if close else None)
    return [*parts, _between(end, "}", "", None)]


class _End(NamedTuple):
    """What is behind a column's values: `text`, but nothing where `presence` is zero."""

    text: str
    presence: pa.Array | None = None


def _between(end: _End, member: str, begin: str, presence: pa.Array | None) -> Part:
    """What is between the values of two columns, or `null` instead of the second one. One text a
    row, where quotation marks depend on two columns."""
    ends = [end.text] if end.presence is None else ["", end.text]
    begins = [begin] if presence is None else ["null", begin]
    texts = pa.array([e + member + b for e in ends for b in begins])
    chosen = presence
    if end.presence is not None:
        chosen = (
            end.presence if presence is None else pc.add(pc.multiply(end.presence, pa.scalar(2, pa.int32())), presence)
        )
    return texts[0].as_py() if chosen is None else Pick([texts], chosen)


def quoted(text: str) -> str:
    """A text as JSON, in UTF-8 as it is."""
    return _encode(text)


def quoted_texts(values: pa.Array, style: Style) -> Quoted:
    """The JSON texts of the values of a column as the batches have it (`arrow_schema`)."""
    for is_type, texts in _TEXTS:
        if is_type(values.type):
            return texts(values, style)
    raise TypeError(f"no JSON form of {values.type}")


def single(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a column's chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _escaped(texts: pa.Array, style: Style) -> pa.Array:
    """Only the escapes that occur cost a pass. All of them are single bytes below 128, which are no
    part of another character in UTF-8."""
    for byte in _bytes_to_escape(texts):
        texts = pc.replace_substring(texts, chr(byte), _SHORT.get(byte, style.escape.format(byte)))
    return texts


def _bytes_to_escape(texts: pa.Array) -> list[int]:
    """The backslash first: the escapes of the others bring backslashes in."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return []
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    octets = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    special = octets[(octets < _FIRST_PRINTABLE) | (octets == _QUOTE) | (octets == _BACKSLASH)]
    return sorted(set(special.tolist()), key=lambda byte: (byte != _BACKSLASH, byte))


def _text(values: pa.Array, style: Style) -> Quoted:
    return '"', _escaped(values, style), '"'


def _number(values: pa.Array, _: Style) -> Quoted:
    return "", pc.cast(values, pa.string()), ""


def _decimal(values: pa.Array, style: Style) -> Quoted:
    texts = pc.cast(values, pa.string())
    exponents = pc.fill_null(pc.match_substring(texts, "E"), False) if values.type.scale > _PLAIN_SCALE else None
    if exponents is not None and pc.any(exponents).as_py():
        plain = [format(v, "f") for v in values.filter(exponents).to_pylist()]
        texts = pc.replace_with_mask(texts, exponents, pa.array(plain, pa.string()))
    quote = '"' if style.decimals_as_text else ""
    return quote, texts, quote


def _date(values: pa.Array, _: Style) -> Quoted:
    return '"', pc.cast(values, pa.string()), '"'


def _timestamp(values: pa.Array, style: Style) -> Quoted:
    """Prints six digits of the second; instants in UTC end with Z."""
    texts = pc.cast(pc.cast(values, pa.timestamp("us")), pa.string())
    if style.separator != " ":
        texts = pc.binary_replace_slice(texts, _DATE_LENGTH, _DATE_LENGTH + 1, style.separator)
    return '"', texts, '"' if values.type.tz is None else 'Z"'


def _binary(values: pa.Array, _: Style) -> Quoted:
    """Base64, which Arrow does not compute."""
    texts = [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
    return '"', pa.array(texts, pa.string()), '"'


def _vector(values: pa.Array, style: Style) -> Quoted:
    return bracketed(values, quoted_texts(values.flatten(), style)[1])


def bracketed(values: pa.Array, texts: pa.Array) -> Quoted:
    """Arrays of numbers; `texts` are of all numbers."""
    texts = pc.fill_null(texts, "null")
    numbers = pa.ListArray.from_arrays(_offsets(values), texts, mask=values.is_null())
    return "[", pc.binary_join(numbers, ","), "]"


def _offsets(values: pa.Array) -> pa.Array:
    """The offsets of lists in their flattened values, whatever is before the slice; a NULL has no
    values."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Style], Quoted]], ...] = (
    (pa.types.is_string, _text),
    (lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t), _number),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (pa.types.is_binary, _binary),
    (pa.types.is_list, _vector),
)
