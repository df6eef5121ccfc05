"""Rows of an Arrow table as text: those of PostgreSQL's COPY, and literals of MySQL's INSERT.

A column is converted as a whole. Numbers are exact: Arrow prints the shortest text that is the same
binary number.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = pa.large_string()


def copy_text(rows: pa.Table) -> bytes:
    r"""The rows in the text format of COPY: fields end by tabs, `\N` is NULL."""
    columns = [pc.fill_null(_copy_column(column), pa.scalar("\\N", _TEXT)) for column in rows.columns]
    lines = pc.binary_join_element_wise(*columns, pa.scalar("\t", _TEXT)) if len(columns) > 1 else columns[0]
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def insert_values(rows: pa.Table) -> list[str]:
    """Each row as `(value, ...)`, for a session without NO_BACKSLASH_ESCAPES."""
    columns = [pc.fill_null(_literals(column), pa.scalar("NULL", _TEXT)) for column in rows.columns]
    joined = pc.binary_join_element_wise(*columns, pa.scalar(",", _TEXT)) if len(columns) > 1 else columns[0]
    return [f"({row})" for row in joined.to_pylist()]


def _copy_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        return _hexadecimal(column, "\\\\x", "")
    if pa.types.is_list(column.type):
        return _floats(column)
    text = _text(column)
    if pa.types.is_timestamp(column.type) and column.type.tz:
        # a pooler may have given the session's time zone to another one
        return pc.binary_join_element_wise(text, pa.scalar("+00", _TEXT), pa.scalar("", _TEXT))
    if pa.types.is_string(column.type):
        for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            text = pc.replace_substring(text, plain, escaped)
    return text


def _literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        return _hexadecimal(column, "X'", "'")
    text, quote = _text(column), pa.scalar("'", _TEXT)
    if pa.types.is_string(column.type):
        for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0")):
            text = pc.replace_substring(text, plain, escaped)
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
