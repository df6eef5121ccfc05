"""Remedies that several errors share, in one wording each."""

from __future__ import annotations

#: where the error names the table already, and where all tables are concerned
RESNAPSHOT = "resnapshot the table (spec.resnapshot)"
RESNAPSHOT_ALL = "resnapshot the tables (spec.resnapshot)"
REPAIR_TABLE = f"repair the table on the source, or leave it out by spec.tables.exclude; then {RESNAPSHOT}"
STOP_OTHER_WRITER = f"stop the other writer, then {RESNAPSHOT}"


def rebuild_times(table: str) -> str:
    """Times in MariaDB's format of before 10.1 to today's; `table` is quoted."""
    return f"SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE {table} FORCE"


def resnapshot(table: object) -> str:
    """The remedy with the field as it is written in a manifest."""
    return f"resnapshot the table: spec.resnapshot: [{{table: {table}, nonce: N+1}}]"
