"""Records of `debezium_text` read back as rows, for `verify`.

Why it is right: a value's text depends on its column's type on the server, so it is read by that
type, into the text of `debezium-json`, which is read as ever. A form that the type does not have
raises ValueError, KeyError or TypeError.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdcsync_core.tables.source_table import GEOMETRIES, Column, SourceType
from cdcsync_spark.sinks.formats.debezium_text import SRID_BYTES, with_escapes
from cdcsync_spark.sinks.formats.json_reader import Row, last_row, loads, rows_table
from cdcsync_spark.sinks.formats.record_reader import LastRows

#: `debezium-json` with `compatible: exact`
DEBEZIUM_EXACT = "debezium-json, exact"

#: of a JSON document: a text, or what MySQL has a blank behind
_TEXT_OR_BLANK = re.compile(r'("(?:[^"\\]|\\.)*")|([,:]) ?', re.S)

ReadBack = Callable[[Any], Any]


@dataclass(frozen=True)
class DebeziumReader:
    """Reads the records of a table with the columns `columns`."""

    columns: tuple[Column, ...] = ()
    form: str = DEBEZIUM_EXACT

    def of(self, columns: Sequence[Column]) -> DebeziumReader:
        """See `RecordReader.of`."""
        return DebeziumReader(tuple(columns))

    def keys(self, keys: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """See `RecordReader.keys`."""
        return rows_table(self._read_back([loads(key) for key in keys]), schema)

    def rows(self, values: Sequence[bytes | None], schema: pa.Schema) -> LastRows:
        """See `RecordReader.rows`."""
        rows = {n: row for n, value in enumerate(values) if (row := last_row("debezium-json", value)) is not None}
        return LastRows(list(rows), rows_table(self._read_back(list(rows.values())), schema))

    def _read_back(self, rows: list[Row]) -> list[Row]:
        readers = {c.name: read for c in self.columns if (read := _reader_of(c.type)) is not None}
        return [{n: readers[n](v) if n in readers and v is not None else v for n, v in row.items()} for row in rows]


def _reader_of(kind: SourceType) -> ReadBack | None:
    """None: the text is that of `debezium-json`."""
    if kind.base == "bigint" and kind.unsigned:
        return _unsigned
    if kind.base == "bit" and kind.size > 1:
        return lambda text: base64.b64encode(base64.b64decode(text, validate=True)[::-1]).decode()
    if kind.base in GEOMETRIES:
        return _shape
    if kind.base == "time":
        return lambda text: _time(text, max(kind.size, 0))
    if kind.base == "decimal" and "zerofill" in kind.declared:
        return lambda text: text.zfill(kind.size + (1 if kind.scale else 0))
    return {"date": _without_zone, "datetime": _without_zone, "json": _document}.get(kind.base)


def _unsigned(text: str) -> str:
    return str(int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True))


def _document(text: str) -> str:
    """As MySQL prints it, which is how it is in a snapshot."""
    return with_escapes(_TEXT_OR_BLANK.sub(lambda match: match[1] or f"{match[2]} ", text), str.lower)


def _shape(members: dict[str, Any]) -> str:
    srid = int(members["srid"] or 0).to_bytes(SRID_BYTES, "little")
    return base64.b64encode(srid + base64.b64decode(members["wkb"], validate=True)).decode()


def _without_zone(text: str) -> str:
    if not text.endswith("Z"):
        raise ValueError(f"a date without its zone: {text!r}")
    return text[:-1]


def _time(text: str, digits: int) -> str:
    """The server's text: a time of day has its zone and the fewest digits of the fraction."""
    if not text.endswith("Z"):
        return text
    whole, _, fraction = text[:-1].partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')}" if digits else whole
