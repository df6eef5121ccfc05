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
from itertools import groupby
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = 34, 92, 32

#: one side of a join: a text for all rows, or one for each
Part: TypeAlias = "str | pa.Array"


@dataclass(frozen=True)
class Style:
    """How a format writes what JSON has no type for.

    `decimals_as_text`: "1.10" in quotation marks (also BIGINT UNSIGNED, whose values a reader may
    parse as a double otherwise), else as the number 1.10. `separator` is between date and time.
    """

    decimals_as_text: bool = True
    separator: str = "T"


def json_rows(rows: pa.Table, style: Style) -> pa.Array:
    """A JSON object a row, of all columns in their order; NULL is `null`. A string array."""
    parts: list[Part] = []
    for i, name in enumerate(rows.column_names):
        parts += ["," if i else "{", _member(name), value_texts(rows[name], style)]
    return join(rows.num_rows, *parts, "}" if parts else "{}")


def join(count: int, *parts: Part) -> pa.Array:
    """The parts of each of `count` rows behind each other; a NULL part makes the row NULL."""
    glued: list[pa.Scalar | pa.Array] = []
    for is_text, run in groupby(parts, lambda part: isinstance(part, str)):
        same_kind = list(run)
        glued += [pa.scalar("".join(same_kind))] if is_text else same_kind
    if all(isinstance(part, pa.Scalar) for part in glued):
        return pa.array(["".join(part.as_py() for part in glued)] * count, pa.string())
    return pc.binary_join_element_wise(*glued, "")


def quoted(text: str) -> str:
    """A text as JSON, in UTF-8 as it is."""
    return json.dumps(text, ensure_ascii=False)


def value_texts(column: pa.ChunkedArray | pa.Array, style: Style) -> pa.Array:
    """The JSON text of each value of a column as the batches have it (`arrow_schema`)."""
    values = single(column)
    for is_type, texts in _TEXTS:
        if is_type(values.type):
            return pc.fill_null(texts(values, style), "null")
    raise TypeError(f"no JSON form of {values.type}")


def single(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a column's chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _member(name: str) -> str:
    return quoted(name) + ":"


def _in_quotes(texts: pa.Array, end: str = '"') -> pa.Array:
    return join(len(texts), '"', texts, end)


def _escaped(texts: pa.Array) -> pa.Array:
    """Only the escapes that occur cost a pass: a histogram of the bytes says which. All of them are
    single bytes below 128, which are no part of another character in UTF-8."""
    for byte in _bytes_to_escape(texts):
        texts = pc.replace_substring(texts, chr(byte), _SHORT.get(byte, f"\\u{byte:04x}"))
    return texts


def _bytes_to_escape(texts: pa.Array) -> list[int]:
    """The backslash first: the escapes of the others bring backslashes in."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return []
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    present = np.bincount(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], minlength=256)
    special = [*range(_FIRST_PRINTABLE), _QUOTE]
    return [b for b in (_BACKSLASH, *special) if present[b]]


def _text(values: pa.Array, _: Style) -> pa.Array:
    return _in_quotes(_escaped(values))


def _number(values: pa.Array, _: Style) -> pa.Array:
    return pc.cast(values, pa.string())


def _decimal(values: pa.Array, style: Style) -> pa.Array:
    texts = pc.cast(values, pa.string())
    exponents = pc.fill_null(pc.match_substring(texts, "E"), False)
    if pc.any(exponents).as_py():
        plain = [format(v, "f") for v in values.filter(exponents).to_pylist()]
        texts = pc.replace_with_mask(texts, exponents, pa.array(plain, pa.string()))
    return _in_quotes(texts) if style.decimals_as_text else texts


def _date(values: pa.Array, _: Style) -> pa.Array:
    return _in_quotes(pc.cast(values, pa.string()))


def _timestamp(values: pa.Array, style: Style) -> pa.Array:
    """With six digits of the second; instants in UTC end with Z."""
    texts = pc.cast(pc.cast(values, pa.timestamp("us")), pa.string())
    if style.separator != " ":
        texts = pc.replace_substring(texts, " ", style.separator)
    return _in_quotes(texts, '"' if values.type.tz is None else 'Z"')


def _binary(values: pa.Array, _: Style) -> pa.Array:
    """Base64, which Arrow does not compute."""
    texts = [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in values.to_pylist()]
    return pa.array(texts, pa.string())


def _vector(values: pa.Array, style: Style) -> pa.Array:
    """An array of numbers."""
    numbers = pa.ListArray.from_arrays(_offsets(values), value_texts(values.flatten(), style), mask=values.is_null())
    return join(len(values), "[", pc.binary_join(numbers, ","), "]")


def _offsets(values: pa.Array) -> pa.Array:
    """Of the flattened values, whatever is before the slice; a NULL has no values."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Style], pa.Array]], ...] = (
    (pa.types.is_string, _text),
    (lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t), _number),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (pa.types.is_binary, _binary),
    (pa.types.is_list, _vector),
)
