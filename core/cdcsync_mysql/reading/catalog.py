"""How a table is defined, from the server's catalog, and whether it still is as it was captured.

Everything comes from information_schema in the server's order, invisible and generated columns and
the generated primary key included, because the binlog carries them all. Which tables are refused is
in `table_kind`, what may be a key in `unique_indexes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.reading.declared import declare
from cdcsync_mysql.reading.generation import Generated, unproved
from cdcsync_mysql.reading.table_kind import READING_DEFINITION, check_kind, open_table
from cdcsync_mysql.reading.unique_indexes import Index, key_index, no_key, read_indexes
from cdcsync_mysql.sessions.connection import Connection, fetch


def same_definition(connection: Connection, table: Capture) -> bool:
    """Whether the table's rows are read and told apart today as `table` says; raises as
    `read_table`."""
    return table.reads_as(read_again(connection, table))


def as_planned(connection: Connection, table: Capture) -> bool:
    """Whether that holds, and the server computes and numbers the columns that it did when `table`
    was read: what later statements do to rows follows from it, and no row shows it.

    The default character set and the unique indexes are not compared. Statements since LOW that
    change them are in the stream, which applies them again to the definition that was read. A
    default that was wrong meanwhile gives a text column another character set than the one that
    `TABLE_MAP` and the catalog show, and a difference there leads to a resnapshot. The indexes
    decide only by which reason a table stops when its key changes."""
    return _as_planned(table, read_again(connection, table))


def with_recomputed(connection: Connection, table: Capture) -> Capture:
    """The table with the columns that a rebuild may compute again, which older releases did not
    record; as it is, unless `as_planned`. Raises as `read_again`.

    No followed statement changes a generated column, or the types and collations that it is
    computed from: until the next one that is not followed, the expressions of now are those of
    every statement."""
    now = read_again(connection, table)
    return table.of(replace(table.source, recomputed=now.source.recomputed)) if _as_planned(table, now) else table


def _as_planned(table: Capture, now: Capture) -> bool:
    planned, shown = table.source, now.source
    same = (planned.generated, planned.auto_increment) == (shown.generated, shown.auto_increment)
    return table.reads_as(now) and (planned.generated is None or same)


def refuse_unlike(connection: Connection, table: Capture) -> None:
    """Raises SourceUnreachable where a replica has not the table's definition of its source, or not
    yet."""
    try:
        alike = as_planned(connection, table)
    except PermanentError:
        alike = False
    if not alike:
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            "the replica of spec.source.snapshotHost has another definition of the table",
            needed="the source's, which it may have not applied yet",
            remedy="none while the replica is behind; else make the table there like the source's",
            table=str(table.id),
        )


def read_again(connection: Connection, table: Capture) -> Capture:
    """The definition of now of a table that is captured; raises as `read_table`, but for virtual
    columns, with which an older release may have captured it. A declared key stays the one, though
    the table may have got another."""
    needs_key = bool(table.key) and not table.declared
    key = () if table.declared else table.key
    now = read_table(connection, table.id, table.excluded, key, needs_key=needs_key, captured=True)
    return declare(now, table.key) if table.declared else now


def read_table(
    connection: Connection,
    table_id: TableId,
    excluded: frozenset[str] = frozenset(),
    key: tuple[str, ...] = (),
    *,
    needs_key: bool = True,
    captured: bool = False,
) -> Capture:
    """The table's definition of now; with the key `key`, if that is one still. Without
    `needs_key`, a table that has no key is one without. Where it is `captured` already, its
    generated columns are not judged.

    Raises NoSuchTable, EngineUnsupported, LogIncomplete (a name that the binlog spells in another
    way), NoPrimaryKey, TypeUnsupported (a key column that cannot be cut), SpecInvalid (an excluded
    column that is unknown or in the key).
    """
    charset = check_kind(connection, table_id)
    rows = _column_rows(connection, table_id)
    columns = tuple(_column(table_id, row) for row in rows)
    indexes = read_indexes(connection, table_id)
    if not indexes:
        open_table(connection, table_id)
    _check_excluded(table_id, excluded, {c.name for c in columns})
    generated, reasons = _generated(columns, rows)
    if not captured:
        _check_generated(table_id, excluded, generated, reasons)
    by_name = {c.name: c for c in columns}
    index = key_index(table_id, by_name, indexes, key)
    if index is None and needs_key:
        raise no_key(table_id, by_name, indexes)
    index = index or Index("")
    _check_key_is_left(table_id, excluded, index)
    source = SourceTable(
        table_id,
        columns,
        charset,
        generated=frozenset(generated),
        auto_increment=next((str(row[0]) for row in rows if "auto_increment" in str(row[5]).lower()), ""),
        unique=frozenset(i.name for i in indexes) - {index.name},
        recomputed=frozenset(reasons) - excluded,
    )
    return Capture(source, tuple(index.columns), excluded, index.name)


def _column_rows(connection: Connection, table_id: TableId) -> list[tuple[Any, ...]]:
    """What `_column` needs, then EXTRA, and the expression of a generated column (else empty)."""
    return fetch(
        connection,
        "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE, COLLATION_NAME, EXTRA,"
        " COALESCE(GENERATION_EXPRESSION, '') FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (table_id.database, table_id.name),
        doing=READING_DEFINITION,
    )


def read_defaults(connection: Connection, table_id: TableId) -> dict[str, tuple[str | None, str]]:
    """`COLUMN_DEFAULT` and `EXTRA` by column."""
    rows = fetch(
        connection,
        "SELECT COLUMN_NAME, COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table_id.database, table_id.name),
    )
    return {str(name): (None if default is None else _text(default), str(extra)) for name, default, extra in rows}


def _column(table_id: TableId, row: tuple[Any, ...]) -> Column:
    name, declared, charset, nullable, collation, *_ = row
    text = _text(declared)
    if not _is_text(text):
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"the type of column {name} holds bytes that are no character: {text}",
            needed="members of ENUM and SET that are text",
            remedy="define the column again, or leave the table out by spec.tables.exclude",
            table=str(table_id),
        )
    return Column(str(name), SourceType.parse(text, charset), str(nullable) == "YES", collation or "")


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _is_text(value: str) -> bool:
    """Whether all bytes of it were (see `connection`)."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _check_excluded(table_id: TableId, excluded: frozenset[str], columns: set[str]) -> None:
    unknown = sorted(excluded - columns)
    if unknown:
        raise fail(
            Reason.SPEC_INVALID,
            f"columns.exclude names {', '.join(unknown)}",
            needed=f"columns of the table: {', '.join(sorted(columns))}",
            table=str(table_id),
        )


