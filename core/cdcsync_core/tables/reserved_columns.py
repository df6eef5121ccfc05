"""Names of columns that readers of a target have for columns of their own.

A table with one of them would be written without an error and read by no one who knows it, so it is
refused before it is read. Readers compare names without their case.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_core.errors import CdcError, Reason, fail

#: Iceberg's (`MetadataColumns` of its library, 1.12), by which Spark and Trino refuse a table
ICEBERG = frozenset({"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"})


def reserved_error(columns: Iterable[str], reserved: frozenset[str], table: str) -> CdcError | None:
    """The error of the first of a target's `columns` that has one of the names; None where none
    has."""
    column = next((name for name in columns if name.casefold() in reserved), None)
    if column is None:
        return None
    return fail(
        Reason.SPEC_INVALID,
        f"the column {column} has the name of a metadata column of Iceberg, whose readers refuse the table",
        needed=f"no column of the names {', '.join(sorted(reserved))}",
        remedy="leave the source's column out by tables.overrides[].columns.exclude, or rename it; "
        "of a history table's own column choose another name in historyColumns of the sink",
        table=table,
    )
