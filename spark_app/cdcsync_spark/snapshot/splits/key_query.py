"""Rows of given keys as SQL: the WHERE clause for values of the key columns as a target has them;
pure.

Every literal is of the column's own type and character set, so that the server compares as its
index does (R3).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import BINARIES, INTEGERS, TEXTS, Column, quote


def condition(table: Capture, keys: pa.Table) -> str:
    """The WHERE clause for rows of these keys, by index: `k IN (...)`, or an OR over the columns of
    a composite key. None has a key with NULL."""
    literals = [_literals(c, keys[c.name].combine_chunks()) for c in table.key_columns]
    names = [quote(c.name) for c in table.key_columns]
    if len(names) == 1:
        return f"{names[0]} IN ({', '.join(literals[0])})"
    rows = (
        " AND ".join(f"{name} = {value}" for name, value in zip(names, row, strict=True))
        for row in zip(*literals, strict=True)
    )
    return " OR ".join(f"({row})" for row in rows)


def _literals(column: Column, values: pa.Array) -> list[str]:
    write = _LITERALS.get(column.type.base, _text)
    return ["NULL" if v is None else write(column, v) for v in values.to_pylist()]


def _number(_: Column, value: Any) -> str:
    return str(int(value))


def _decimal(column: Column, value: Any) -> str:
    """Exact also where the target has a text, because it is too wide for a lake's decimal."""
    return f"CAST({_text(column, str(value))} AS DECIMAL({max(column.type.size, 1)}, {column.type.scale}))"


def _bits(_: Column, value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(int.from_bytes(value, "big"))


def _date(_: Column, value: datetime.date) -> str:
    return f"DATE'{value:%Y-%m-%d}'" if value.year > 999 else f"DATE'{value.year:04d}-{value:%m-%d}'"


def _timestamp(_: Column, value: datetime.datetime) -> str:
    return f"TIMESTAMP'{value.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"


def _bytes(_: Column, value: bytes) -> str:
    return f"x'{value.hex()}'"


def _string(column: Column, value: str) -> str:
    """In the column's own character set and collation: then the index serves, and nothing is
    converted with loss."""
    return f"CONVERT({_text(column, value)} USING {column.type.charset}) COLLATE {column.collation}"


def _text(_: Column, value: str) -> str:
    return f"_utf8mb4 x'{value.encode().hex()}'"


_LITERALS: dict[str, Callable[[Column, Any], str]] = {
    **dict.fromkeys((*INTEGERS, "year"), _number),
    "decimal": _decimal,
    "bit": _bits,
    "date": _date,
    "datetime": _timestamp,
    "timestamp": _timestamp,
    **dict.fromkeys(TEXTS, _string),
    **dict.fromkeys(BINARIES, _bytes),
}
