"""Quoted names and lists of them."""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_spark.sinks.sql.dialects.answers import one_row
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect, SqlName, SqlSession


def table_name(dialect: Dialect, table: SqlName) -> str:
    return f"{dialect.quoted(table.schema)}.{dialect.quoted(table.table)}"


def column_list(dialect: Dialect, names: Iterable[str]) -> str:
    return ", ".join(dialect.quoted(name) for name in names)


def count(dialect: Dialect, session: SqlSession, table: SqlName) -> int:
    """The rows of a table; -1 where there is none."""
    if not dialect.columns(session, table):
        return -1
    counted = session.fetch((int,), f"SELECT COUNT(*) FROM {table_name(dialect, table)}")
    (rows,) = one_row(dialect.address, counted)
    return int(rows)
