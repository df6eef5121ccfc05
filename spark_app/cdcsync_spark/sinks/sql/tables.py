"""Statements that create a table with a target's columns and fill it."""

from __future__ import annotations

from collections.abc import Sequence

from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Converted, Filled, Origin
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import column_list, table_name


def create(dialect: Dialect, session: SqlSession, table: SqlName, capture: Capture, schema: TargetSchema) -> None:
    """An empty table with the columns of a target, and its key, marked by the name that it is
    created with."""
    lines = _columns(dialect, session, capture, schema, schema.names)
    lines.append(f"PRIMARY KEY ({column_list(dialect, schema.key)})")
    session.run(f"CREATE TABLE {table_name(dialect, table)} ({', '.join(lines)}){dialect.marked(table.table)}")


def create_unkeyed(
    dialect: Dialect, session: SqlSession, table: SqlName, capture: Capture, schema: TargetSchema
) -> None:
    """The same without the key, for staged rows."""
    lines = [*_columns(dialect, session, capture, schema, schema.names), *dialect.row_number]
    session.run(f"CREATE TABLE {table_name(dialect, table)} ({', '.join(lines)})")


def create_temporary(
    dialect: Dialect, session: SqlSession, name: str, state: TableState, columns: Sequence[str]
) -> None:
    """A session's own table of some of the columns, in place of the one that it may have."""
    lines = [*_columns(dialect, session, state.capture, state.schema, columns), *dialect.row_number]
    for statement in dialect.temporary_tables(name, ", ".join(lines)):
        session.run(statement)


def types(dialect: Dialect, session: SqlSession, state: TableState) -> list[str]:
    """The database's types of a target's columns."""
    return _types(dialect, session, state.capture, state.schema)


def _types(dialect: Dialect, session: SqlSession, capture: Capture, schema: TargetSchema) -> list[str]:
    sources = {column.name: column.type for column in capture.columns}
    return dialect.column_types(session, [(c, sources.get(c.source or "")) for c in schema.columns], schema.key)


def _columns(
    dialect: Dialect, session: SqlSession, capture: Capture, schema: TargetSchema, names: Sequence[str]
) -> list[str]:
    kinds = _types(dialect, session, capture, schema)
    return [
        f"{dialect.quoted(column.name)} {kind}{' NOT NULL' if column.name in schema.key else ' NULL'}"
        for column, kind in zip(schema.columns, kinds, strict=True)
        if column.name in names
    ]


def copy_rows(dialect: Dialect, rows: SqlName, to: SqlName, schema: TargetSchema) -> str:
    """The statement that inserts all rows of a table with the same columns."""
    names = column_list(dialect, schema.names)
    return f"INSERT INTO {table_name(dialect, to)} ({names}) SELECT {names} FROM {table_name(dialect, rows)}"


def take_rows(dialect: Dialect, rows: SqlName, to: SqlName, schema: TargetSchema, origins: Sequence[Origin]) -> str:
    """The statement that inserts all rows of a table, each column from its origin."""
    values = ", ".join(_value(dialect, origin) for origin in origins)
    return (
        f"INSERT INTO {table_name(dialect, to)} ({column_list(dialect, schema.names)})"
        f" SELECT {values} FROM {table_name(dialect, rows)}"
    )


def keys_there(dialect: Dialect, keys: str, table: SqlName, columns: Sequence[TargetColumn]) -> str:
    """The query for one of the `keys`, a quoted name, that a row of the table has; `columns` are
    the key's."""
    values = ", ".join(map(dialect.read_expression, columns))
    same = " AND ".join(f"t.{name} = k.{name}" for name in (dialect.quoted(column.name) for column in columns))
    rows = f"SELECT 1 FROM {table_name(dialect, table)} t WHERE {same}"
    return f"SELECT {values} FROM {keys} k WHERE EXISTS ({rows}) LIMIT 1"


def _value(dialect: Dialect, origin: Origin) -> str:
    if isinstance(origin, Filled):
        return dialect.literal(origin.value)
    name = dialect.quoted(origin.source)
    if isinstance(origin, Converted) and origin.digits:
        return dialect.with_digits(name, origin.digits)
    return name
