"""Which tables are captured: patterns over `database.table`, compiled in one place.

Why it is right: the manifest, the catalog's query, the stream and the verification all ask the same
object, so no table is captured by one and left out by another. Patterns are RE2, which cannot run
away, and are matched in full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

#: one dot, escaped or not, and nothing that has a meaning of its own
_LITERAL = re.compile(r"(?:[^\\.+*?()|\[\]{}^$]|\\[^\w\s.])++\\?\.(?:[^\\.+*?()|\[\]{}^$]|\\[^\w\s.])++")
#: a literal database and an escaped dot; what follows cannot make the dot optional
_DATABASE = re.compile(r"((?:[^\\.+*?()|\[\]{}^$]|\\[^\w\s.])++)\\\.(?![*+?{])")
_ESCAPED = re.compile(r"\\.", re.S)


@dataclass(frozen=True)
class TableSelection:
    """A table is captured if an include pattern matches its `database.table` and no exclude pattern
    does."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def captures(self, name: str) -> bool:
        return any(matches(p, name) for p in self.include) and not self.excludes(name)

    def excludes(self, name: str) -> bool:
        return any(matches(p, name) for p in self.exclude)

    def may_include_of(self, database: str) -> bool:
        """False where no include pattern matches a table of the database, in whatever case."""
        databases = [_literal_database(p) for p in self.include]
        return any(not literal or f"{database}.".lower().startswith(f"{literal}.".lower()) for literal in databases)

    def names(self, name: str) -> bool:
        """Whether an include pattern is this very `database.table`, so that the user counts on
        it."""
        return self.captures(name) and any(literal_name(p) == name for p in self.include)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches the whole name."""
    return _compiled(pattern).fullmatch(name) is not None


def check_pattern(pattern: str) -> str:
    """The pattern. Raises ValueError where RE2 refuses it."""
    try:
        _compiled(pattern)
    except re2.error as error:
        text = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"a regular expression in RE2 syntax ({text})") from None
    return pattern


def literal_name(pattern: str) -> str:
    """The `database.table` that a pattern names where it is a name and no more, its dot escaped or
    not; else empty."""
    return _without_escapes(pattern) if _LITERAL.fullmatch(pattern) else ""


@lru_cache(maxsize=1024)
def _literal_database(pattern: str) -> str:
    """What comes before the first dot of every name that the pattern matches; empty where that is
    not known."""
    if name := literal_name(pattern):
        return name.partition(".")[0]
    start = _DATABASE.match(pattern)
    return _without_escapes(start[1]) if start and not _has_alternatives(pattern) else ""


def _has_alternatives(pattern: str) -> bool:
    """Whether a `|` may divide the whole pattern; True where a class or a quotation might hide
    where groups begin and end."""
    if "|" not in pattern:
        return False
    if "[" in pattern or r"\Q" in pattern:
        return True
    depth = 0
    for character in _ESCAPED.sub("", pattern):
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            return True
    return False


def _without_escapes(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)
