"""Statements that define tables, and which tables each may change: read to the last token, or
`Unreadable`.

Why no other table is changed: a definition without a query changes the table that it makes. ALTER
changes the one that it alters, and others only by RENAME, EXCHANGE PARTITION and CONVERT, which
begin a clause, and clauses are what stands between commas outside of parentheses. A word that could
bring in another table at any other place makes the statement unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from cdcsync_spark.wire.sql.changes.effects import (
    Altered,
    Created,
    Dropped,
    Effect,
    IndexDropped,
    Indexed,
    Left,
    Moved,
    Rebuilt,
    Truncated,
)
from cdcsync_spark.wire.sql.syntax.indexes import create_index, index_modifiers
from cdcsync_spark.wire.sql.syntax.options import OPTIONS
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader, clauses, unnested, words
from cdcsync_spark.wire.sql.syntax.tokens import Session, Token, TokenKind, Unreadable, tokenize

_SEMICOLON = Token(TokenKind.SYMBOL, ";")
#: MariaDB's settings for one statement that change neither how it is read nor what it does
_SETTINGS = words(
    "max_statement_time lock_wait_timeout innodb_lock_wait_timeout binlog_alter_two_phase alter_algorithm old_alter_table"
    " foreign_key_checks unique_checks check_constraint_checks innodb_strict_mode max_session_mem_used sort_buffer_size"
    " join_buffer_size read_buffer_size read_rnd_buffer_size bulk_insert_buffer_size myisam_sort_buffer_size"
    " aria_sort_buffer_size tmp_table_size tmp_memory_table_size max_heap_table_size long_query_time slow_query_log"
    " log_slow_verbosity min_examined_row_limit tx_isolation transaction_isolation wait_timeout net_read_timeout"
    " net_write_timeout sql_notes note_verbosity wsrep_osu_method"
)


def read(sql: str, default_database: str, session: Session) -> tuple[Effect, ...]:
    """What the statement does, table by table; a table without an effect stays as it is. Raises
    Unreadable."""
    tokens = list(tokenize(sql, session))
    while tokens and tokens[-1] == _SEMICOLON:
        tokens.pop()
    reader = TokenReader(tokens, default_database)
    if reader.take("SET", "STATEMENT"):
        _settings(reader)
    verb = reader.need_any(*_VERBS)
    effects = tuple(_VERBS[verb](reader, session))
    reader.finish()
    return effects


def _settings(reader: TokenReader) -> None:
    while True:
        if reader.name().lower() not in _SETTINGS:
            raise reader.unexpected()
        reader.need("=")
        reader.take("-")
        reader.of(TokenKind.WORD, TokenKind.NUMBER, TokenKind.STRING)
        if reader.take("FOR"):
            return
        reader.need(",")


# -- CREATE


#: what begins or announces a query behind the columns of a table, or names other tables there
_QUERIES = frozenset({"SELECT", "TABLE", "VALUES", "AS", "IGNORE", "REPLACE", "UNION"})


def _create(reader: TokenReader, _: Session) -> Iterator[Effect]:
    replaced = reader.take("OR", "REPLACE")
    if reader.take("TABLE"):
        yield _create_table(reader, replaced)
    else:
        index, table = create_index(reader)
        yield IndexDropped(table, index) if replaced else Indexed(table)


def _create_table(reader: TokenReader, replaced: bool) -> Effect:
    """A table that flows is there: IF NOT EXISTS leaves it. Rows follow a START TRANSACTION."""
    keeps_existing = reader.take("IF", "NOT", "EXISTS") and not replaced
    table = reader.table()
    if reader.take("LIKE"):
        reader.table()
    else:
        keeps_existing &= "START" not in _definition(reader)
    return Left(table) if keeps_existing else Created(table)


def _definition(reader: TokenReader) -> set[str]:
    """Columns and options, and no query, whose functions could change any table. The words of the
    options."""
    inside = TokenReader(reader.parentheses())
    if inside.take("LIKE"):
        inside.table()
        inside.finish()
        return set()
    columns, options = inside.rest(), reader.rest()
    outside = _words(unnested(options))
    named = columns[:1] and columns[0].kind in (TokenKind.WORD, TokenKind.NAME)
    query = "SELECT" in _words([*columns, *options]) or outside & _QUERIES or _words(columns[:1]) & _QUERIES
    if query or not named:
        raise Unreadable("a table that a query makes")
    return outside


def _words(tokens: Iterable[Token]) -> set[str]:
    return {t.text.upper() for t in tokens if t.kind is TokenKind.WORD}


# -- ALTER


#: before PARTITION they begin the only clause of their statement, which may list names between
#: commas
_ALONE = words("ADD DROP REORGANIZE REBUILD COALESCE ANALYZE CHECK OPTIMIZE REPAIR TRUNCATE")
#: what begins a clause that concerns the altered table alone
_HEADS = OPTIONS | words(
    "ADD DROP MODIFY CHANGE ALTER ORDER FORCE ENABLE DISABLE DISCARD IMPORT WITH WITHOUT PARTITION REMOVE"
    " REORGANIZE REBUILD COALESCE ANALYZE CHECK OPTIMIZE REPAIR TRUNCATE"
)
_ELSEWHERE = frozenset({"RENAME", "CONVERT", "UNION"})


def _alter(reader: TokenReader, session: Session) -> Iterator[Effect]:
    reader.take("ONLINE")
    ignore = reader.take("IGNORE")
    reader.need("TABLE")
    reader.take("IF", "EXISTS")
    table = reader.table()
    reader.wait()
    parts = _parts(reader)
    for part in parts:
        for other in _others(TokenReader(part, reader.default)):
            yield Effect(other)
            yield Effect(TableName(table.database, other.name))
    yield Effect(table) if ignore else Altered(table, tuple(parts), session)


def _parts(reader: TokenReader) -> list[tuple[Token, ...]]:
    if reader.ended:
        return []
    alone = reader.begins("ORDER", "BY") or (reader.word() in _ALONE and reader.word(1) == "PARTITION")
    rest = tuple(reader.rest())
    return [rest] if alone else clauses(rest)


def _others(clause: TokenReader) -> list[TableName]:
    """The other tables that a clause of ALTER TABLE changes."""
    head = clause.word()
    if head in _BRINGING:
        clause.next()
        return _BRINGING[head](clause)
    later = [t.text.upper() if t.kind is TokenKind.WORD else "" for t in clause.rest()]
    exchanged = ("EXCHANGE", "PARTITION") in pairwise(later)
    if head not in _HEADS or exchanged or not _ELSEWHERE.isdisjoint(later):
        raise Unreadable(f"a clause that begins with {head}")
    return []


def _renamed(clause: TokenReader) -> list[TableName]:
    if clause.take_any("COLUMN", "INDEX", "KEY"):
        clause.take("IF", "EXISTS")
        clause.name()
        clause.need("TO")
        clause.name()
        tables = []
    else:
        clause.take_any("TO", "AS", "=")
        tables = [clause.table()]
    clause.finish()
    return tables


def _exchanged(clause: TokenReader) -> list[TableName]:
    clause.need("PARTITION")
    clause.name()
    clause.need("WITH", "TABLE")
    table = clause.table()
    clause.take_any("WITH VALIDATION", "WITHOUT VALIDATION")
    clause.finish()
    return [table]


def _converted(clause: TokenReader) -> list[TableName]:
    """CONVERT TO CHARACTER SET; MariaDB's partitions that become tables and back."""
    if clause.take_any("TO CHARACTER SET", "TO CHARSET"):
        clause.rest()
        return []
    if clause.take("TABLE"):
        table = clause.table()
        clause.need("TO", "PARTITION")
        clause.rest()
        return [table]
    clause.need("PARTITION")
    clause.name()
    clause.need("TO", "TABLE")
    table = clause.table()
    clause.take_any("WITH VALIDATION", "WITHOUT VALIDATION")
    clause.finish()
    return [table]


