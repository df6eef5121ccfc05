"""JSON records read back as rows: what a consumer makes of them, for `verify`.

Why it is right: numbers are taken as their digits, so nothing passes through a float on its way to
a decimal or an integer of 64 bits. What is no record of the form raises ValueError, KeyError or
TypeError.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdcsync_core.peer_json import parse_json
from cdcsync_core.tables.source_table import Column
from cdcsync_spark.sinks.formats.record_reader import LastRows

Row = dict[str, Any]
_INSERTED = frozenset(("+I", "+U"))
_REMOVED = frozenset(("-U", "-D"))


@dataclass(frozen=True)
class JsonReader:
    """Reads records in one of the JSON forms."""

    form: str

    def of(self, columns: Sequence[Column]) -> JsonReader:
        """See `RecordReader.of`: values are read by the types of the target."""
        return self

    def keys(self, keys: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """See `RecordReader.keys`."""
        return keys_table(keys, schema)

    def rows(self, values: Sequence[bytes | None], schema: pa.Schema) -> LastRows:
        """See `RecordReader.rows`."""
        rows = {n: row for n, value in enumerate(values) if (row := last_row(self.form, value)) is not None}
        return LastRows(list(rows), rows_table(list(rows.values()), schema))


def keys_table(keys: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The key columns, with the types of `schema`."""
    return rows_table([loads(key) for key in keys], schema)


def rows_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """A member that a row does not have is NULL."""
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def last_row(form: str, value: bytes | None) -> Row | None:
    """The row that a key has after this record, the last one of the key; None where it has none."""
    return None if value is None else _ROWS[form](loads(value))


def loads(text: bytes) -> Any:
    """Numbers are their digits."""
    return parse_json(text, str)


def _debezium(record: Any) -> Row | None:
    after: Row | None = record["after"]
    if (after is None) != (record["op"] == "d"):
        raise ValueError("an operation without its row")
    return after


def _changelog(record: Any) -> Row | None:
    op, row = record["op"], record["data"]
    if op not in _INSERTED | _REMOVED:
        raise ValueError(f"the operation {op!r}")
    return row if op in _INSERTED else None


def _canal(record: Any) -> Row | None:
    (row,) = record["data"]
    return None if record["type"] == "DELETE" else row


def _upsert(record: Any) -> Row:
    row: Row = record
    return row


_ROWS: dict[str, Callable[[Any], Row | None]] = {
    "debezium-json": _debezium,
    "changelog-json": _changelog,
    "canal-json": _canal,
    "upsert-json": _upsert,
}
#: the forms that can be read back
READABLE = frozenset(_ROWS)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Dates and times are texts that Arrow reads."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.array(values, pa.string()).cast(kind)
    of = _value_of(kind)
    return pa.array([None if v is None else of(v) for v in values], kind)


def _value_of(kind: pa.DataType) -> Callable[[Any], Any]:
    for is_type, of in _VALUES:
        if is_type(kind):
            return of
    raise TypeError(f"no JSON form of {kind}")


def _as_is(value: Any) -> Any:
    return value


_VALUES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (lambda t: pa.types.is_string(t) or pa.types.is_boolean(t), _as_is),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_binary, base64.b64decode),
    (pa.types.is_list, lambda values: [float(v) for v in values]),
)
