"""Row events of one table to one Arrow batch of changes: the plain decoder, value by value.

Why it is right: the definition that every TABLE_MAP carries is compared with the planned one before a byte is read, the images are
cut by the event's own metadata and must end exactly with the event, and a value that cannot be read stops the table. It is the oracle of
any faster decoder behind the same two functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from cdcsync_core.change import ChangeKind, changes_schema
from cdcsync_core.errors import CdcError, DecodeError, Reason, fail
from cdcsync_core.table import BINARIES, GEOMETRIES, INTEGERS, TEXTS, Column, SourceType, Table
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.wire import tablemap as types
from cdcsync_spark.wire.charset import charset_of, same_charset
from cdcsync_spark.wire.facts import MappedColumn, Operation, RowsEvent, TableMap
from cdcsync_spark.wire.image import Raw, layout, split
from cdcsync_spark.wire.value import convert, member_names

_KINDS: dict[Operation, tuple[ChangeKind, ...]] = {
    Operation.WRITE: (ChangeKind.INSERT,),
    Operation.UPDATE: (ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER),
    Operation.DELETE: (ChangeKind.DELETE,),
}
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r"}
_STAYING = (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)


class Decoded(NamedTuple):
    """`batch` has the schema `changes_schema(arrow_schema(table))`; `nulled` counts the dates of inserted rows and after images that
    became NULL."""

    batch: pa.RecordBatch
    nulled: int


def decode(table: Table, events: Sequence[RowsEvent], transactions: Sequence[int]) -> Decoded:
    """The changes of `events` in their order; `transactions[i]` is the transaction index of `events[i]`.

    Raises the first event's `defect`, RowMetadataNotFull, SchemaChangeRefused or DecodeError, always with the table's name.
    """
    schema = changes_schema(arrow_schema(table))
    parts = [
        _decode_run(table, run_map, [events[i] for i in run], [transactions[i] for i in run], schema)
        for run_map, run in _runs(events)
    ]
    if not parts:
        return Decoded(pa.RecordBatch.from_pylist([], schema), 0)
    batch = parts[0].batch if len(parts) == 1 else pa.concat_batches([p.batch for p in parts])
    return Decoded(batch, sum(p.nulled for p in parts))


def _runs(events: Sequence[RowsEvent]) -> Iterator[tuple[TableMap, list[int]]]:
    """Consecutive events with one TABLE_MAP."""
    for event in events:
        if event.defect:
            raise event.defect
    for _, group in groupby(range(len(events)), lambda i: id(events[i].map)):
        run = list(group)
        yield events[run[0]].map, run


def _decode_run(
    table: Table, table_map: TableMap, events: list[RowsEvent], transactions: list[int], schema: pa.Schema
) -> Decoded:
    with _naming(table):
        check_table_map(table_map, table)
    raw: list[Raw | None] = [None if c.name in table.excluded else [] for c in table.columns]
    kinds: list[int] = []
    numbers: list[int] = []
    with _naming(table):
        layouts = [layout(m) for m in table_map.columns]
        for event, transaction in zip(events, transactions, strict=True):
            images = split(event.body, layouts, raw)
            pattern = _KINDS[event.operation]
            if images % len(pattern):
                raise DecodeError("an update without its after image")
            kinds.extend(pattern * (images // len(pattern)))
            numbers.extend([transaction] * images)
    arrays = [pa.array(kinds, pa.int8()), pa.array(numbers, pa.int32())]
    nulled = 0
    for column, mapped, values in zip(table.columns, table_map.columns, raw, strict=True):
        if values is not None:
            with _naming(table, column.name):
                converted = convert(column, mapped, values)
            arrays.append(converted.values)
            nulled += sum(kinds[i] in _STAYING for i in converted.nulled)
    return Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema), nulled)


@contextmanager
def _naming(table: Table, column: str = "") -> Iterator[None]:
    """Gives a DecodeError the names that it lacks."""
    try:
        yield
    except DecodeError as e:
        raise DecodeError(e.found, needed=e.needed, table=str(table.id), column=e.column or column) from None


def check_table_map(table_map: TableMap, table: Table) -> None:
    """The event's definition equals the planned one: names, order, types, signedness, character sets, members.

    Raises RowMetadataNotFull where the event does not say, SchemaChangeRefused where it says something else (rule R9).
    """
    names = [c.name for c in table_map.columns]
    if None in names:
        raise _metadata_missing(table)
    planned = [c.name for c in table.columns]
    if names != planned:
        raise _changed(table, f"rows with the columns {', '.join(map(str, names))}", ", ".join(planned))
    for column, mapped in zip(table.columns, table_map.columns, strict=True):
        if column.name not in table.excluded:
            _check_column(table, column, mapped)


def _check_column(table: Table, column: Column, mapped: MappedColumn) -> None:
    base = column.type.base
    expected = _EXPECTED.get(base)
    if expected is None or not expected(column.type, mapped):
        what = f"rows whose column {column.name} has the type {mapped.code} with metadata {mapped.meta}"
        raise _changed(table, what, column.type.declared)
    if base in INTEGERS and mapped.unsigned is None:
        raise _metadata_missing(table)
    if base in INTEGERS and mapped.unsigned != column.type.unsigned:
        raise _changed(
            table, f"rows whose column {column.name} is {'un' if mapped.unsigned else ''}signed", column.type.declared
        )
    if base in _LABELLED:
        _check_text(table, column, mapped)


def _check_text(table: Table, column: Column, mapped: MappedColumn) -> None:
    if mapped.collation is None or (column.type.members and mapped.members is None):
        raise _metadata_missing(table)
    charset = charset_of(mapped.collation)
    if not same_charset(charset, column.type.charset):
        raise _changed(table, f"rows whose column {column.name} is in {charset}", column.type.charset)
    found = member_names(mapped)
    planned = column.type.members
    if len(found) != len(planned) or not all(f in (p, _unescaped(p)) for f, p in zip(found, planned, strict=True)):
        raise _changed(table, f"rows whose column {column.name} has the members {found}", column.type.declared)


def _unescaped(member: str) -> str:
    """information_schema shows a backslash doubled, and some characters by one, depending on its server's sql_mode."""
    return re.sub(r"\\(.)", lambda m: _ESCAPED.get(m[1], m[1]), member, flags=re.S)


