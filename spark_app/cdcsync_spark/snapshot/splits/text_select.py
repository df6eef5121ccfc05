"""Rows of the text protocol to Arrow, column by column: the plain way to read a split, and the
oracle of any faster one.

Every cell is the server's own text (or raw bytes), so a value is right if the server prints it
right. It does not for FLOAT (six digits) and for DOUBLE(m,d) (d digits), hence `select_expression`.
Building a column goes through Arrow's own casts, which refuse what they cannot hold; no row becomes
a Python value besides its bytes.

Texts of a character set other than UTF-8 come twice: as they are stored, which is what counts, and
as the server converts them, which is what they must be. Where the server puts a question mark for
bytes that are no character there is nothing to compare. Of long texts and of utf8mb3, which is
UTF-8, only the stored bytes come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import GEOMETRIES, LABELLED, Column, quote
from cdcsync_spark.rows.arrow_types import arrow_type, captured_schema
from cdcsync_spark.wire.columns.charset import is_utf8, stored_charset
from cdcsync_spark.wire.columns.key_text import key_text
from cdcsync_spark.wire.columns.replacement import REPLACEMENT, checked, first_refused
from cdcsync_spark.wire.resultset.binary_row import DecodedResult

Cell = bytes | None
#: texts of which one is as much as a row should have
_LONG = frozenset({"mediumtext", "longtext"})
#: month or day zero, or the year 0: no date of the calendar
_NO_DATE = re.compile(rb"0000-|....-00-|....-..-00")


def select_expression(column: Column) -> str:
    """What to SELECT so that the printed text holds the exact value."""
    name = quote(column.name)
    if column.type.base in ("float", "double"):
        return f"CAST({name} AS DOUBLE)"
    return _stored(column) if _is_converted(column) and not _comes_twice(column) else name


def select_list(table: Capture) -> str:
    """Every captured column by name: invisible and generated ones are left out of a `*`. Then those
    that come twice, as stored."""
    twice = [_stored(c) for c in table.captured if _comes_twice(c)]
    return ", ".join([*map(select_expression, table.captured), *twice])


def _stored(column: Column) -> str:
    """Not CAST(... AS BINARY), which MariaDB converts as it sends it [measured on 10.11 and
    11.4]."""
    return f"CONVERT({quote(column.name)} USING binary)"


def _is_converted(column: Column) -> bool:
    """Whether the server converts its texts for a session in utf8mb4."""
    return column.type.base in LABELLED and column.type.charset not in ("", "binary", "utf8mb4")


def _comes_twice(column: Column) -> bool:
    return _is_converted(column) and column.type.base not in _LONG and not is_utf8(stored_charset(column.type.charset))


def decode(table: Capture, rows: Sequence[Sequence[Cell]]) -> DecodedResult:
    """`rows` have the cells of `select_list`; the batch has `typemap.arrow_schema(table)`. Raises
    DecodeError."""
    columns = list(zip(*rows, strict=True))
    count = len(table.captured)
    cells: dict[str, tuple[Sequence[Cell], Sequence[Cell] | None]] = {
        c.name: (values, None) for c, values in zip(table.captured, columns[:count], strict=True)
    }
    twice = [c.name for c in table.captured if _comes_twice(c)]
    cells |= {name: (raw, cells[name][0]) for name, raw in zip(twice, columns[count:], strict=True)}
    arrays, nulled = [], 0
    for column in table.captured:
        try:
            array, lost = _column(table, column, *cells[column.name])
        except DecodeError as e:
            key = key_text(table, e.row, lambda c: _column(table, c, *cells[c.name])[0])
            raise e.placed(table=str(table.id), column=column.name, key=key) from None
        arrays.append(array)
        nulled += lost
    size = sum(len(cell) for row in rows for cell in row if cell is not None)
    return DecodedResult(pa.RecordBatch.from_arrays(arrays, schema=captured_schema(table)), nulled, size)


def _column(
    table: Capture, column: Column, cells: Sequence[Cell], converted: Sequence[Cell] | None
) -> tuple[pa.Array, int]:
    arrow = arrow_type(column.type)
    if column.type.base in LABELLED:
        return _texts(column, cells, converted), 0
    try:
        array, lost = _built(column, cells, arrow)
        if lost and column.name in table.key:
            # as NULL it would match no row of the target, and all such keys would be one
            raise ValueError("a zero or partial date in the key")
        return array, lost
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise DecodeError(
            f"a {column.type.declared} value that does not fit {arrow}: {_shortened(e)}",
            table=str(table.id),
            column=column.name,
        ) from e


def _built(column: Column, cells: Sequence[Cell], arrow: pa.DataType) -> tuple[pa.Array, int]:
    if column.type.base in ("date", "datetime", "timestamp"):
        return _temporal(cells, arrow)
    return _BUILDERS.get(column.type.base, _cast)(cells, arrow), 0


def _texts(column: Column, cells: Sequence[Cell], converted: Sequence[Cell] | None) -> pa.Array:
    """`cells` as stored, `converted` by the server. Raises DecodeError with the row."""
    read = checked(stored_charset(column.type.charset), replaced=column.type.replaced)
    first_refused(cells, read)
    values = [None if c is None else read(c) for c in cells]
    for row, (value, text) in enumerate(zip(values, converted or (), strict=False)):
        if value is None or text is None or b"?" in text or REPLACEMENT in value or value.encode() == text:
            continue
        raise DecodeError(
            f"a text of {column.type.charset} that the server reads differently",
            needed=f"the server's text, {text[:32].hex()}, where {value[:32].encode().hex()} was read",
            row=row,
        )
    return pa.array(values, pa.string())


def _shortened(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def _cast(cells: Sequence[Cell], arrow: pa.DataType) -> pa.Array:
    texts = pa.array(cells, pa.string())
    return texts if arrow == pa.string() else texts.cast(arrow)


def _binary(cells: Sequence[Cell], arrow: pa.DataType) -> pa.Array:
    return pa.array(cells, arrow)


def _bit(cells: Sequence[Cell], arrow: pa.DataType) -> pa.Array:
    if arrow != pa.bool_():
        return pa.array(cells, arrow)
    return pa.array([None if c is None else c != b"\0" for c in cells], arrow)


def _vector(cells: Sequence[Cell], arrow: pa.DataType) -> pa.Array:
    return pa.array([None if c is None else np.frombuffer(c, "<f4") for c in cells], arrow)


def _temporal(cells: Sequence[Cell], arrow: pa.DataType) -> tuple[pa.Array, int]:
    texts = pa.array(cells, pa.string())
    try:
        return _as_time(texts, arrow), 0
    except pa.ArrowInvalid:
        dates = [None if c is None or not _is_date(c) else c for c in cells]
        return _as_time(pa.array(dates, pa.string()), arrow), dates.count(None) - texts.null_count


def _as_time(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    if pc.any(pc.starts_with(texts, "0000")).as_py():
        raise pa.ArrowInvalid("the year 0 is not in the calendar")
    if arrow == pa.date32():
        return texts.cast(arrow)
    return texts.cast(pa.timestamp("us")).cast(arrow)


def _is_date(text: bytes) -> bool:
    if _NO_DATE.match(text):
        return False
    try:
        datetime.fromisoformat(text[:10].decode())
    except ValueError:
        return False
    return True


_BUILDERS: dict[str, Callable[[Sequence[Cell], pa.DataType], pa.Array]] = {
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", *GEOMETRIES), _binary),
    "bit": _bit,
    "vector": _vector,
}
