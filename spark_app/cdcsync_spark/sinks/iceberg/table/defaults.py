"""Defaults of columns in the JSON form of Iceberg's schemas ("JSON single-value serialization").
Pure."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa


def default_json(value: Any, kind: pa.DataType) -> Any:
    """`value` is one of the column's, as Arrow takes it."""
    value = pa.scalar(value, kind).as_py()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if isinstance(value, dt.date) else value


def default_value(value: Any, kind: Any) -> Any:
    """The value of a default, in Python. Raises, as parsers do, for another form."""
    if kind == "binary":
        return bytes.fromhex(value)
    if kind in {"timestamp", "timestamptz"}:
        return dt.datetime.fromisoformat(value)
    if kind == "date":
        return dt.date.fromisoformat(value)
    return Decimal(value) if isinstance(kind, str) and kind.startswith("decimal") else value