def _generated(columns: tuple[Column, ...], rows: list[tuple[Any, ...]]) -> tuple[dict[str, Generated], dict[str, str]]:
    """The generated columns, and why some may have two values for one row."""
    generated = {
        column.name: Generated(column, _text(row[6]), "STORED" in str(row[5]).upper())
        for column, row in zip(columns, rows, strict=True)
        if row[6]
    }
    return generated, unproved(generated, {c.name: c for c in columns})


def _check_generated(
    table_id: TableId, excluded: frozenset[str], generated: dict[str, Generated], reasons: dict[str, str]
) -> None:
    """Refuses virtual columns whose value in the binlog, which is the writer's, may not be the one
    that a SELECT computes."""
    names = [name for name in reasons if name not in excluded and not generated[name].stored]
    if names:
        named = ", ".join(f"{name} ({reasons[name]})" for name in names)
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"virtual columns that may have another value in another session: {named}",
            needed="generated columns whose value the row alone decides, or STORED ones",
            remedy=f"leave them out: tables.overrides: [{{table: {table_id}, columns: {{exclude: [{', '.join(names)}]}}}}];"
            " or define them as STORED",
            table=str(table_id),
        )


def _check_key_is_left(table_id: TableId, excluded: frozenset[str], index: Index) -> None:
    in_key = sorted(excluded & set(index.columns))
    if in_key:
        raise fail(
            Reason.SPEC_INVALID,
            f"columns.exclude names {', '.join(in_key)}",
            needed="no column of the key",
            remedy="leave the key's columns in",
            table=str(table_id),
        )
