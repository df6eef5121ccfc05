"""Changes in statement format that write nothing but temporary tables of their session, or one
table that may be such: which tables they read besides.

Why it is right: nothing hangs on a temporary table. So such a statement changes a captured table,
but for the one that it writes and what hangs on that, only by what it runs: a stored function, or a
view that calls one. Every name before a parenthesis is a word of the grammar or a function that the
servers have built in, and each table that is read is returned, to be asked for whether it is a
plain one. Tables stand behind FROM, JOIN and the commas between them, in subqueries, too. Whatever
else is not understood raises `Unreadable`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from cdcsync_spark.wire.sql.syntax.functions import ADJACENT, AS_TYPE, BEFORE_PARENTHESIS, FUNCTIONS
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader, check_names, clauses, folded, words
from cdcsync_spark.wire.sql.syntax.tokens import Token, TokenKind, Unreadable

_CALLED = FUNCTIONS | ADJACENT | BEFORE_PARENTHESIS | AS_TYPE
#: words of the grammar that may stand before a parenthesis in a query
_GRAMMAR = words("FROM JOIN ON USING EXISTS ALL DISTINCT UNION AS BY HAVING SET INDEX KEY LINES PARTITION")
#: words of what may change or run something, or name tables in another way
_REFUSED = words(
    "WITH NEXT PREVIOUS NEXTVAL LASTVAL SETVAL PROCEDURE OUTFILE DUMPFILE LATERAL RETURNING EXECUTE CALL TABLESAMPLE"
)
_SYMBOLS = frozenset("(),.=<>!+-*/%&|^~")
#: what ends a list of tables in the same parentheses
_ENDS = words("WHERE GROUP HAVING ORDER LIMIT UNION EXCEPT INTERSECT SET VALUES SELECT WINDOW FOR LOCK DUPLICATE")
_NO_ALIAS = _ENDS | words(
    "FROM JOIN INNER CROSS LEFT RIGHT NATURAL STRAIGHT_JOIN ON USING FORCE USE IGNORE PARTITION PROCEDURE"
)
_BEFORE_TABLES = words("FROM JOIN STRAIGHT_JOIN")
#: among which the table that a statement writes is looked for
_MOST_TOKENS = 200


class _Reference(NamedTuple):
    """A table in a statement, and the name that its columns go by."""

    table: TableName
    alias: str

    def is_called(self, name: str) -> bool:
        return folded(name) == folded(self.alias)


def tables_read(tokens: Sequence[Token], default_database: str, temporary: Set[TableName]) -> tuple[TableName, ...]:
    """The other tables that the statement reads. Raises Unreadable, also where it may write one
    that is not temporary."""
    reader = TokenReader(tokens, default_database)
    verb = reader.need_any("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD DATA")
    reader.take_any("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "CONCURRENT")
    reader.take("IGNORE")
    if verb == "UPDATE":
        references = _update(reader, temporary)
    elif verb == "DELETE":
        references = _delete(reader, temporary)
    else:
        references = _insert(reader, temporary) if verb != "LOAD DATA" else _load(reader, temporary)
    return tuple(dict.fromkeys(r.table for r in references if r.table not in temporary))


def table_written(
    tokens: Sequence[Token], default_database: str, temporary: Set[TableName]
) -> tuple[TableName, tuple[TableName, ...]]:
    """The only table that the statement writes beside temporary ones, and those that it reads.
    Raises Unreadable."""
    for name in _names(tokens, default_database):
        with suppress(Unreadable):
            return name, tables_read(tokens, default_database, {*temporary, name})
    raise Unreadable("several tables are written")


def _names(tokens: Sequence[Token], default_database: str) -> list[TableName]:
    """What may be a table's, as often as there is a name in the first tokens."""
    names = list[TableName]()
    for at in range(min(len(tokens), _MOST_TOKENS)):
        with suppress(Unreadable):
            names.append(TokenReader(tokens[at:], default_database).table())
    return list(dict.fromkeys(names))


def _insert(reader: TokenReader, temporary: Set[TableName]) -> list[_Reference]:
    reader.take("INTO")
    if reader.table() not in temporary:
        raise Unreadable("an INSERT into a base table")
    if reader.begins("(") and not reader.begins("(", "SELECT"):
        check_names(reader.parentheses())
    return _references(reader.rest(), reader.default)


def _load(reader: TokenReader, temporary: Set[TableName]) -> list[_Reference]:
    reader.take("LOCAL")
    reader.need("INFILE")
    reader.of(TokenKind.STRING)
    reader.take_any("REPLACE", "IGNORE")
    reader.need("INTO", "TABLE")
    return _insert(reader, temporary)


