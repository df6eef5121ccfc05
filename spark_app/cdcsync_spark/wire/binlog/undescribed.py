"""TABLE_MAP events that do not name their columns (`binlog_row_metadata` below FULL): what they
leave out is taken from the table's definition, column by column in its order.

Why it is right: the definition is the catalog's as of the plan, changed by the statements that were
followed since, and `predicted_map.check_rows` compares with it all that the event does carry. What
the catalog shows with a doubt (members of an ENUM or SET that it may have escaped or replaced) is
not taken: the rows are refused.
"""

from __future__ import annotations

from dataclasses import replace

from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.tables.capture import Capture, members_unknown, uncertain_members
from cdcsync_core.tables.source_table import INTEGERS, TEXTS, Column
from cdcsync_spark.wire.binlog.facts import MappedColumn, TableMap
from cdcsync_spark.wire.columns.charset import collation_in, stored_charset

_UTF8MB4 = "utf8mb4"


def completed(table_map: TableMap, table: Capture) -> TableMap:
    """The event with names, signs, character sets and members, of a table whose columns it has by
    number. Raises RowMetadataNotFull."""
    if table_map.described:
        return table_map
    doubtful = uncertain_members(table)
    if doubtful:
        raise members_unknown(table, doubtful, then=f"; then {RESNAPSHOT}")
    pairs = zip(table.columns, table_map.columns, strict=True)
    return replace(table_map, columns=tuple(_completed(column, mapped) for column, mapped in pairs))


def _completed(column: Column, mapped: MappedColumn) -> MappedColumn:
    source = column.type
    named = replace(mapped, name=column.name)
    if source.base in INTEGERS and mapped.unsigned is None:
        return replace(named, unsigned=source.unsigned)
    if source.base in TEXTS and mapped.collation is None:
        return replace(named, collation=collation_in(stored_charset(source.charset)))
    if source.base in ("enum", "set") and mapped.members is None:
        # values are numbers of members, so the members may be in any character set
        texts = tuple(member.encode() for member in source.members)
        return replace(named, members=texts, collation=collation_in(_UTF8MB4))
    return named
