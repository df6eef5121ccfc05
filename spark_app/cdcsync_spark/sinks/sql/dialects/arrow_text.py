"""Rows of an Arrow table as text: those of PostgreSQL's COPY, and literals of MySQL's INSERT.

A column is converted as a whole. Numbers are exact: Arrow prints the shortest text that is the same
binary number.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = pa.large_string()
_NUL = ("\0", "\\0")
_IN_FIELDS = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_IN_LITERALS = (("\\", "\\\\"), ("'", "\\'"), _NUL)


def copy_text(rows: pa.Table) -> bytes:
    r"""The rows in the text format of COPY: fields end by tabs, `\N` is NULL."""
    return _lines([_copy_column(column) for column in rows.columns])


def load_text(rows: pa.Table) -> bytes:
    r"""The rows as LOAD DATA takes them with tabs between fields and escapes by backslashes; binary
    columns as hexadecimal digits, so that no character set concerns them."""
    return _lines([_load_column(_in_full(column)) for column in rows.columns])


def insert_values(rows: pa.Table) -> list[str]:
    """Each row as `(value, ...)`, for a session without NO_BACKSLASH_ESCAPES."""
    columns = [pc.fill_null(_literals(_in_full(column)), pa.scalar("NULL", _TEXT)) for column in rows.columns]
    joined = pc.binary_join_element_wise(*columns, pa.scalar(",", _TEXT)) if len(columns) > 1 else columns[0]
    return [f"({row})" for row in joined.to_pylist()]


def _lines(columns: list[pa.ChunkedArray]) -> bytes:
    """Each row with its line's end."""
    fields = [pc.fill_null(column, pa.scalar("\\N", _TEXT)) for column in columns]
    row = pc.binary_join_element_wise(*fields, pa.scalar("\t", _TEXT))
    lines = pc.binary_join_element_wise(row, pa.scalar("", _TEXT), pa.scalar("\n", _TEXT))
    return b"".join(_bytes_of(chunk) for chunk in lines.chunks)


def _bytes_of(texts: pa.LargeStringArray) -> memoryview:
    """All texts, one after the other, as they are in memory."""
    _, offsets, data = texts.buffers()
    first, last = (memoryview(offsets).cast("q")[texts.offset + n] for n in (0, len(texts)))
    return memoryview(data)[first:last] if data else memoryview(b"")


def _copy_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        return _hexadecimal(column, "\\\\x", "")
    if pa.types.is_list(column.type):
        return _floats(column)
    if pa.types.is_timestamp(column.type) and column.type.tz:
        # a pooler may have given the session's time zone to another one
        return pc.binary_join_element_wise(_text(column), pa.scalar("+00", _TEXT), pa.scalar("", _TEXT))
    return _escaped(column, _IN_FIELDS) if pa.types.is_string(column.type) else _text(column)


def _load_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        return _hexadecimal(column, "", "")
    return _escaped(column, (*_IN_FIELDS, _NUL)) if pa.types.is_string(column.type) else _text(column)


def _in_full(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """MySQL reads a number as a double, and the shortest text of the greatest FLOAT is greater."""
    return column.cast(pa.float64()) if pa.types.is_float32(column.type) else column


def _escaped(column: pa.ChunkedArray, pairs: tuple[tuple[str, str], ...]) -> pa.ChunkedArray:
    text = _text(column)
    for plain, escaped in pairs:
        text = pc.replace_substring(text, plain, escaped)
    return text


def _literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        return _hexadecimal(column, "X'", "'")
    quote = pa.scalar("'", _TEXT)
    text = _escaped(column, _IN_LITERALS) if pa.types.is_string(column.type) else _text(column)
    return pc.binary_join_element_wise(quote, text, quote, pa.scalar("", _TEXT))


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(kind) and kind.tz:
        column = column.cast(pa.timestamp(kind.unit))  # in UTC
    return column.cast(_TEXT)


def _hexadecimal(column: pa.ChunkedArray, before: str, after: str) -> pa.ChunkedArray:
    texts = [None if value is None else f"{before}{value.hex()}{after}" for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, _TEXT)])


def _floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Elements of an array of REAL."""
    texts = [None if value is None else "{" + ",".join(map(repr, value)) + "}" for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, _TEXT)])
