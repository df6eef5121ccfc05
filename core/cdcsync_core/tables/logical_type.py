"""One mapping of server types to the types that a target has, for every sink and both phases.

A value read by SELECT and the same value decoded from the binlog must be equal byte for byte, so
both readers build their columns with `logical_type` and nothing else. A logical type names values
and no library: the form in memory is of the Spark application (`rows.arrow_types`).

Adding a type touches `_RULES` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, LABELLED, TEXTS, Column, SourceType

#: the widest decimal that lakehouse tables know; wider ones travel as the server's text
MAX_DECIMAL_PRECISION = 38
#: the types without parameters, by the names that Arrow prints for them
NAMES = frozenset({
    "bool", "int8", "int16", "int32", "int64", "float", "double", "string", "binary", "date32[day]",
    "timestamp[us]", "timestamp[us, tz=UTC]", "list<item: float>",
})  # fmt: skip
DECIMAL = "decimal128"

_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")


@dataclass(frozen=True)
class LogicalType:
    """A type of a target's column: one of `NAMES`, or `DECIMAL` with its precision and scale.

    Its text (`str`, `parse`) is Arrow's; a state records it and `check` shows it.
    """

    name: str
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if (self.name == DECIMAL) is not (0 < self.precision <= MAX_DECIMAL_PRECISION):
            raise ValueError(f"not a type of a target: {self.name} {self.precision}")
        if self.name != DECIMAL and self.name not in NAMES:
            raise ValueError(f"not a type of a target: {self.name}")

    def __str__(self) -> str:
        return f"{DECIMAL}({self.precision}, {self.scale})" if self.name == DECIMAL else self.name

    @classmethod
    def parse(cls, text: str) -> LogicalType:
        match = _DECIMAL.fullmatch(text)
        return cls(DECIMAL, int(match[1]), int(match[2])) if match else cls(text)


BOOL = LogicalType("bool")
INT16 = LogicalType("int16")
STRING = LogicalType("string")
BINARY = LogicalType("binary")

_SIGNED = {
    "tinyint": LogicalType("int8"),
    "smallint": INT16,
    "mediumint": LogicalType("int32"),
    "int": LogicalType("int32"),
    "bigint": LogicalType("int64"),
}
_UNSIGNED = {
    "tinyint": INT16,
    "smallint": LogicalType("int32"),
    "mediumint": LogicalType("int32"),
    "int": LogicalType("int64"),
    "bigint": LogicalType(DECIMAL, 20, 0),
}


def _integer(t: SourceType) -> LogicalType:
    return (_UNSIGNED if t.unsigned else _SIGNED)[t.base]


def _decimal(t: SourceType) -> LogicalType:
    precision = t.size if t.size > 0 else 10
    return LogicalType(DECIMAL, precision, t.scale) if precision <= MAX_DECIMAL_PRECISION else STRING


def _bit(t: SourceType) -> LogicalType:
    return BOOL if t.size in (-1, 1) else BINARY


def _year(t: SourceType) -> LogicalType:
    """A SELECT of YEAR(2) gives two digits and the binlog has the whole year: the copy would have
    both."""
    if t.size == 2:
        raise PermanentError(
            Reason.TYPE_UNSUPPORTED,
            f"column type {t.declared}, whose values a SELECT shortens to two digits and the binlog does not",
            needed="YEAR with four digits",
            remedy="ALTER TABLE ... MODIFY the column to YEAR, or leave it out by tables.overrides[].columns.exclude",
        )
    return INT16


def _always(name: str) -> Callable[[SourceType], LogicalType]:
    plain_type = LogicalType(name)
    return lambda _: plain_type


_RULES: dict[str, Callable[[SourceType], LogicalType]] = {
    **dict.fromkeys(_SIGNED, _integer),
    "decimal": _decimal,
    "bit": _bit,
    "float": _always("float"),
    "double": _always("double"),
    "date": _always("date32[day]"),
    "datetime": _always("timestamp[us]"),
    "timestamp": _always("timestamp[us, tz=UTC]"),
    "time": _always("string"),
    "year": _year,
    **dict.fromkeys(TEXTS, _always("string")),
    **dict.fromkeys(BINARIES, _always("binary")),
    **dict.fromkeys(("enum", "set", "json", "uuid", "inet4", "inet6"), _always("string")),
    **dict.fromkeys(GEOMETRIES, _always("binary")),
    "vector": _always("list<item: float>"),
}

#: types whose zero and partial values become NULL
_ZERO_DATES = frozenset({"date", "datetime", "timestamp"})
#: character sets in which the servers store bytes that are no character [measured]; in UTF-8 and
#: UTF-32 MariaDB stores surrogates, too
INCOMPLETE = frozenset({
    "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp932", "dec8", "eucjpms", "euckr",
    "gb18030", "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "sjis", "swe7", "ucs2", "ujis",
})  # fmt: skip


def logical_type(source: SourceType) -> LogicalType:
    """The target's type of a source type; raises `PermanentError(TypeUnsupported)` for one that is
    not mapped."""
    rule = _RULES.get(source.base)
    if rule is None:
        raise PermanentError(
            Reason.TYPE_UNSUPPORTED,
            f"column type {source.declared}",
            needed="a type of the type table",
            remedy="leave the column out by tables.overrides[].columns.exclude",
        )
    return rule(source)


def lossy(column: Column) -> str:
    """What the conversion loses, in words for `check`; empty where nothing is lost."""
    if column.type.base in _ZERO_DATES:
        return "zero and partial dates become NULL"
    if column.type.base in LABELLED and column.type.charset in INCOMPLETE:
        then = "become U+FFFD" if column.type.replaced else "stop the table (tables.invalidCharacters: fail)"
        return f"bytes that are no character of {column.type.charset} {then}"
    return ""
