"""What a statement is for temporary tables: which it creates, drops, changes and renames, if the
names mean such.

Why it is right: it is read as the session's own tokens, up to the tables. A statement whose tables
are not read with certainty raises `Unreadable`: it may have created, dropped or renamed any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cdcsync_spark.wire.sql.row_changes.dml import skip_settings
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader, clauses
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Unreadable, tokenize


class TableUse(NamedTuple):
    """`changed` are all tables whose rows or definition the statement changes; `renamed` those of
    them that get another name."""

    created: tuple[TableName, ...] = ()
    dropped: tuple[TableName, ...] = ()
    changed: tuple[TableName, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()


_NOTHING = TableUse()


def read_use(statement: Statement) -> TableUse:
    """Nothing for other statements than DDL on tables, and for MySQL's RENAME TABLE, which takes
    base tables alone. Raises Unreadable."""
    reader = TokenReader(tokenize(statement.sql, statement.session), statement.database)
    skip_settings(reader)
    verb = reader.take_any(*_VERBS)
    if not verb or (verb == "RENAME" and not statement.session.mariadb):
        return _NOTHING
    return _VERBS[verb](reader)


def _create(reader: TokenReader) -> TableUse:
    reader.take("OR", "REPLACE")
    if reader.take_any("TEMPORARY TABLE", "TEMPORARY SEQUENCE"):
        reader.take("IF", "NOT", "EXISTS")
        return TableUse(created=(reader.table(),))
    return _of_index(reader)


def _of_index(reader: TokenReader) -> TableUse:
    """CREATE INDEX and DROP INDEX ... ON table."""
    reader.take_any("ONLINE", "OFFLINE")
    reader.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    if not reader.take("INDEX"):
        return _NOTHING
    while not reader.take("ON"):
        reader.next()
    return TableUse(changed=(reader.table(),))


def _drop(reader: TokenReader) -> TableUse:
    if not reader.take_any("TEMPORARY TABLES", "TEMPORARY TABLE", "TEMPORARY SEQUENCE"):
        return _of_index(reader)
    reader.take("IF", "EXISTS")
    return TableUse(dropped=_list(reader))


def _alter(reader: TokenReader) -> TableUse:
    reader.take_any("ONLINE", "OFFLINE")
    reader.take("IGNORE")
    if not reader.take("TABLE"):
        return _NOTHING
    reader.take("IF", "EXISTS")
    table = reader.table()
    reader.wait()
    renamed = [to for clause in clauses(reader.rest()) for to in _new_names(TokenReader(clause, table.database))]
    if renamed and table.database != reader.default:
        raise Unreadable("a table of another database gets a new name")
    return TableUse(changed=(table,), renamed=((table, renamed[-1]),) if renamed else ())


def _new_names(clause: TokenReader) -> list[TableName]:
    if not clause.take("RENAME"):
        return []
    if clause.take_any("COLUMN", "INDEX", "KEY"):
        return []
    clause.take_any("TO", "AS", "=")
    return [clause.table()]


def _rename(reader: TokenReader) -> TableUse:
    if not reader.take_any("TABLES", "TABLE"):
        return _NOTHING
    reader.take("IF", "EXISTS")
    renamed: list[tuple[TableName, TableName]] = []
    changed: list[TableName] = []
    while not renamed or reader.take(","):
        table = reader.table()
        reader.wait()
        reader.need("TO")
        if table not in (to for _, to in renamed):
            changed.append(table)
        renamed.append((table, reader.table()))
    return TableUse(changed=tuple(changed), renamed=tuple(renamed))


def _truncate(reader: TokenReader) -> TableUse:
    reader.take("TABLE")
    return TableUse(changed=(reader.table(),))


def _list(reader: TokenReader) -> tuple[TableName, ...]:
    tables = [reader.table()]
    while reader.take(","):
        tables.append(reader.table())
    return tuple(tables)


_VERBS: dict[str, Callable[[TokenReader], TableUse]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
