"""Keys that the manifest declares: columns that identify a row although no index of the source
says so.

A declared key means what a unique index over the columns would enforce, row by row: where a row is
inserted, or updated to another key, no row has that key. Keys are compared byte by byte in the
target's form, whatever the collation: `a` and `A` are two keys. A table whose rows break it stops,
because the second row would take the place of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId

#: characters of a key's value in a message
_SHOWN = 64


def two_rows_read(table: Capture, key: Sequence[Any]) -> CdcError:
    """The refusal of a table that a snapshot reads, in which two rows have the values `key`."""
    return _not_unique(table, f"two rows have the declared key {_text(table, key)}")


def inserted_twice(table: Capture, key: Sequence[Any]) -> CdcError:
    """The refusal of changes that give a row the key of one that is there."""
    return _not_unique(table, f"a row gets the declared key {_text(table, key)}, which another row has")


def removed_twice(table: Capture, key: Sequence[Any]) -> CdcError:
    """The refusal of changes that take away two rows of one key, with none given between."""
    return _not_unique(table, f"two rows lose the declared key {_text(table, key)}, one after the other")


def unguarded(table: TableId, part: str) -> CdcError:
    """The refusal of a declared key because of `part` of the manifest, before anything is read."""
    return fail(
        Reason.SPEC_INVALID,
        f"tables.overrides[].key, which {part} does not guard against a second row",
        needed="a replica that begins with a snapshot, in Iceberg tables, in Delta tables with deletion vectors, or"
        " in a SQL database",
        remedy=f"remove the key, and add one to the table, or leave {table} out by spec.tables.exclude",
        table=str(table),
    )


def unguarded_commit(table: Capture, reason: str) -> CdcError:
    """The refusal of a commit that would not see whether a key is there."""
    return fail(
        Reason.SINK_CONFLICT,
        f"commits that do not guard the declared key ({', '.join(table.key)}), because {reason}",
        needed="a target with deletion vectors",
        remedy=f"allow them in the target, or remove tables.overrides[].key and add a key to {table.id}",
        table=str(table.id),
    )


def _not_unique(table: Capture, found: str) -> CdcError:
    return fail(
        Reason.KEY_NOT_UNIQUE,
        found,
        needed="rows that differ in the columns of tables.overrides[].key",
        remedy="delete the second row on the source, or declare columns that identify a row; then"
        f" {resnapshot(table.id)}",
        table=str(table.id),
    )


def _text(table: Capture, key: Sequence[Any]) -> str:
    return ", ".join(f"{name}={value!r:.{_SHOWN}}" for name, value in zip(table.key, key, strict=True))
