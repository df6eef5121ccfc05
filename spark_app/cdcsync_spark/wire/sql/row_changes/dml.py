"""Which tables a change in statement format writes and reads: a strict reader, to the last token.

Why it is right: a change reaches a table that it does not name through triggers and cascades of the
tables that it writes, through views, and through stored functions that it calls. The first two the
source's catalog knows. A stored function cannot be called here: every name before a parenthesis is
on the list of functions that the servers have built in, for which they look first. Some of these
are such only right before the parenthesis; a statement that has one of those words elsewhere is not
read. Whatever else is not understood raises `Unreadable`: several tables, subqueries, UNION,
RETURNING, sequences, variables.

What is read: INSERT and REPLACE of values, UPDATE and DELETE of one table (the heartbeats of Amazon
RDS, of pt-heartbeat), and REPLACE or INSERT ... SELECT from one table (pt-table-checksum); on
MariaDB behind SET STATEMENT ... FOR, too. What writes, or may write, temporary tables of its
session may read any number of tables (`temporary_dml`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from cdcsync_spark.wire.sql.row_changes.temporary_dml import table_written, tables_read
from cdcsync_spark.wire.sql.syntax.functions import ADJACENT, AS_TYPE, BEFORE_PARENTHESIS, FUNCTIONS
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader, check_names, words
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Token, TokenKind, Unreadable, tokenize

#: words of what is not followed; as names they may stand in quotes
_REFUSED = words(
    "SELECT WITH TABLE INTO UNION EXCEPT INTERSECT FROM JOIN USING RETURNING NEXT PREVIOUS NEXTVAL LASTVAL SETVAL PROCEDURE"
    " OVER WINDOW MATCH EXISTS FOR LOCK PARTITION"
)
_SYMBOLS = frozenset("(),.=<>!+-*/%&|^~;")
_OPEN, _DOT, _SEMICOLON = (Token(TokenKind.SYMBOL, c) for c in "(.;")


@dataclass(frozen=True)
class Dml:
    """The only table that the statement writes, None where all are temporary ones of the session;
    those that it reads besides. With `in_doubt`, those that the source does not have are temporary
    ones that were not seen."""

    written: TableName | None
    read: tuple[TableName, ...] = ()
    in_doubt: bool = False

    @property
    def tables(self) -> tuple[TableName, ...]:
        return self.read if self.written is None else (self.written, *self.read)

    def without(self, temporary: Set[TableName]) -> Dml:
        """Nothing hangs on a temporary table: neither triggers nor foreign keys."""
        written = None if self.written in temporary else self.written
        return Dml(written, tuple(t for t in self.read if t not in temporary))

    @property
    def is_named(self) -> bool:
        return all(t.database and t.name for t in self.tables)


def read_dml(statement: Statement) -> Dml | None:
    """None where the statement is not read to its end."""
    dml = _read_one_table(statement)
    if dml is None and statement.temporary:
        dml = _read(statement, _of_temporary)
    if dml is None and statement.in_doubt:
        dml = _read(statement, _of_any)
    return dml if dml is None else replace(dml, in_doubt=statement.in_doubt)


def _read(statement: Statement, way: Callable[[Sequence[Token], Statement], Dml]) -> Dml | None:
    try:
        _check_adjacent(statement.sql)
        dml = way(tokenize(statement.sql, statement.session), statement)
    except Unreadable:
        return None
    return dml if dml.is_named else None


def _of_temporary(tokens: Sequence[Token], statement: Statement) -> Dml:
    """The change of a statement that changes temporary tables alone."""
    return Dml(None, tables_read(tokens, statement.database, statement.temporary))


def _of_any(tokens: Sequence[Token], statement: Statement) -> Dml:
    """The change of a statement that changes one table, which may be temporary, and others that
    are."""
    return Dml(*table_written(tokens, statement.database, statement.temporary))


def _read_one_table(statement: Statement) -> Dml | None:
    try:
        tokens = tokenize(statement.sql, statement.session)
        _check_adjacent(statement.sql)
        reader = TokenReader(tokens, statement.database)
        skip_settings(reader)
        dml = _READERS[reader.need_any(*_READERS)](reader)
    except Unreadable:
        return None
    return dml.without(statement.temporary) if dml.is_named else None


def _check_adjacent(sql: str) -> None:
    if re.search(rf"\b(?:{'|'.join(ADJACENT)})\b(?!\()", sql, re.I):
        raise Unreadable("the name of a function without its parenthesis")


def skip_settings(reader: TokenReader) -> None:
    """MariaDB's SET STATEMENT variable = constant, ... FOR."""
    if not reader.take("SET", "STATEMENT"):
        return
    while True:
        reader.name()
        reader.need("=")
        reader.take_any("-", "+")
        reader.of(TokenKind.NUMBER, TokenKind.STRING, TokenKind.WORD)
        if reader.take("FOR"):
            return
        reader.need(",")


def _insert(reader: TokenReader) -> Dml:
    reader.take_any("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED")
    reader.take("IGNORE")
    reader.take("INTO")
    written = reader.table()
    if reader.begins("("):
        check_names(reader.parentheses())
    if reader.take("SELECT"):
        return Dml(written, (_selected(reader),))
    if not reader.take("SET"):
        reader.need_any("VALUES", "VALUE")
    _check_expression(reader.rest())
    return Dml(written)


def _selected(reader: TokenReader) -> TableName:
    """Expressions FROM one table, with an index to force, WHERE."""
    expression: list[Token] = []
    while not reader.take("FROM"):
        expression.append(reader.next())
    _check_expression(expression)
    read = reader.table()
    if reader.take_any("FORCE INDEX", "USE INDEX"):
        check_names(reader.parentheses())
    if not reader.ended:
        reader.need("WHERE")
        _check_expression(reader.rest())
    return read


def _update(reader: TokenReader) -> Dml:
    reader.take("LOW_PRIORITY")
    reader.take("IGNORE")
    written = reader.table()
    reader.need("SET")
    _check_expression(reader.rest())
    return Dml(written)


def _delete(reader: TokenReader) -> Dml:
    reader.take("LOW_PRIORITY")
    reader.take("QUICK")
    reader.take("IGNORE")
    reader.need("FROM")
    written = reader.table()
    if not reader.ended:
        reader.need("WHERE")
        _check_expression(reader.rest())
    return Dml(written)


_READERS = {"INSERT": _insert, "REPLACE": _insert, "UPDATE": _update, "DELETE": _delete}


def _check_expression(tokens: Sequence[Token]) -> None:
    """Constants, columns, operators and built-in functions: nothing that reads or writes a
    table."""
    before: Token | None = None
    for number, token in enumerate(tokens):
        if token.kind is TokenKind.SYMBOL and token.text not in _SYMBOLS:
            raise Unreadable(f"the symbol {token.text}")
        if token == _SEMICOLON and number + 1 < len(tokens):
            raise Unreadable("a second statement")
        word = token.text.upper() if token.kind is TokenKind.WORD else ""
        if word in _REFUSED and before != _DOT:
            raise Unreadable(word)
        if number + 1 < len(tokens) and tokens[number + 1] == _OPEN:
            _check_call(token, word, before)
        before = token


def _check_call(token: Token, word: str, before: Token | None) -> None:
    if token.kind is TokenKind.SYMBOL and token.text not in (".", ")"):
        return
    callable_names = FUNCTIONS | ADJACENT | BEFORE_PARENTHESIS | AS_TYPE
    if word not in callable_names or before == _DOT:
        raise Unreadable(f"a call of {token.text!r}")
