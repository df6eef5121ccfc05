"""Key ranges as SQL: how a key column is read, how its values go back, and the predicate of a
split; pure.

Rule R3: the server compares keys. Values are read in a form that loses nothing (hexadecimal digits
of the stored bytes, numbers of ENUM, SET and BIT) and go back as literals of the column's own type
and character set, so that the comparison is the index's.

Theory: `[start, end)` over a composite key is `a > x OR (a = x AND b >= y)` and its mirror image.
Both servers scan exactly that range of the index; the row constructor `(a, b) >= (x, y)` scans the
whole table. An ENUM compared with text sorts by text, compared with a number it sorts by its index
number, but then only equality uses the index: its ranges are lists of numbers. Every literal is
checked against a pattern of its family before it becomes SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cdcsync_core.positions.chunk import KeyValue, Split
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import INTEGERS, Column, quote

_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?")
_TEMPORAL = re.compile(r"-?\d+[-:]\d\d[-:]\d\d(?: \d\d:\d\d:\d\d)?(?:\.\d{1,6})?")
_PRINTED = re.compile(r"[0-9A-Fa-f:.\-]+")
_CHARSET = re.compile(r"\w+")


@dataclass(frozen=True)
class KeyForm:
    """How one family of key types is read and compared.

    `read` makes the expression that gives a `KeyValue`; `literal` makes SQL of a value and raises
    ValueError for one that is not of the family; `compared` is the column's side of a comparison.
    """

    read: Callable[[str], str]
    literal: Callable[[Column, KeyValue], str]
    compared: Callable[[str], str] = lambda name: name


def key_form(column: Column) -> KeyForm | None:
    """None for a type that cannot be in a key: FLOAT and DOUBLE (not exact), JSON, spatial types,
    prefixes of texts."""
    return _FORMS.get(column.type.base)


#: character sets in which two characters become one of Unicode, as the server converts them, too
#: (`＼` and a backslash in sjis)
AMBIGUOUS = frozenset({"armscii8", "big5", "cp932", "eucjpms", "sjis", "tis620", "ujis"})


def unsupported_key_reason(column: Column) -> str:
    """Why the column cannot be in a key, in words; empty for one that can. Keys that differ on the
    source differ in the target."""
    kind = column.type
    if key_form(column) is None:
        return f"is {kind.declared}, which is not exact"
    if kind.charset in AMBIGUOUS:
        return f"is in {kind.charset}, in which different texts can be the same in UTF-8"
    if kind.base in ("enum", "set") and len({"", *kind.members}) <= len(kind.members):
        return f"is {kind.declared}, with a member that prints like another one or like none"
    return ""


def key_literal(column: Column, value: KeyValue) -> str:
    """`value`, as `chunk.KeyValue` encodes it, as SQL; raises ValueError for a value that is not of
    the column's family."""
    form = key_form(column)
    if form is None:
        raise ValueError(f"{column.name} {column.type.declared} cannot be in a key")
    return form.literal(column, value)


def select_key(table: Capture) -> str:
    """The select list whose row is the key as `KeyValue`s."""
    return ", ".join(_form(c).read(quote(c.name)) for c in table.key_columns)


def order_by(table: Capture) -> str:
    """The key's order, for ORDER BY."""
    return ", ".join(quote(name) for name in table.key)


def where(table: Capture, split: Split) -> str:
    """The predicate of `[start, end)`; `TRUE` for the whole table."""
    columns = list(table.key_columns)
    parts = []
    if split.start is not None:
        parts.append(_from(columns, list(split.start)))
    if split.end is not None:
        parts.append(_before(columns, list(split.end)))
    return " AND ".join(parts) or "TRUE"


def _from(columns: list[Column], values: list[KeyValue]) -> str:
    column, value = columns[0], values[0]
    if len(columns) == 1:
        return (
            f"({_greater(column, value)} OR {_equal(column, value)})"
            if _listed(column)
            else _compare(column, ">=", value)
        )
    rest = _from(columns[1:], values[1:])
    return f"({_greater(column, value)} OR ({_equal(column, value)} AND {rest}))"


