"""Whether a TABLE_MAP event equals a predicted definition in every field that it carries: the proof
of a schema change that was followed.

Why it is right: besides what `definition` needs to read bytes (names, order, types, signedness,
character sets, members) the length, precision and nullability of each column and the key are
compared, so a prediction that is wrong in anything but a default is found before its first row is
used. What the event does not carry is not compared: an absent field proves nothing, and
`unseen_by_rows` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Filled, Followed
from cdcsync_core.tables.source_table import BINARIES, INTEGERS, LABELLED, Column, SourceType
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.definition import changed, check_table_map, shown
from cdcsync_spark.wire.binlog.facts import MappedColumn, TableMap
from cdcsync_spark.wire.columns.charset import charset_of
from cdcsync_spark.wire.sql.column.column_types import CAPACITY, max_bytes


def differences(definition: Capture, table_map: TableMap) -> list[str]:
    """What the event says otherwise; empty if it confirms the definition."""
    try:
        check_table_map(table_map, definition)
    except CdcError as e:
        return [e.found]
    unlike = [
        difference
        for column, mapped in zip(definition.columns, shown(table_map, definition), strict=True)
        for difference in _of_column(column, mapped)
    ]
    return [*unlike, *_of_key(definition, table_map)]


def check_rows(table: Capture, table_map: TableMap) -> None:
    """The event is of rows that can be read as `table`. Where it does not name the columns, it has
    to equal the definition in all that it carries. Raises as `check_table_map`."""
    check_table_map(table_map, table)
    unlike = [] if table_map.described else differences(table, table_map)
    if unlike:
        raise changed(table, f"rows of which {'; '.join(unlike)}", ", ".join(c.type.declared for c in table.columns))


def _of_column(column: Column, mapped: MappedColumn) -> Iterator[str]:
    if column.nullable != mapped.nullable:
        yield f"{column.name} may{'' if mapped.nullable else ' not'} be NULL"
    source = column.type
    length = _LENGTHS.get(source.base)
    if length is not None and mapped.code in length[0] and mapped.meta != length[1](source):
        yield f"{column.name} has the length {mapped.meta}, not {length[1](source)} as {source.declared}"
    if source.base in _CODES and mapped.code not in _CODES[source.base]:
        yield f"{column.name} has the type {mapped.code}, not {source.declared}"
    if mapped.unsigned is not None and source.base in _SIGNED and mapped.unsigned != source.unsigned:
        yield f"{column.name} is {'un' if mapped.unsigned else ''}signed"
    if source.base not in LABELLED and mapped.members is not None:
        yield f"{column.name} has members"
    if source.base in BINARIES and mapped.collation is not None and charset_of(mapped.collation) != "binary":
        yield f"{column.name} is in {charset_of(mapped.collation)}"


def _of_key(definition: Capture, table_map: TableMap) -> Iterator[str]:
    """The event names the primary key; another index is named only where there is none."""
    if definition.key_index != "PRIMARY" or not table_map.described:
        return
    if table_map.key is None:
        yield "no primary key"
        return
    places = {column.name: place for place, column in enumerate(table_map.columns)}
    if table_map.key != tuple((places[name], 0) for name in definition.key):
        yield f"another primary key than ({', '.join(definition.key)})"


def shown_by_rows(change: Followed) -> bool:
    """Whether an event that equals the next definition differs from the previous one's, or there
    is nothing that it could show: the change keeps all that was known."""
    before, after = change.before, change.after
    carried = _carried(before) != _carried(after)
    return carried or (before == after and before.source.facts == after.source.facts)


def unseen_by_rows(change: Followed) -> tuple[str, ...]:
    """What is predicted to change and no event carries, by its name."""
    return tuple(_unseen(change))


def _carried(definition: Capture) -> tuple[object, ...]:
    """What of a definition an event has in some form."""
    columns = tuple((c.name, c.nullable, _in_event(c.type)) for c in definition.columns)
    return columns, definition.key if definition.key_index == "PRIMARY" else ()


def _in_event(source: SourceType) -> tuple[object, ...]:
    """The sizes of integers and YEAR are how their values are printed."""
    size = () if source.base in _PRINTED else (source.size, source.scale)
    return source.base, size, source.unsigned, source.charset, source.members


def _unseen(change: Followed) -> Iterator[str]:
    olds = {column.name: column for column in change.before.columns}
    for column, origin in zip(change.after.columns, change.origins, strict=True):
        if isinstance(origin, Filled):
            yield f"the default of {column.name}"
            continue
        old = olds[origin.source]
        if old.type.declared != column.type.declared and _in_event(old.type) == _in_event(column.type):
            yield f"the declaration of {column.name}"
        if old.collation != column.collation:
            yield f"the collation of {column.name}"
    facts = zip(_FACTS.items(), change.before.source.facts, change.after.source.facts, strict=True)
    yield from (name for (name, unknown), old, new in facts if new not in (old, unknown))


#: in the order of `SourceTable.facts`, each with what it is where nothing is predicted
_FACTS = {
    "the default character set": "",
    "the generated columns": None,
    "the numbered column": None,
    "the unique indexes": None,
}
_PRINTED = INTEGERS.keys() | {"year"}
_SIGNED = frozenset({"decimal", "float", "double"})
_TEXT = frozenset({types.STRING, types.VAR_STRING})
_VARIABLE = frozenset({types.VARCHAR})
_BLOB = frozenset({types.BLOB})
#: the codes of strings, of which each is a string's to the reader of rows
_CODES: dict[str, frozenset[int]] = {
    "char": _TEXT,
    "varchar": _VARIABLE | {types.VARCHAR_COMPRESSED},
    "varbinary": _VARIABLE | {types.VARCHAR_COMPRESSED},
    **dict.fromkeys(CAPACITY, _BLOB | {types.BLOB_COMPRESSED}),
}


def _characters(source: SourceType) -> int:
    """CHAR without a length has one character."""
    return (1 if source.size < 0 else source.size) * max_bytes(source.charset)


def _width_of_length(source: SourceType) -> int:
    return (CAPACITY[source.base].bit_length() + 7) // 8


def _width_of_member(source: SourceType) -> int:
    return 1 if len(source.members) < 256 else 2


def _width_of_set(source: SourceType) -> int:
    width = (len(source.members) + 7) // 8
    return 8 if width > 4 else width


#: the metadata that is a length, where the column has one of these codes
_LENGTHS: dict[str, tuple[frozenset[int], Callable[[SourceType], int]]] = {
    "char": (_TEXT, _characters),
    "varchar": (_VARIABLE, _characters),
    "varbinary": (_VARIABLE, lambda source: source.size),
    **dict.fromkeys(CAPACITY, (_BLOB, _width_of_length)),
    "enum": (frozenset({types.ENUM}), _width_of_member),
    "set": (frozenset({types.SET}), _width_of_set),
}