_BRINGING: dict[str, Callable[[TokenReader], list[TableName]]] = {
    "RENAME": _renamed,
    "EXCHANGE": _exchanged,
    "CONVERT": _converted,
}


# -- the others


def _drop(reader: TokenReader, _: Session) -> Iterator[Effect]:
    if reader.take("INDEX"):
        reader.take("IF", "EXISTS")
        index = reader.name()
        reader.need("ON")
        yield IndexDropped(reader.table(), index)
        index_modifiers(reader)
        return
    reader.need_any("TABLES", "TABLE")
    reader.take("IF", "EXISTS")
    yield Dropped(reader.table())
    while reader.take(","):
        yield Dropped(reader.table())
    reader.wait()
    reader.take_any("RESTRICT", "CASCADE")


def _rename(reader: TokenReader, _: Session) -> Iterator[Effect]:
    reader.need_any("TABLES", "TABLE")
    reader.take("IF", "EXISTS")
    while True:
        table = reader.table()
        reader.wait()
        reader.need("TO")
        yield Moved(table, reader.table())
        if not reader.take(","):
            return


def _truncate(reader: TokenReader, _: Session) -> Iterator[Effect]:
    reader.take("TABLE")
    yield Truncated(reader.table())
    reader.wait()


def _rebuild(reader: TokenReader, _: Session) -> Iterator[Effect]:
    reader.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
    reader.need_any("TABLES", "TABLE")
    yield Rebuilt(reader.table())
    while reader.take(","):
        yield Rebuilt(reader.table())
    reader.rest()


_VERBS: dict[str, Callable[[TokenReader, Session], Iterator[Effect]]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "OPTIMIZE": _rebuild,
    "REPAIR": _rebuild,
}
