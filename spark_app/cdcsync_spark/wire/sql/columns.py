"""Column definitions that say again what is there: MODIFY for a comment, a default, or whether NULL
may come.

Why values stay: the type, its length and signedness, and the members are the recorded ones, so
nothing is converted. Where a statement does not say the character set it is the table's default,
which is not recorded: in strict mode a conversion that loses something is an error, and another
character set is seen in the next TABLE_MAP. NULLs that may not stay are an error in strict mode,
and nothing is read of a statement that would fill them by itself (TIMESTAMP, AUTO_INCREMENT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdcsync_core.table import BINARIES, GEOMETRIES, INTEGERS, TEXTS, Column, SourceType, Table
from cdcsync_spark.wire.sql.reader import Reader, folded
from cdcsync_spark.wire.sql.tokens import Kind, Session, Unreadable

_LABELLED = TEXTS | {"enum", "set"}


@dataclass
class _Said:
    """What a definition says of a column; `nullable` is None where it does not say."""

    base: str
    numbers: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str = ""
    collation: str = ""
    nullable: bool | None = None


def names_column(name: str, table: Table) -> bool:
    """In doubt yes."""
    return any(folded(name) == folded(c.name) for c in table.columns)


def is_same_column(reader: Reader, table: Table, session: Session) -> None:
    """Behind MODIFY: raises Unreadable unless the column keeps its values, its type and its
    place."""
    reader.take("COLUMN")
    reader.take("IF", "EXISTS")
    name = reader.name()
    column = next((c for c in table.columns if c.name == name), None)
    if column is None:
        raise Unreadable(f"no column {name}")
    said = _type(reader)
    _attributes(reader, said)
    if not (_same_type(said, column.type) and _same_text(said, column, session)):
        raise Unreadable(f"another type of {name}")
    if not (_same_key(said, column) if name in table.key else _nulls_stay(said, column, session)):
        raise Unreadable(f"another key, or NULLs of {name} that go")


def value(reader: Reader) -> None:
    """A default: a literal, a function, or an expression in parentheses."""
    reader.take_any("-", "+")
    if reader.word() == "(":
        reader.parentheses()
        return
    token = reader.next()
    if token.kind is Kind.WORD and reader.word() == "(":
        reader.parentheses()
    elif token.kind in (Kind.NAME, Kind.SYMBOL):
        raise reader.unexpected()
    while reader.peek().kind is Kind.STRING and (token.kind is Kind.STRING or token.text.startswith("_")):
        reader.next()


def _type(reader: Reader) -> _Said:
    word = reader.of(Kind.WORD).lower()
    if word in ("bool", "boolean"):
        return _Said("tinyint", (1,))
    if word == "double":
        reader.take("PRECISION")
    said = _Said(_SYNONYMS.get(word, word))
    if said.base in ("enum", "set"):
        said.members = tuple(_listed(reader, Kind.STRING))
    elif reader.word() == "(":
        said.numbers = tuple(int(n) if n.isdigit() else -1 for n in _listed(reader, Kind.NUMBER))
    while sign := reader.take_any("UNSIGNED", "SIGNED"):
        said.unsigned = sign == "UNSIGNED"
    return said


def _listed(reader: Reader, kind: Kind) -> list[str]:
    inside = Reader(reader.parentheses())
    found = [inside.of(kind)]
    while inside.take(","):
        found.append(inside.of(kind))
    inside.finish()
    return found


def _attributes(reader: Reader, said: _Said) -> None:
    """As far as they are known."""
    while attribute := reader.take_any(*_ATTRIBUTES):
        _ATTRIBUTES[attribute](reader, said)


def _charset(reader: Reader, said: _Said) -> None:
    said.charset = reader.name().lower()


def _collate(reader: Reader, said: _Said) -> None:
    reader.take("=")
    said.collation = reader.name().lower()
    said.charset = said.charset or said.collation.partition("_")[0]


def _not_null(_: Reader, said: _Said) -> None:
    said.nullable = False


def _null(_: Reader, said: _Said) -> None:
    said.nullable = True


def _default(reader: Reader, _: _Said) -> None:
    value(reader)


def _comment(reader: Reader, _: _Said) -> None:
    reader.of(Kind.STRING)


def _word(reader: Reader, _: _Said) -> None:
    reader.of(Kind.WORD)


def _nothing(_: Reader, __: _Said) -> None:
    return


def _check(reader: Reader, _: _Said) -> None:
    reader.parentheses()


_ATTRIBUTES: dict[str, Callable[[Reader, _Said], None]] = {
    "NOT NULL": _not_null,
    "NULL": _null,
    "CHARACTER SET": _charset,
    "CHARSET": _charset,
    "COLLATE": _collate,
    "DEFAULT": _default,
    "ON UPDATE": _default,
    "COMMENT": _comment,
    "COLUMN_FORMAT": _word,
    "STORAGE": _word,
    "VISIBLE": _nothing,
    "INVISIBLE": _nothing,
    "CHECK": _check,
}


# -- the recorded column


def _same_type(said: _Said, recorded: SourceType) -> bool:
    same = _SAME.get(said.base)
    plain = "zerofill" not in recorded.declared and "/*" not in recorded.declared
    return same is not None and plain and recorded.base == said.base and same(said, recorded)


def _same_text(said: _Said, column: Column, session: Session) -> bool:
    if column.type.base not in _LABELLED:
        return not (said.charset or said.collation)
    if said.charset in ("", "utf8", "uca1400"):
        return session.strict
    return said.charset == column.type.charset


def _same_key(said: _Said, column: Column) -> bool:
    """What orders and tells apart the keys stays."""
    ordered = column.type.base not in _LABELLED or said.collation == column.collation.lower()
    return ordered and said.nullable is False


def _nulls_stay(said: _Said, column: Column, session: Session) -> bool:
    """Since it was recorded a column that is no TIMESTAMP may have got NULLs by a statement like
    this one."""
    if column.type.base == "timestamp":
        return said.nullable is column.nullable
    return said.nullable is not False or session.strict


def _integer(said: _Said, recorded: SourceType) -> bool:
    """The width of the display may go unsaid; of most it is not even kept by newer servers."""
    width = _WIDTHS[said.base] - (1 if recorded.unsigned and said.base != "bigint" else 0)
    known = (recorded.size,) if recorded.size >= 0 else (width,)
    if said.unsigned != recorded.unsigned or len(said.numbers) > 1:
        return False
    if not said.numbers:
        return recorded.size in (-1, width)
    return said.numbers == known or (recorded.size < 0 and said.numbers != (1,))


def _sized(default: int | None) -> Callable[[_Said, SourceType], bool]:
    """One number, or the default; no default: it must be said."""

    def same(said: _Said, recorded: SourceType) -> bool:
        wanted = said.numbers or ((default,) if default is not None else ())
        return wanted == (max(recorded.size, default or 0),) and not said.unsigned

    return same


def _decimal(said: _Said, recorded: SourceType) -> bool:
    precision, scale = (*said.numbers, *(10, 0)[len(said.numbers) :])[:2]
    return (precision, scale, said.unsigned) == (recorded.size, recorded.scale, recorded.unsigned)


def _real(said: _Said, recorded: SourceType) -> bool:
    known = (recorded.size, recorded.scale) if recorded.size >= 0 else ()
    return said.numbers == known and said.unsigned == recorded.unsigned


def _bare(said: _Said, recorded: SourceType) -> bool:
    return not said.numbers and not said.unsigned and recorded.size < 0


def _year(said: _Said, recorded: SourceType) -> bool:
    return said.numbers in ((), (4,)) and recorded.size in (-1, 4) and not said.unsigned


def _listing(said: _Said, recorded: SourceType) -> bool:
    """Members that could be spelled in two ways are not compared."""
    return said.members == recorded.members and not any(set(m) & set("\\'\"") for m in said.members)


_WIDTHS = {"tinyint": 4, "smallint": 6, "mediumint": 9, "int": 11, "bigint": 20}
_SYNONYMS = {"integer": "int", "dec": "decimal", "numeric": "decimal", "fixed": "decimal"}
_SAME: dict[str, Callable[[_Said, SourceType], bool]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys((TEXTS | BINARIES | GEOMETRIES | {"date", "json", "uuid", "inet4", "inet6"}), _bare),
    **dict.fromkeys(("char", "binary", "bit"), _sized(1)),
    **dict.fromkeys(("varchar", "varbinary"), _sized(None)),
    **dict.fromkeys(("datetime", "timestamp", "time"), _sized(0)),
    **dict.fromkeys(("enum", "set"), _listing),
    **dict.fromkeys(("float", "double"), _real),
    "decimal": _decimal,
    "year": _year,
}
