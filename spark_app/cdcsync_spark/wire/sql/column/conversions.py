"""Whether every value of a column is the same value in another type.

Why it is right: only pairs of types are listed for which the server changes no number, character,
member or instant, in any sql_mode and any session; all others (narrowing, rounding, texts of
numbers, time zones, character sets that lack characters) are not followed.
"""

from __future__ import annotations

from collections.abc import Callable

from cdcsync_core.tables.source_table import INTEGERS, TEXTS, SourceType
from cdcsync_spark.wire.sql.column.column_types import CAPACITY, max_bytes, same_characters

_SIZED_TEXTS = ("char", "varchar")
_BLOBS = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def keeps_values(old: SourceType, new: SourceType) -> bool:
    """In doubt False."""
    if "zerofill" in old.declared or "/*" in old.declared:
        return False
    if (old.base, new.base) == ("date", "datetime"):
        return True  # its first instant
    for bases, rule in _RULES:
        if old.base in bases and new.base in bases:
            return rule(old, new)
    return (old.base, old.size, old.scale, old.unsigned) == (new.base, new.size, new.scale, new.unsigned)


def _integers(old: SourceType, new: SourceType) -> bool:
    wider = INTEGERS[new.base] - INTEGERS[old.base]
    return wider >= 0 if old.unsigned == new.unsigned else old.unsigned and wider > 0


def _decimals(old: SourceType, new: SourceType) -> bool:
    whole = (new.size - new.scale) - (old.size - old.scale)
    return new.scale >= old.scale and whole >= 0 and (old.unsigned or not new.unsigned)


def _texts(old: SourceType, new: SourceType) -> bool:
    """A CHAR has no trailing blanks, so only a CHAR may become one; a text in bytes that are no
    characters (`replaced`) would be converted differently."""
    if not same_characters(old.charset, new.charset) or (old.replaced and old.charset != new.charset):
        return False
    if new.base in _SIZED_TEXTS:
        narrower = old.base not in _SIZED_TEXTS or new.size < old.size or (new.base, old.base) == ("char", "varchar")
        return not narrower
    if old.base in _SIZED_TEXTS:
        return old.size * max_bytes(new.charset) <= CAPACITY[new.base]
    return _most_bytes(old, new.charset) <= CAPACITY[new.base]


def _most_bytes(old: SourceType, charset: str) -> int:
    """What the longest text of a column may need in a character set."""
    capacity = CAPACITY[old.base]
    return capacity if old.charset == charset else capacity // max_bytes(old.charset) * max_bytes(charset)


def _bytes(old: SourceType, new: SourceType) -> bool:
    longest, place = (t.size if t.base == "varbinary" else CAPACITY[t.base] for t in (old, new))
    return place >= longest and not (new.base == "varbinary" and old.base != "varbinary")


def _fractions(old: SourceType, new: SourceType) -> bool:
    return new.base == old.base and max(new.size, 0) >= max(old.size, 0)


def _reals(old: SourceType, new: SourceType) -> bool:
    """A DOUBLE holds each FLOAT; declared digits round."""
    wider = new.base == old.base or (new.base, old.size, new.size) == ("double", -1, -1)
    return wider and (old.size, old.scale) == (new.size, new.scale) and (old.unsigned or not new.unsigned)


def _bits(old: SourceType, new: SourceType) -> bool:
    """The copy has the bytes of a BIT, and a truth for one of one bit."""
    as_wide = (old.size + 7) // 8 == (new.size + 7) // 8 and (old.size == 1) is (new.size == 1)
    return as_wide and new.size >= old.size


def _enums(old: SourceType, new: SourceType) -> bool:
    return _plain(old) and same_characters(old.charset, new.charset) and set(old.members) <= set(new.members)


def _sets(old: SourceType, new: SourceType) -> bool:
    """The order of the members is the order in which a value names them."""
    appended = new.members[: len(old.members)] == old.members
    return _plain(old) and same_characters(old.charset, new.charset) and appended


def _plain(old: SourceType) -> bool:
    """Members that can be compared as they are recorded."""
    return all(m and m.isascii() and not set(m) & set("\\'\"") for m in old.members)


_Rule = Callable[[SourceType, SourceType], bool]
_RULES: tuple[tuple[frozenset[str], _Rule], ...] = (
    (frozenset(INTEGERS), _integers),
    (frozenset({"decimal"}), _decimals),
    (TEXTS, _texts),
    (frozenset(_BLOBS), _bytes),
    (frozenset({"datetime", "timestamp", "time"}), _fractions),
    (frozenset({"float", "double"}), _reals),
    (frozenset({"bit"}), _bits),
    (frozenset({"enum"}), _enums),
    (frozenset({"set"}), _sets),
)


def promoted(old: SourceType, charset: str) -> SourceType:
    """The type that CONVERT TO CHARACTER SET gives a text: a TEXT grows so that it holds its
    characters."""
    if old.base in CAPACITY:
        needed = _most_bytes(old, charset)
        base = next((b for b in ("tinytext", "text", "mediumtext", "longtext") if CAPACITY[b] >= needed), "longtext")
        return SourceType.parse(base, charset)
    return SourceType.parse(old.declared, charset)
