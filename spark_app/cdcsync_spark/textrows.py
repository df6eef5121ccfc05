"""Rows of the text protocol to Arrow, column by column: the plain way to read a split, and the oracle of any faster one.

Every cell is the server's own text (or raw bytes), so a value is right if the server prints it right. It does not for FLOAT
(six digits) and for DOUBLE(m,d) (d digits), hence `select_expression`. Building a column goes through Arrow's own casts,
which refuse what they cannot hold; no row becomes a Python value besides its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_core.table import GEOMETRIES, Column, Table, quote
from cdcsync_core.typemap import arrow_schema, arrow_type
from cdcsync_spark.wire.binaryrow import Decoded

Cell = bytes | None
#: month or day zero, or the year 0: no date of the calendar
_NO_DATE = re.compile(rb"0000-|....-00-|....-..-00")


def select_expression(column: Column) -> str:
    """What to SELECT so that the printed text holds the exact value."""
    name = quote(column.name)
    return f"CAST({name} AS DOUBLE)" if column.type.base in ("float", "double") else name


def select_list(table: Table) -> str:
    """Every captured column by name: invisible and generated ones are left out of a `*`."""
    return ", ".join(select_expression(c) for c in table.captured)


def decode(table: Table, rows: Sequence[Sequence[Cell]]) -> Decoded:
    """`rows` hold one cell per captured column; the batch has `typemap.arrow_schema(table)`. Raises DecodeError."""
    arrays, nulled = [], 0
    for column, cells in zip(table.captured, zip(*rows, strict=True), strict=True):
        array, lost = _column(table, column, cells)
        arrays.append(array)
        nulled += lost
    return Decoded(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(table)), nulled)


def _column(table: Table, column: Column, cells: Sequence[Cell]) -> tuple[pa.Array, int]:
    wanted = arrow_type(column.type)
    try:
        array, lost = _built(column, cells, wanted)
        if lost and column.name in table.key:
            # as NULL it would match no row of the target, and all such keys would be one
            raise ValueError("a zero or partial date in the key")
        return array, lost
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise DecodeError(
            f"a {column.type.declared} value that does not fit {wanted}: {_shortened(e)}",
            table=str(table.id),
            column=column.name,
        ) from e


def _built(column: Column, cells: Sequence[Cell], wanted: pa.DataType) -> tuple[pa.Array, int]:
    if column.type.base in ("date", "datetime", "timestamp"):
        return _temporal(cells, wanted)
    return _BUILDERS.get(column.type.base, _cast)(cells, wanted), 0


def _shortened(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def _cast(cells: Sequence[Cell], wanted: pa.DataType) -> pa.Array:
    texts = pa.array(cells, pa.string())
    return texts if wanted == pa.string() else texts.cast(wanted)


def _binary(cells: Sequence[Cell], wanted: pa.DataType) -> pa.Array:
    return pa.array(cells, wanted)


def _bit(cells: Sequence[Cell], wanted: pa.DataType) -> pa.Array:
    if wanted != pa.bool_():
        return pa.array(cells, wanted)
    return pa.array([None if c is None else c != b"\0" for c in cells], wanted)


def _vector(cells: Sequence[Cell], wanted: pa.DataType) -> pa.Array:
    return pa.array([None if c is None else np.frombuffer(c, "<f4") for c in cells], wanted)


def _temporal(cells: Sequence[Cell], wanted: pa.DataType) -> tuple[pa.Array, int]:
    texts = pa.array(cells, pa.string())
    try:
        return _as_time(texts, wanted), 0
    except pa.ArrowInvalid:
        kept = [None if c is None or not _is_date(c) else c for c in cells]
        return _as_time(pa.array(kept, pa.string()), wanted), kept.count(None) - texts.null_count


def _as_time(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pc.any(pc.starts_with(texts, "0000")).as_py():
        raise pa.ArrowInvalid("the year 0 is not in the calendar")
    if wanted == pa.date32():
        return texts.cast(wanted)
    return texts.cast(pa.timestamp("us")).cast(wanted)


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
