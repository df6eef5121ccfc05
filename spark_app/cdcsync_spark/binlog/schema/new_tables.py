"""Which tables appear in the binlog that a run does not have and that `spec.tables` matches: a
hint for the controller, and no more.

Why it exists: a table that is created or renamed into the patterns is captured at once, not when
the catalog is next asked. Why it is right: nothing is decided here. The controller asks the
catalog, which knows what there is, and asks it regularly in any case: a name that is missed here
(in a statement that hides it) waits for that, and a wrong one costs a preflight. So names are read
by simple patterns, and no table's rows depend on them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_spark.wire.sql.syntax.text import Statement

#: names of tables without interest that are kept; with more of them some are matched again
_KEPT_NAMES = 100_000
#: of a statement's text; a list of columns may be long, and what follows is found by the catalog
_LONGEST = 1 << 16
_SPACE = r"(?:\s|/\*(?:(?!\*/).)*+\*/)"
#: the case matters to none of its characters: to compile the set for both cases takes 10 ms
_WORD = r"`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\"|(?-i:[\w$\x80-\U0010ffff]++)"
_NAME = rf"({_WORD})(?:{_SPACE}*\.{_SPACE}*({_WORD}))?"
_CREATE = re.compile(
    rf"\bCREATE{_SPACE}+(?:OR{_SPACE}+REPLACE{_SPACE}+)?TABLE{_SPACE}+(?:IF{_SPACE}+NOT{_SPACE}+EXISTS{_SPACE}+)?{_NAME}",
    re.I | re.S,
)
_IS_RENAME = re.compile(r"\bRENAME\b", re.I)
_RENAMED = re.compile(rf"\b(?:(?:RENAME{_SPACE}+)?(?:TO|AS)|RENAME){_SPACE}*=?{_SPACE}*{_NAME}", re.I | re.S)
#: what may follow RENAME and is no name
_WORDS = frozenset({"TABLE", "TABLES", "TO", "AS", "COLUMN", "INDEX", "KEY", "USER"})


class NewTables:
    """Counts appearances of tables other than the `captured` ones; none without `patterns`."""

    def __init__(self, captured: Collection[TableId], patterns: TableSelection | None) -> None:
        self._known, self._patterns = frozenset(captured), patterns
        self._met: set[TableId] = set()
        self._count = 0

    def met(self, table: TableId) -> bool:
        """Rows of `table` follow; False, so that they are left out. Costs one look-up except for
        the first time."""
        if self._patterns is not None and table not in self._met:
            if len(self._met) >= _KEPT_NAMES:
                self._met.clear()
            self._met.add(table)
            self._count += self._is_new(table)
        return False

    def read(self, statement: Statement) -> None:
        if self._patterns is not None and any(map(self._is_new, made_by(statement.sql, statement.database))):
            self._count += 1

    def take_count(self) -> int:
        """The appearances since the previous call."""
        count, self._count = self._count, 0
        return count

    def _is_new(self, table: TableId) -> bool:
        return self._patterns is not None and table not in self._known and self._patterns.captures(str(table))


def made_by(sql: str, default_database: str) -> Iterator[TableId]:
    """The tables that a statement may create, or rename something to."""
    text = sql[:_LONGEST]
    matches = _CREATE.finditer(text) if not _IS_RENAME.search(text) else _RENAMED.finditer(text)
    for match in matches:
        first, second = (_unquoted(word) for word in match.groups())
        if second:
            yield TableId(first, second)
        elif first.upper() not in _WORDS:
            yield TableId(default_database, first)


def _unquoted(word: str | None) -> str:
    if not word or word[0] not in '`"':
        return word or ""
    return word[1:-1].replace(word[0] * 2, word[0])