def _before(columns: list[Column], values: list[KeyValue]) -> str:
    column, value = columns[0], values[0]
    if len(columns) == 1:
        return _less(column, value)
    rest = _before(columns[1:], values[1:])
    return f"({_less(column, value)} OR ({_equal(column, value)} AND {rest}))"


def _listed(column: Column) -> bool:
    return column.type.base == "enum"


def _greater(column: Column, value: KeyValue) -> str:
    if _listed(column):
        return _one_of(column, range(int(value) + 1, len(column.type.members) + 1))
    return _compare(column, ">", value)


def _less(column: Column, value: KeyValue) -> str:
    # 0 is the invalid value, which prints as ''
    return _one_of(column, range(int(value))) if _listed(column) else _compare(column, "<", value)


def _equal(column: Column, value: KeyValue) -> str:
    return f"{quote(column.name)} = {key_literal(column, value)}" if _listed(column) else _compare(column, "=", value)


def _one_of(column: Column, numbers: range) -> str:
    return f"{quote(column.name)} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"


def _compare(column: Column, operator: str, value: KeyValue) -> str:
    return f"{_form(column).compared(quote(column.name))} {operator} {key_literal(column, value)}"


def _form(column: Column) -> KeyForm:
    form = key_form(column)
    if form is None:
        raise ValueError(f"{column.name} {column.type.declared} cannot be in a key")
    return form


def _whole(column: Column, value: KeyValue) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _not_of(column, value)
    return str(value)


def _text(column: Column, value: KeyValue) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value) or not _CHARSET.fullmatch(column.type.charset):
        raise _not_of(column, value)
    return f"_{column.type.charset} x'{value}'"


def _bytes(column: Column, value: KeyValue) -> str:
    return f"x'{_matching(_HEX, column, value)}'"


def _number(column: Column, value: KeyValue) -> str:
    return _matching(_DECIMAL, column, value)


def _temporal(keyword: str) -> Callable[[Column, KeyValue], str]:
    return lambda column, value: f"{keyword}'{_matching(_TEMPORAL, column, value)}'"


def _printed(column: Column, value: KeyValue) -> str:
    return f"'{_matching(_PRINTED, column, value)}'"


def _matching(pattern: re.Pattern[str], column: Column, value: KeyValue) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _not_of(column, value)
    return value


def _not_of(column: Column, value: KeyValue) -> ValueError:
    return ValueError(f"{value!r} is not a key value of {column.name} {column.type.declared}")


def _itself(name: str) -> str:
    return name


def _as_number(name: str) -> str:
    return f"CAST({name} AS UNSIGNED)"


def _as_hex(name: str) -> str:
    return f"HEX({name})"


def _as_text(name: str) -> str:
    return f"CAST({name} AS CHAR)"


_FORMS: dict[str, KeyForm] = {
    **dict.fromkeys([*INTEGERS, "year"], KeyForm(_itself, _whole)),
    **dict.fromkeys(["enum", "bit"], KeyForm(_as_number, _whole)),
    "set": KeyForm(_as_number, _whole, _as_number),
    "decimal": KeyForm(_as_text, _number),
    "date": KeyForm(_as_text, _temporal("DATE")),
    **dict.fromkeys(["datetime", "timestamp"], KeyForm(_as_text, _temporal("TIMESTAMP"))),
    "time": KeyForm(_as_text, _temporal("TIME")),
    **dict.fromkeys(["char", "varchar"], KeyForm(_as_hex, _text)),
    **dict.fromkeys(["binary", "varbinary"], KeyForm(_as_hex, _bytes)),
    **dict.fromkeys(["uuid", "inet4", "inet6"], KeyForm(_as_text, _printed)),
}
