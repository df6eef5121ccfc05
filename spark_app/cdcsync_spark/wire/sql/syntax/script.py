"""A script of SQL as statements: cut where the command line client of MySQL and MariaDB cuts it.

Why it is right: a delimiter counts outside of quotes and comments only, and quotes end as the
session has them end. A quote or a comment without an end takes the rest of the script, so nothing
in it is taken for a statement of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

#: what separates statements: blanks and comments, but for the conditional ones, which are code
_BLANK = r"(?:\s|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!)(?:(?!\*/).)*+\*/)"
_LEADING = re.compile(rf"{_BLANK}*+", re.S)
_DELIMITER = re.compile(r"DELIMITER[ \t]+(\S+)[^\n]*(?:\n|\Z)", re.I)
_USE = re.compile(rf"USE{_BLANK}+(`(?:[^`]|``)++`|[^\s`;]++)", re.I | re.S)


class ScriptStatement(NamedTuple):
    """`line` is where it begins, from 1; `database` the default database there."""

    line: int
    database: str
    sql: str


class Cutter:
    """The statements of a script, one after the other, but for USE and DELIMITER."""

    def __init__(self, script: str, database: str = "") -> None:
        self._script, self._database = script, database
        self._at, self._delimiter = 0, ";"

    def next(self, *, escapes: bool = True) -> ScriptStatement | None:
        """None at the end. Without `escapes` a backslash is a character as any other
        (NO_BACKSLASH_ESCAPES)."""
        while (at := _skipped(self._script, self._at)) < len(self._script):
            if command := _DELIMITER.match(self._script, at):
                self._at, self._delimiter = command.end(), command[1]
                continue
            end, self._at = _end(self._script, at, self._delimiter, escapes)
            text = self._script[at:end].rstrip()
            if use := _USE.fullmatch(text):
                self._database = use[1][1:-1].replace("``", "`") if use[1][0] == "`" else use[1]
            elif text:
                return ScriptStatement(self._script.count("\n", 0, at) + 1, self._database, text)
        return None


def statements(script: str, database: str = "", *, escapes: bool = True) -> Iterator[ScriptStatement]:
    """All statements of a script whose session stays the same."""
    cutter = Cutter(script, database)
    while statement := cutter.next(escapes=escapes):
        yield statement


def without_comments_before(sql: str) -> str:
    return sql[_skipped(sql, 0) :]


def _skipped(script: str, at: int) -> int:
    match = _LEADING.match(script, at)
    return match.end() if match else at


def _end(script: str, at: int, delimiter: str, escapes: bool) -> tuple[int, int]:
    """Where the statement at `at` ends, and where the text after its delimiter begins."""
    for match in _scanner(delimiter, escapes).finditer(script, at):
        if match["delimiter"]:
            return match.start(), match.end()
        if match["open"]:
            break
    return len(script), len(script)


@cache
def _scanner(delimiter: str, escapes: bool) -> re.Pattern[str]:
    single = r"'(?:[^'\\]|''|\\.)*+'" if escapes else r"'(?:[^']|'')*+'"
    double = r'"(?:[^"\\]|""|\\.)*+"' if escapes else r'"(?:[^"]|"")*+"'
    closed = rf"{single}|{double}|`(?:[^`]|``)*+`|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?:(?!\*/).)*+\*/"
    return re.compile(rf"(?P<closed>{closed})|(?P<open>['\"`]|/\*)|(?P<delimiter>{re.escape(delimiter)}|\\[gG])", re.S)
