"""Whether the binlog describes a table as it was planned: the gate before any of its bytes are
read.

Why it is right: rows are bytes without types. What reads them takes the types from the plan and the
widths from the binlog, so both must say the same; a difference means a change of the table that no
statement announced (rule R9).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.stops import UNANNOUNCED
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, INTEGERS, LABELLED, TEXTS, Column, SourceType
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import MappedColumn, TableMap
from cdcsync_spark.wire.binlog.images.image import OLD_TEMPORALS
from cdcsync_spark.wire.binlog.members import members
from cdcsync_spark.wire.columns.charset import charset_of, same_charset
from cdcsync_spark.wire.columns.replacement import REPLACEMENT

#: a column that MariaDB keeps for a UNIQUE key that is too long for an index
_ROW_HASH = re.compile(r"DB_ROW_HASH_\d+")
#: a column that MySQL keeps for a part of a functional index, by the name that older versions give
_FUNCTIONAL = re.compile(r"!hidden!.+!\d+!\d+|[0-9a-f]{32}", re.S)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r"}


def is_functional(mapped: MappedColumn) -> bool:
    """Whether the name is that of a hidden column of a functional index (MySQL 8.0.13 to 8.0.17
    have it in TABLE_MAP events, and in no image)."""
    return mapped.name is not None and _FUNCTIONAL.fullmatch(mapped.name) is not None


def _is_hidden(mapped: MappedColumn) -> bool:
    """Whether the server keeps the column for itself: no catalog shows it."""
    if mapped.name and _ROW_HASH.fullmatch(mapped.name):
        return mapped.code == types.LONGLONG and mapped.unsigned is True
    return is_functional(mapped)


def planned(table_map: TableMap, table: Capture) -> list[Column | None]:
    """For each column of the event the table's one of that name, None for one that the server
    hides; the table's in their order where the event names none."""
    if not table_map.described:
        return list(table.columns)
    by_name = {c.name: c for c in table.columns}
    return [by_name.get(c.name or "") for c in table_map.columns]


def described(table_map: TableMap, table: Capture) -> list[MappedColumn]:
    """The event's columns, with the digits of old times, which are only in the catalog: a table of
    MariaDB from before 10.1, or made with mysql56_temporal_format=OFF."""
    return [
        replace(mapped, meta=column.type.size)
        if column and column.type.size > 0 and mapped.code in OLD_TEMPORALS
        else mapped
        for column, mapped in zip(planned(table_map, table), table_map.columns, strict=True)
    ]


def shown(table_map: TableMap, table: Capture) -> list[MappedColumn]:
    """The event's columns without those that the server hides. A column of the table is none of
    them, whatever its name."""
    names = {c.name for c in table.columns}
    return [c for c in table_map.columns if c.name in names or not _is_hidden(c)]


def check_table_map(table_map: TableMap, table: Capture) -> None:
    """The event's definition equals the planned one: names, order, types, signedness, character
    sets, members. Of an event that does not name its columns, which have their places instead, what
    it has is compared.

    Raises RowMetadataNotFull where the event does not say, SchemaChangeRefused where it says
    something else (rule R9).
    """
    columns = shown(table_map, table)
    if table_map.described:
        names, needed = [c.name for c in columns], [c.name for c in table.columns]
        if names != needed:
            raise changed(table, f"rows with the columns {', '.join(map(str, names))}", ", ".join(needed))
    elif len(columns) != len(table.columns):
        raise _other_number(table, len(columns))
    for column, mapped in zip(table.columns, columns, strict=True):
        if column.name not in table.excluded:
            _check_column(table, column, mapped, described=table_map.described)


def _check_column(table: Capture, column: Column, mapped: MappedColumn, *, described: bool) -> None:
    base = column.type.base
    expected = _EXPECTED.get(base)
    if expected is None or not expected(column.type, mapped):
        what = f"rows whose column {column.name} has the type {mapped.code} with metadata {mapped.meta}"
        raise changed(table, what, column.type.declared)
    if base in INTEGERS and mapped.unsigned is None and described:
        raise _metadata_missing(table)
    if base in INTEGERS and mapped.unsigned not in (None, column.type.unsigned):
        raise changed(
            table, f"rows whose column {column.name} is {'un' if mapped.unsigned else ''}signed", column.type.declared
        )
    if base in LABELLED:
        _check_text(table, column, mapped, described=described)


