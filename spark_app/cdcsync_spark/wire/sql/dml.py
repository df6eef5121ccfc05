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
MariaDB behind SET STATEMENT ... FOR, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from cdcsync_spark.wire.sql.reader import Reader, TableName, words
from cdcsync_spark.wire.sql.text import Statement
from cdcsync_spark.wire.sql.tokens import Kind, Token, Unreadable, tokenize

#: built in, whatever stands before their parenthesis
_FUNCTIONS = words(
    "ABS COALESCE CONCAT CONCAT_WS CONV CRC32 FROM_UNIXTIME GREATEST HEX IF IFNULL ISNULL LEAST LENGTH LOWER MD5 NULLIF REPLACE"
    " ROUND SHA1 SHA2 UNHEX UNIX_TIMESTAMP UPPER UTC_TIMESTAMP VALUES"
)
#: built in only right before their parenthesis, unless sql_mode has IGNORE_SPACE
_ADJACENT = words("BIT_XOR CAST COUNT MAX MIN NOW SUM")
_BEFORE_PARENTHESIS = words("AND OR NOT XOR IN WHERE CASE WHEN THEN ELSE BETWEEN LIKE SELECT VALUES VALUE")
#: words of what is not followed; as names they may stand in quotes
_REFUSED = words(
    "SELECT WITH TABLE INTO UNION EXCEPT INTERSECT FROM JOIN USING RETURNING NEXT PREVIOUS NEXTVAL LASTVAL SETVAL PROCEDURE"
    " OVER WINDOW MATCH EXISTS FOR LOCK PARTITION"
)
_SYMBOLS = frozenset("(),.=<>!+-*/%&|^~;")
_AS_TYPE = words("UNSIGNED SIGNED CHAR BINARY")
_OPEN, _DOT, _SEMICOLON = (Token(Kind.SYMBOL, c) for c in "(.;")


@dataclass(frozen=True)
class Dml:
    """The only table that the statement writes, and the one that it reads besides; None for none,
    or for a temporary table of the session."""

    written: TableName | None
    read: TableName | None = None

    @property
    def tables(self) -> tuple[TableName, ...]:
        return tuple(t for t in (self.written, self.read) if t is not None)

    def without(self, temporary: Set[TableName]) -> Dml:
        """Nothing hangs on a temporary table: neither triggers nor foreign keys."""
        written, read = (None if t in temporary else t for t in (self.written, self.read))
        return Dml(written, read)


def read_dml(statement: Statement) -> Dml | None:
    """None where the statement is not read to its end."""
    try:
        tokens = tokenize(statement.sql, statement.session)
        _check_adjacent(statement.sql)
        reader = Reader(tokens, statement.database)
        skip_settings(reader)
        found = _READERS[reader.need_any(*_READERS)](reader)
    except Unreadable:
        return None
    return found.without(statement.temporary) if all(t.database and t.name for t in found.tables) else None


def _check_adjacent(sql: str) -> None:
    if re.search(rf"\b(?:{'|'.join(_ADJACENT)})\b(?!\()", sql, re.I):
        raise Unreadable("the name of a function without its parenthesis")


def skip_settings(reader: Reader) -> None:
    """MariaDB's SET STATEMENT variable = constant, ... FOR."""
    if not reader.take("SET", "STATEMENT"):
        return
    while True:
        reader.name()
        reader.need("=")
        reader.take_any("-", "+")
        reader.of(Kind.NUMBER, Kind.STRING, Kind.WORD)
        if reader.take("FOR"):
            return
        reader.need(",")


def _insert(reader: Reader) -> Dml:
    reader.take_any("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED")
    reader.take("IGNORE")
    reader.take("INTO")
    written = reader.table()
    if reader.begins("("):
        _check_names(reader.parentheses())
    if reader.take("SELECT"):
        return Dml(written, _selected(reader))
    if not reader.take("SET"):
        reader.need_any("VALUES", "VALUE")
    _check_expression(reader.rest())
    return Dml(written)


def _selected(reader: Reader) -> TableName:
    """Expressions FROM one table, with an index to force, WHERE."""
    expression: list[Token] = []
    while not reader.take("FROM"):
        expression.append(reader.next())
    _check_expression(expression)
    read = reader.table()
    if reader.take_any("FORCE INDEX", "USE INDEX"):
        _check_names(reader.parentheses())
    if not reader.ended:
        reader.need("WHERE")
        _check_expression(reader.rest())
    return read


def _update(reader: Reader) -> Dml:
    reader.take("LOW_PRIORITY")
    reader.take("IGNORE")
    written = reader.table()
    reader.need("SET")
    _check_expression(reader.rest())
    return Dml(written)


def _delete(reader: Reader) -> Dml:
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


def _check_names(tokens: Sequence[Token]) -> None:
    for number, token in enumerate(tokens):
        name = token.kind in (Kind.WORD, Kind.NAME)
        if name if number % 2 else not name or (number + 1 < len(tokens) and tokens[number + 1].text != ","):
            raise Unreadable(f"a list of names with {token.text!r}")


def _check_expression(tokens: Sequence[Token]) -> None:
    """Constants, columns, operators and built-in functions: nothing that reads or writes a
    table."""
    before: Token | None = None
    for number, token in enumerate(tokens):
        if token.kind is Kind.SYMBOL and token.text not in _SYMBOLS:
            raise Unreadable(f"the symbol {token.text}")
        if token == _SEMICOLON and number + 1 < len(tokens):
            raise Unreadable("a second statement")
        word = token.text.upper() if token.kind is Kind.WORD else ""
        if word in _REFUSED and before != _DOT:
            raise Unreadable(word)
        if number + 1 < len(tokens) and tokens[number + 1] == _OPEN:
            _check_call(token, word, before)
        before = token


def _check_call(token: Token, word: str, before: Token | None) -> None:
    if token.kind is Kind.SYMBOL and token.text not in (".", ")"):
        return
    known = _FUNCTIONS | _ADJACENT | _BEFORE_PARENTHESIS | _AS_TYPE
    if word not in known or before == _DOT:
        raise Unreadable(f"a call of {token.text!r}")
