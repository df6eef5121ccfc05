"""Column definitions that say again what is there: MODIFY for a comment, a default, or whether NULL
may come.

Why values stay: the type, its length and signedness, and the members are the recorded ones, so
nothing is converted. A text whose character set the statement leaves out gets the table's default,
so that default has to be recorded and to be the column's own; where the record is older, in strict
mode a conversion that loses something is an error. NULLs that may not stay are an error in strict
mode, and nothing is read of a statement that would fill them by itself (TIMESTAMP, AUTO_INCREMENT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, INTEGERS, TEXTS, Column, SourceType
from cdcsync_spark.wire.sql.syntax.reader import TokenReader, folded
from cdcsync_spark.wire.sql.syntax.tokens import Session, Token, TokenKind, Unreadable

_LABELLED = TEXTS | {"enum", "set"}


@dataclass
class Declared:
    """What a statement declares of a column; `nullable` is None where it declares neither,
    `default` holds the tokens of its DEFAULT, `unique` is whether it gets an index of its own."""

    base: str
    numbers: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str = ""
    collation: str = ""
    nullable: bool | None = None
    default: tuple[Token, ...] = ()
    unique: bool = False


def names_column(name: str, table: Capture) -> bool:
    """In doubt yes."""
    return any(folded(name) == folded(c.name) for c in table.columns)


def is_same_column(reader: TokenReader, table: Capture, session: Session) -> None:
    """Reads what follows MODIFY: raises Unreadable unless the column keeps its values, its type and
    its place."""
    reader.take("COLUMN")
    reader.take("IF", "EXISTS")
    name = reader.column()
    column = next((c for c in table.columns if c.name == name), None)
    if column is None:
        raise Unreadable(f"no column {name}")
    declared = read_type(reader)
    read_attributes(reader, declared)
    if not (
        _same_type(declared, column.type)
        and _same_text(declared, column, table.source.charset if session.strict else "")
    ):
        raise Unreadable(f"another type of {name}")
    if table.source.generated != frozenset() and not keeps_collation(column, declared.collation):
        raise Unreadable(f"another collation of {name}, by which a generated column may compare")
    if not (_same_key(declared, column) if name in table.key else _nulls_stay(declared, column, session)):
        raise Unreadable(f"another key, or NULLs of {name} that go")


def keeps_collation(column: Column, declared: str) -> bool:
    """Whether a definition with the collation `declared` (empty: that of the table, which may have
    got another one) leaves the column the one that it has."""
    return column.type.base not in _LABELLED or declared == column.collation.lower() != ""


def value(reader: TokenReader) -> None:
    """A default: a literal, a function, or an expression in parentheses."""
    reader.take_any("-", "+")
    if reader.word() == "(":
        reader.parentheses()
        return
    token = reader.next()
    if token.kind is TokenKind.WORD and reader.word() == "(":
        reader.parentheses()
    elif token.kind in (TokenKind.NAME, TokenKind.SYMBOL):
        raise reader.unexpected()
    introduced = token.kind is TokenKind.WORD and (token.text.startswith("_") or token.text.upper() in _DATED)
    if introduced and reader.peek().kind is TokenKind.LITERAL:
        reader.next()
    while reader.peek().kind is TokenKind.STRING and (token.kind is TokenKind.STRING or introduced):
        reader.next()


#: before a text they make a literal of it
_DATED = frozenset({"DATE", "TIME", "TIMESTAMP"})


def read_type(reader: TokenReader) -> Declared:
    """The type by its one name, as far as the words of the declaration say which it is."""
    if reader.take_any("BOOLEAN", "BOOL"):
        return Declared("tinyint", (1,))
    name = reader.take_any(*_NAMES)
    base = _NAMES[name] if name else reader.of(TokenKind.WORD).lower()
    declared = Declared(base, charset="utf8mb3" if name.startswith("N") and base in TEXTS else "")
    if declared.base in ("enum", "set"):
        declared.members = tuple(_listed(reader, TokenKind.STRING))
    elif reader.word() == "(":
        declared.numbers = tuple(int(n) if n.isdigit() else -1 for n in _listed(reader, TokenKind.NUMBER))
    while sign := reader.take_any("UNSIGNED", "SIGNED"):
        declared.unsigned |= sign == "UNSIGNED"  # SIGNED takes nothing back
    if declared.base in _AS_BYTES and reader.take("BYTE"):
        declared.base = _AS_BYTES[declared.base]
        declared.numbers = declared.numbers or ((1,) if declared.base == "binary" else ())
    return declared


def _listed(reader: TokenReader, kind: TokenKind) -> list[str]:
    inside = TokenReader(reader.parentheses())
    types = [inside.of(kind)]
    while inside.take(","):
        types.append(inside.of(kind))
    inside.finish()
    return types


def read_attributes(reader: TokenReader, declared: Declared) -> None:
    """As far as they are known."""
    while attribute := reader.take_any(*_ATTRIBUTES):
        _ATTRIBUTES[attribute](reader, declared)


def _charset(reader: TokenReader, declared: Declared) -> None:
    declared.charset = reader.of(*_NAMED).lower()


def _collate(reader: TokenReader, declared: Declared) -> None:
    reader.take("=")
    declared.collation = reader.of(*_NAMED).lower()
    declared.charset = declared.charset or declared.collation.partition("_")[0]


def _not_null(_: TokenReader, declared: Declared) -> None:
    declared.nullable = False


def _null(_: TokenReader, declared: Declared) -> None:
    declared.nullable = True


def _default(reader: TokenReader, declared: Declared) -> None:
    begin = reader.at
    value(reader)
    declared.default = reader.since(begin)


def _on_update(reader: TokenReader, _: Declared) -> None:
    value(reader)


def _comment(reader: TokenReader, _: Declared) -> None:
    reader.of(TokenKind.STRING)


def _word(reader: TokenReader, _: Declared) -> None:
    reader.of(TokenKind.WORD)


def _nothing(_: TokenReader, __: Declared) -> None:
    return


def _check(reader: TokenReader, _: Declared) -> None:
    reader.parentheses()
    reader.take_any("ENFORCED", "NOT ENFORCED")


def _constraint(reader: TokenReader, declared: Declared) -> None:
    if reader.word() != "CHECK":
        reader.name()
    reader.need("CHECK")
    _check(reader, declared)


def _unique(reader: TokenReader, declared: Declared) -> None:
    reader.take("KEY")
    declared.unique = True


def references(reader: TokenReader, _: Declared | None = None) -> None:
    """Reads what follows REFERENCES: a foreign key that changes no row; one that cascades changes
    rows which no row event carries (R10)."""
    reader.table()
    reader.parentheses()
    if reader.take("MATCH"):
        reader.of(TokenKind.WORD)
    while reader.take_any("ON DELETE", "ON UPDATE"):
        reader.need_any("RESTRICT", "NO ACTION")


def _latin1(_: TokenReader, declared: Declared) -> None:
    declared.charset = "latin1"


def _ucs2(_: TokenReader, declared: Declared) -> None:
    declared.charset = "ucs2"


_NAMED = (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING)
_ATTRIBUTES: dict[str, Callable[[TokenReader, Declared], None]] = {
    "NOT NULL": _not_null,
    "NULL": _null,
    "CHARACTER SET": _charset,
    "CHARSET": _charset,
    "CHAR SET": _charset,
    "ASCII": _latin1,
    "UNICODE": _ucs2,
    "BINARY": _nothing,
    "COLLATE": _collate,
    "DEFAULT": _default,
    "ON UPDATE": _on_update,
    "COMMENT": _comment,
    "COLUMN_FORMAT": _word,
    "STORAGE": _word,
    "VISIBLE": _nothing,
    "INVISIBLE": _nothing,
    "CHECK": _check,
    "CONSTRAINT": _constraint,
    "UNIQUE": _unique,
    "REFERENCES": references,
    "NOT SECONDARY": _nothing,
    "WITHOUT SYSTEM VERSIONING": _nothing,
}


# -- the recorded column


def _same_type(declared: Declared, recorded: SourceType) -> bool:
    same = _SAME.get(declared.base)
    plain = "zerofill" not in recorded.declared and "/*" not in recorded.declared
    return same is not None and plain and recorded.base == declared.base and same(declared, recorded)


def _same_text(declared: Declared, column: Column, default: str) -> bool:
    """`default` is the table's character set, empty if not known; so is `utf8`, which is not the
    same one on every server."""
    if column.type.base not in _LABELLED:
        return not (declared.charset or declared.collation)
    charset = default if declared.charset in ("", "uca1400") else declared.charset
    return charset not in ("", "utf8") and charset == column.type.charset


def _same_key(declared: Declared, column: Column) -> bool:
    """What orders and tells apart the keys stays."""
    ordered = column.type.base not in _LABELLED or declared.collation == column.collation.lower()
    return ordered and declared.nullable is False


def _nulls_stay(declared: Declared, column: Column, session: Session) -> bool:
    """Since it was recorded a column that is no TIMESTAMP may have got NULLs by a statement like
    this one."""
    if column.type.base == "timestamp":
        return declared.nullable is column.nullable
    return declared.nullable is not False or session.strict


def _integer(declared: Declared, recorded: SourceType) -> bool:
    """The width of the display may go unsaid; of most it is not even kept by newer servers."""
    width = _WIDTHS[declared.base] - (1 if recorded.unsigned and declared.base != "bigint" else 0)
    sizes = (recorded.size,) if recorded.size >= 0 else (width,)
    if declared.unsigned != recorded.unsigned or len(declared.numbers) > 1:
        return False
    if not declared.numbers:
        return recorded.size in (-1, width)
    return declared.numbers == sizes or (recorded.size < 0 and declared.numbers != (1,))


def _sized(default: int | None) -> Callable[[Declared, SourceType], bool]:
    """One number, or the default; no default: it must be declared."""

    def same(declared: Declared, recorded: SourceType) -> bool:
        sizes = declared.numbers or ((default,) if default is not None else ())
        return sizes == (max(recorded.size, default or 0),) and not declared.unsigned

    return same


def _decimal(declared: Declared, recorded: SourceType) -> bool:
    precision, scale = (*declared.numbers, *(10, 0)[len(declared.numbers) :])[:2]
    return (precision, scale, declared.unsigned) == (recorded.size, recorded.scale, recorded.unsigned)


def _real(declared: Declared, recorded: SourceType) -> bool:
    sizes = (recorded.size, recorded.scale) if recorded.size >= 0 else ()
    return declared.numbers == sizes and declared.unsigned == recorded.unsigned


def _bare(declared: Declared, recorded: SourceType) -> bool:
    return not declared.numbers and not declared.unsigned and recorded.size < 0


def _year(declared: Declared, recorded: SourceType) -> bool:
    return declared.numbers in ((), (4,)) and recorded.size in (-1, 4) and not declared.unsigned


def _listing(declared: Declared, recorded: SourceType) -> bool:
    """Members that could be spelled in two ways are not compared."""
    return declared.members == recorded.members and not any(set(m) & set("\\'\"") for m in declared.members)


_WIDTHS = {"tinyint": 4, "smallint": 6, "mediumint": 9, "int": 11, "bigint": 20}
#: the longer ones of those that begin alike first; REAL is what the session's sql_mode says
_NAMES = {
    "INTEGER": "int", "INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint", "INT4": "int", "INT8": "bigint",
    "MIDDLEINT": "mediumint", "DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal", "DOUBLE PRECISION": "double",
    "FLOAT4": "float", "FLOAT8": "double",
    "NATIONAL CHARACTER VARYING": "varchar", "NATIONAL CHAR VARYING": "varchar", "NATIONAL VARCHARACTER": "varchar",
    "NATIONAL VARCHAR": "varchar", "NATIONAL CHARACTER": "char", "NATIONAL CHAR": "char", "NCHAR VARCHARACTER": "varchar",
    "NCHAR VARCHAR": "varchar", "NCHAR VARYING": "varchar", "NVARCHAR": "varchar", "NCHAR": "char",
    "CHARACTER VARYING": "varchar", "CHAR VARYING": "varchar", "VARCHARACTER": "varchar", "CHARACTER": "char",
    "LONG VARBINARY": "mediumblob", "LONG CHARACTER VARYING": "mediumtext", "LONG CHAR VARYING": "mediumtext",
    "LONG VARCHARACTER": "mediumtext", "LONG VARCHAR": "mediumtext", "LONG": "mediumtext",
}  # fmt: skip
_AS_BYTES = {"char": "binary", "varchar": "varbinary", **{t: t.replace("text", "blob") for t in TEXTS if "text" in t}}
_SAME: dict[str, Callable[[Declared, SourceType], bool]] = {
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