def _check_text(table: Capture, column: Column, mapped: MappedColumn, *, described: bool) -> None:
    if described and (mapped.collation is None or (column.type.members and mapped.members is None)):
        raise _metadata_missing(table)
    charset = column.type.charset if mapped.collation is None else charset_of(mapped.collation)
    if mapped.collation is not None and not same_charset(charset, column.type.charset):
        raise changed(table, f"rows whose column {column.name} is in {charset}", column.type.charset)
    if mapped.members is None:
        return
    names = [name or "" for name in members(mapped, replaced=True).names]
    planned = column.type.members
    if len(names) != len(planned) or not all(map(_same_member, names, planned)):
        raise changed(table, f"rows whose column {column.name} has the members {names}", column.type.declared)


def _same_member(recorded: str, planned: str) -> bool:
    """information_schema cannot show bytes that are no text, each server in another way."""
    return recorded in (planned, _unescaped(planned)) or REPLACEMENT in recorded


def _unescaped(member: str) -> str:
    """information_schema shows a backslash doubled, and some characters by one, depending on its
    server's sql_mode."""
    return re.sub(r"\\(.)", lambda m: _ESCAPED.get(m[1], m[1]), member, flags=re.S)


def changed(table: Capture, recorded: str, needed: str) -> CdcError:
    """The refusal of rows that are not as the table was planned; a resnapshot cures it."""
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"{recorded}, {UNANNOUNCED}",
        needed=f"the planned definition: {needed}",
        remedy=RESNAPSHOT,
        table=str(table.id),
    )


def _other_number(table: Capture, count: int) -> CdcError:
    """The refusal of rows of `found` columns without names. More than the catalog has may be
    columns that the server hides, which a resnapshot leaves as they are."""
    what, columns = f"rows of {count} columns without names", len(table.columns)
    if count < columns:
        return changed(table, what, f"{columns} columns")
    return fail(
        Reason.ROW_METADATA_NOT_FULL,
        f"{what}; the catalog has {columns}",
        needed="binlog_row_metadata=FULL for a table with columns that the server hides (a UNIQUE key of long"
        " values), or as many columns as the catalog shows",
        remedy=f"SET GLOBAL binlog_row_metadata = 'FULL'; then {RESNAPSHOT}",
        table=str(table.id),
    )


def _metadata_missing(table: Capture) -> CdcError:
    return fail(
        Reason.ROW_METADATA_NOT_FULL,
        "rows whose TABLE_MAP event does not name and describe the columns",
        needed="binlog_row_metadata=FULL",
        remedy=f"SET GLOBAL binlog_row_metadata = 'FULL'; then {RESNAPSHOT}",
        table=str(table.id),
    )


_Expected = Callable[[SourceType, MappedColumn], bool]


def _code(*codes: int) -> _Expected:
    return lambda _, mapped: mapped.code in codes


def _sized(code: int) -> _Expected:
    """BINARY(0) has no byte; what is declared without a size has one."""
    return lambda source, mapped: mapped.code == code and mapped.meta == (1 if source.size < 0 else source.size)


def _fractional(new: int, old: int) -> _Expected:
    def expected(source: SourceType, mapped: MappedColumn) -> bool:
        digits = max(source.size, 0)
        return (mapped.code, mapped.meta) == (new, digits) or mapped.code == old

    return expected


def _is_decimal(source: SourceType, mapped: MappedColumn) -> bool:
    return mapped.code == types.DECIMAL and (mapped.meta & 0xFF, mapped.meta >> 8) == (
        max(source.size, 1),
        source.scale,
    )


_STRINGS = (types.STRING, types.VARCHAR, types.VAR_STRING, types.BLOB, types.VARCHAR_COMPRESSED, types.BLOB_COMPRESSED)
_EXPECTED: dict[str, _Expected] = {
    "tinyint": _code(types.TINY),
    "smallint": _code(types.SHORT),
    "mediumint": _code(types.INT24),
    "int": _code(types.LONG),
    "bigint": _code(types.LONGLONG),
    "float": _code(types.FLOAT),
    "double": _code(types.DOUBLE),
    "decimal": _is_decimal,
    "bit": _sized(types.BIT),
    "year": _code(types.YEAR),
    "date": _code(types.DATE, types.NEWDATE),
    "datetime": _fractional(types.DATETIME2, types.DATETIME),
    "timestamp": _fractional(types.TIMESTAMP2, types.TIMESTAMP),
    "time": _fractional(types.TIME2, types.TIME),
    **dict.fromkeys(TEXTS | BINARIES, _code(*_STRINGS)),
    "binary": _sized(types.STRING),
    **dict.fromkeys(GEOMETRIES, _code(types.GEOMETRY, types.BLOB)),
    "enum": _code(types.ENUM),
    "set": _code(types.SET),
    "json": _code(types.JSON, types.BLOB),
    "vector": _code(types.VECTOR, types.VARCHAR, types.BLOB),
    "uuid": _code(types.STRING),
    "inet4": _code(types.STRING),
    "inet6": _code(types.STRING),
}
