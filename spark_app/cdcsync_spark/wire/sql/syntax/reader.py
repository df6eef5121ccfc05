"""Tokens read one after the other, each of them or none: whatever is not expected raises
`Unreadable`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.syntax.tokens import Token, TokenKind, Unreadable

_END = Token(TokenKind.SYMBOL, "")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """Equal for names that some server, by whatever `lower_case_table_names`, may take for one; for
    some others, too."""
    if name.isascii():
        return name.lower()
    plain = (c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    return "".join(plain).casefold()


class TableName(NamedTuple):
    """As a statement names a table; `database` is empty where neither it nor the session does."""

    database: str
    name: str

    def means(self, table: TableId) -> bool:
        """In doubt yes."""
        if folded(self.name) != folded(table.name):
            return False
        return not self.database or folded(self.database) == folded(table.database)


class TokenReader:
    """A place in `tokens`. Words are given in upper case; a quoted name is never a word."""

    def __init__(self, tokens: Sequence[Token], default_database: str = "") -> None:
        self._tokens = tokens
        self.default = default_database
        self._at = 0

    @property
    def at(self) -> int:
        """How many tokens were read."""
        return self._at

    def since(self, at: int) -> tuple[Token, ...]:
        """The tokens read since then."""
        return tuple(self._tokens[at : self._at])

    @property
    def ended(self) -> bool:
        return self._at >= len(self._tokens)

    def finish(self) -> None:
        if not self.ended:
            raise self.unexpected()

    def unexpected(self) -> Unreadable:
        return Unreadable(f"at {' '.join(t.text for t in self._tokens[self._at : self._at + 4])!r}")

    def peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def word(self, ahead: int = 0) -> str:
        """A keyword or a symbol, empty for anything else."""
        token = self.peek(ahead)
        return token.text.upper() if token.kind in (TokenKind.WORD, TokenKind.SYMBOL) else ""

    def next(self) -> Token:
        if self.ended:
            raise self.unexpected()
        self._at += 1
        return self._tokens[self._at - 1]

    def begins(self, *words: str) -> bool:
        return all(self.word(i) == word for i, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Moves past these words if they come next, all of them."""
        if not self.begins(*words):
            return False
        self._at += len(words)
        return True

    def take_any(self, *phrases: str) -> str:
        """The first of the phrases that comes next, or nothing."""
        return next((phrase for phrase in phrases if self.take(*phrase.split())), "")

    def need(self, *words: str) -> None:
        if not self.take(*words):
            raise self.unexpected()

    def need_any(self, *phrases: str) -> str:
        phrase = self.take_any(*phrases)
        if not phrase:
            raise self.unexpected()
        return phrase

    def of(self, *kinds: TokenKind) -> str:
        """The text of the next token, which must be of one of these kinds."""
        if self.peek().kind not in kinds:
            raise self.unexpected()
        return self.next().text

    def name(self) -> str:
        return self.of(TokenKind.WORD, TokenKind.NAME)

    def column(self) -> str:
        """The last of `name`, `table.name` and `database.table.name`: the server takes no other
        table than the altered one."""
        name = self.name()
        while self.take("."):
            name = self.name()
        return name

    def table(self) -> TableName:
        """`name`, `database.name`, or `.name`."""
        if self.take("."):
            return TableName(self.default, self.name())
        name = self.name()
        return TableName(name, self.name()) if self.take(".") else TableName(self.default, name)

    def parentheses(self) -> list[Token]:
        """What is between them, with all that they hold."""
        self.need("(")
        inside: list[Token] = []
        depth = 1
        while True:
            token = self.next()
            depth += _DEPTH.get(token, 0)
            if not depth:
                return inside
            inside.append(token)

    def rest(self) -> Sequence[Token]:
        remaining = self._tokens[self._at :]
        self._at = len(self._tokens)
        return remaining

    def wait(self) -> None:
        """MariaDB's time to wait for a lock."""
        if self.take("WAIT"):
            self.of(TokenKind.NUMBER)
        else:
            self.take("NOWAIT")


_DEPTH = {Token(TokenKind.SYMBOL, "("): 1, Token(TokenKind.SYMBOL, ")"): -1}
_COMMA = Token(TokenKind.SYMBOL, ",")


def clauses(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """The parts between commas that are in no parentheses."""
    clauses_so_far: list[tuple[Token, ...]] = []
    depth = start = 0
    for i, token in enumerate(tokens):
        depth += _DEPTH.get(token, 0)
        if depth < 0:
            break
        if token == _COMMA and not depth:
            clauses_so_far.append(tuple(tokens[start:i]))
            start = i + 1
    if depth:
        raise Unreadable("parentheses without their other half")
    return [*clauses_so_far, tuple(tokens[start:])]


def unnested(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that are in no parentheses."""
    outer: list[Token] = []
    depth = 0
    for token in tokens:
        depth += min(0, _DEPTH.get(token, 0))
        if not depth:
            outer.append(token)
        depth += max(0, _DEPTH.get(token, 0))
    return outer


def check_names(tokens: Sequence[Token]) -> None:
    """Names with commas between them. Raises Unreadable."""
    for number, token in enumerate(tokens):
        name = token.kind in (TokenKind.WORD, TokenKind.NAME)
        if name if number % 2 else not name or (number + 1 < len(tokens) and tokens[number + 1].text != ","):
            raise Unreadable(f"a list of names with {token.text!r}")
