"""Whether columns can be the key that the manifest declares; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.reading.splitquery import unsupported_key_reason


def declare(table: Capture, key: Sequence[str]) -> Capture:
    """The table with the declared key. Raises SpecInvalid for columns that are not captured or may
    be NULL, TypeUnsupported for those of a type that cannot be in a key."""
    captured = {column.name: column for column in table.captured}
    absent = [name for name in key if name not in captured]
    if absent:
        raise _invalid(table, f"{', '.join(absent)}", f"captured columns of the table: {', '.join(captured)}")
    nullable = [name for name in key if captured[name].nullable]
    if nullable:
        raise _invalid(table, f"{', '.join(nullable)}, which may be NULL", "NOT NULL columns")
    for column in map(captured.__getitem__, key):
        if reason := unsupported_key_reason(column):
            raise fail(
                Reason.TYPE_UNSUPPORTED,
                f"the column {column.name} of tables.overrides[].key {reason}",
                needed="a key of exact types, with texts in a character set that UTF-8 maps one to one",
                remedy="declare other columns",
                table=str(table.id),
            )
    return replace(table, key=tuple(key), key_index="", declared=True)


def refuse_beside_key(table: Capture) -> None:
    """Raises SpecInvalid for a table that has a key: the server guards that one, and it orders
    splits."""
    if table.key:
        raise fail(
            Reason.SPEC_INVALID,
            f"tables.overrides[].key beside a key of the table, ({', '.join(table.key)})",
            needed="a declared key only where the table has none",
            remedy="remove key from the table's entry in tables.overrides",
            table=str(table.id),
        )


def _invalid(table: Capture, found: str, needed: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"tables.overrides[].key names {found}",
        needed=needed,
        remedy="correct the key in the table's entry in tables.overrides, or the columns on the source",
        table=str(table.id),
    )
