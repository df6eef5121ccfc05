"""One mapping of server types to Arrow types, for every sink and both phases.

A value read by SELECT and the same value decoded from the binlog must be equal byte for byte, so
both readers build their columns with `arrow_type` and nothing else. Adding a type touches `_RULES`
alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.table import BINARIES, GEOMETRIES, LABELLED, TEXTS, Column, SourceType, Table

#: the widest decimal that lakehouse tables know; wider ones travel as the server's text
MAX_DECIMAL_PRECISION = 38

_SIGNED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
_UNSIGNED = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int32(),
    "int": pa.int64(),
    "bigint": pa.decimal128(20, 0),
}


def _integer(t: SourceType) -> pa.DataType:
    return (_UNSIGNED if t.unsigned else _SIGNED)[t.base]


def _decimal(t: SourceType) -> pa.DataType:
    precision = t.size if t.size > 0 else 10
    return pa.decimal128(precision, t.scale) if precision <= MAX_DECIMAL_PRECISION else pa.string()


def _bit(t: SourceType) -> pa.DataType:
    return pa.bool_() if t.size in (-1, 1) else pa.binary()


def _year(t: SourceType) -> pa.DataType:
    """A SELECT of YEAR(2) gives two digits and the log has the whole year: the copy would have
    both."""
    if t.size == 2:
        raise PermanentError(
            Reason.TYPE_UNSUPPORTED,
            f"column type {t.declared}, whose values a SELECT shortens to two digits and the log does not",
            needed="YEAR with four digits",
            remedy="ALTER TABLE ... MODIFY the column to YEAR, or leave it out by tables.overrides[].columns.exclude",
        )
    return pa.int16()


def _always(arrow: pa.DataType) -> Callable[[SourceType], pa.DataType]:
    return lambda _: arrow


_RULES: dict[str, Callable[[SourceType], pa.DataType]] = {
    **dict.fromkeys(_SIGNED, _integer),
    "decimal": _decimal,
    "bit": _bit,
    "float": _always(pa.float32()),
    "double": _always(pa.float64()),
    "date": _always(pa.date32()),
    "datetime": _always(pa.timestamp("us")),
    "timestamp": _always(pa.timestamp("us", "UTC")),
    "time": _always(pa.string()),
    "year": _year,
    **dict.fromkeys(TEXTS, _always(pa.string())),
    **dict.fromkeys(BINARIES, _always(pa.binary())),
    **dict.fromkeys(("enum", "set", "json", "uuid", "inet4", "inet6"), _always(pa.string())),
    **dict.fromkeys(GEOMETRIES, _always(pa.binary())),
    "vector": _always(pa.list_(pa.float32())),
}

#: types whose zero and partial values become NULL
_ZERO_DATES = frozenset({"date", "datetime", "timestamp"})
#: character sets in which the servers store bytes that are no character [measured]; in UTF-8 and
#: UTF-32 MariaDB stores surrogates, too
INCOMPLETE = frozenset({
    "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp932", "dec8", "eucjpms", "euckr",
    "gb18030", "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "sjis", "swe7", "ucs2", "ujis",
})  # fmt: skip


def arrow_type(source: SourceType) -> pa.DataType:
    """The Arrow type of a source type; raises `PermanentError(TypeUnsupported)` for one that is not
    mapped."""
    rule = _RULES.get(source.base)
    if rule is None:
        raise PermanentError(
            Reason.TYPE_UNSUPPORTED,
            f"column type {source.declared}",
            needed="a type of the type table",
            remedy="leave the column out by tables.overrides[].columns.exclude",
        )
    return rule(source)


def arrow_field(column: Column) -> pa.Field:
    """Every field is nullable: a zero date in a NOT NULL column becomes NULL."""
    return pa.field(column.name, arrow_type(column.type), nullable=True)


def arrow_schema(table: Table) -> pa.Schema:
    """The target's schema: the captured columns in the source's order."""
    return pa.schema([arrow_field(c) for c in table.captured])


def lossy(column: Column) -> str:
    """What the conversion loses, in words for `check`; empty where nothing is lost."""
    if column.type.base in _ZERO_DATES:
        return "zero and partial dates become NULL"
    if column.type.base in LABELLED and column.type.charset in INCOMPLETE:
        then = "become U+FFFD" if column.type.replaced else "stop the table (tables.invalidCharacters: fail)"
        return f"bytes that are no character of {column.type.charset} {then}"
    return ""