def _changed(table: Table, found: str, needed: str) -> CdcError:
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"{found}, without a statement in the log that changed them",
        needed=f"the planned definition: {needed}",
        remedy="read the table again by spec.resnapshot",
        table=str(table.id),
    )


def _metadata_missing(table: Table) -> CdcError:
    return fail(
        Reason.ROW_METADATA_NOT_FULL,
        "rows whose TABLE_MAP event does not name and describe the columns",
        needed="binlog_row_metadata=FULL",
        remedy="SET GLOBAL binlog_row_metadata = 'FULL'; then read the table again by spec.resnapshot",
        table=str(table.id),
    )


_Expected = Callable[[SourceType, MappedColumn], bool]


def _code(*codes: int) -> _Expected:
    return lambda _, mapped: mapped.code in codes


def _sized(code: int) -> _Expected:
    return lambda source, mapped: mapped.code == code and mapped.meta == max(source.size, 1)


def _fractional(new: int, old: int) -> _Expected:
    def expected(source: SourceType, mapped: MappedColumn) -> bool:
        digits = max(source.size, 0)
        return (mapped.code, mapped.meta) == (new, digits) or (mapped.code == old and not digits)

    return expected


def _is_decimal(source: SourceType, mapped: MappedColumn) -> bool:
    return mapped.code == types.DECIMAL and (mapped.meta & 0xFF, mapped.meta >> 8) == (
        max(source.size, 1),
        source.scale,
    )


_STRINGS = (types.STRING, types.VARCHAR, types.VAR_STRING, types.BLOB, types.VARCHAR_COMPRESSED, types.BLOB_COMPRESSED)
_LABELLED = TEXTS | {"enum", "set"}
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