def _update(reader: TokenReader, temporary: Set[TableName]) -> list[_Reference]:
    listed = _until(reader, "SET")
    reader.need("SET")
    changed = _references([Token(TokenKind.WORD, "FROM"), *listed], reader.default)
    behind = list(reader.rest())
    assigned = TokenReader(behind, reader.default)
    for clause in clauses(_until(assigned, "WHERE", "ORDER", "LIMIT")):
        target = clause[: next((i for i, t in enumerate(clause) if t == _EQUALS), 0)]
        _check_written(_qualifier(target), changed, temporary)
    return changed + _references(behind, reader.default)


def _delete(reader: TokenReader, temporary: Set[TableName]) -> list[_Reference]:
    """DELETE t FROM ..., and DELETE FROM t USING ..."""
    if reader.take("FROM"):
        targets = _until(reader, "USING")
        if reader.ended:
            return _emptied(targets, reader.default, temporary)
        reader.need("USING")
    else:
        targets = _until(reader, "FROM")
        reader.need("FROM")
    references = _references([Token(TokenKind.WORD, "FROM"), *reader.rest()], reader.default)
    for clause in clauses(targets):
        name = [t for t in clause if t.kind in (TokenKind.WORD, TokenKind.NAME)]
        _check_written(name[-1].text if name else "", references, temporary)
    return references


def _emptied(tokens: Sequence[Token], default: str, temporary: Set[TableName]) -> list[_Reference]:
    """DELETE FROM t ..."""
    references = _references([Token(TokenKind.WORD, "FROM"), *tokens], default)
    _check_written("", references[:1], temporary)
    return references


def _check_written(name: str, among: Sequence[_Reference], temporary: Set[TableName]) -> None:
    """`name` is a table's or an alias; without one it may be any."""
    written = [r for r in among if not name or r.is_called(name)]
    if not written or any(r.table not in temporary for r in written):
        raise Unreadable(f"a change of {name or 'a column of any table'}")


_EQUALS, _OPEN, _DOT = (Token(TokenKind.SYMBOL, c) for c in "=(.")


def _qualifier(target: Sequence[Token]) -> str:
    """The table's name in `column`, `table.column` or `database.table.column`."""
    names = [t.text for t in target if t.kind in (TokenKind.WORD, TokenKind.NAME)]
    return names[-2] if len(names) > 1 else ""


def _until(reader: TokenReader, *ends: str) -> list[Token]:
    """The tokens up to one of these words outside of parentheses, or to the end."""
    tokens_before: list[Token] = []
    while not reader.ended and reader.word() not in ends:
        if reader.word() == "(":
            tokens_before += [reader.peek(), *reader.parentheses(), Token(TokenKind.SYMBOL, ")")]
        else:
            tokens_before.append(reader.next())
    return tokens_before


def _references(tokens: Sequence[Token], default_database: str) -> list[_Reference]:
    _check(tokens)
    reader = TokenReader(tokens, default_database)
    references: list[_Reference] = []
    #: whether tables are listed, for each parenthesis that is open
    listing, expected = [False], False
    while not reader.ended:
        if expected and not reader.begins("(", "SELECT"):
            references.append(_reference(reader))
            expected = False
            continue
        word = reader.word()
        reader.next()
        expected = word in _BEFORE_TABLES or (word == "," and listing[-1])
        if word == "(":
            listing.append(False)
        elif word == ")":
            listing.pop()
        elif expected or word in _ENDS:
            listing[-1] = expected
    return references


def _reference(reader: TokenReader) -> _Reference:
    table = reader.table()
    if reader.take("PARTITION"):
        reader.parentheses()
    named = reader.take("AS") or reader.peek().kind is TokenKind.NAME
    if named or (reader.peek().kind is TokenKind.WORD and reader.word() not in _NO_ALIAS):
        return _Reference(table, reader.name())
    return _Reference(table, table.name)


def _check(tokens: Sequence[Token]) -> None:
    """Nothing is called but what is built in, and each parenthesis has its other half."""
    clauses(tokens)
    before: Token | None = None
    for number, token in enumerate(tokens):
        if token.kind is TokenKind.SYMBOL and token.text not in _SYMBOLS:
            raise Unreadable(f"the symbol {token.text}")
        word = token.text.upper() if token.kind is TokenKind.WORD else ""
        if word in _REFUSED and before != _DOT:
            raise Unreadable(word)
        called = token.kind in (TokenKind.WORD, TokenKind.NAME) and tuple(tokens[number + 1 : number + 2]) == (_OPEN,)
        if called and (word not in _CALLED | _GRAMMAR or before == _DOT):
            raise Unreadable(f"a call of {token.text!r}")
        before = token
