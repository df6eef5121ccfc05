"""The type that a statement declares, exactly as the server will show it in information_schema.

Why it is right: the server completes what a declaration leaves out (display widths, precision,
character sets) by rules of its flavor and version; each rule here was compared with
information_schema on the servers (`tests/servers/test_schema_changes.py`). A declaration that is
completed by something else, such as a session's setting, is `Unpredictable`.
"""

from __future__ import annotations

from collections.abc import Callable

from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, INTEGERS, LABELLED, TEXTS, SourceType
from cdcsync_spark.wire.sql.column.columns import Declared
from cdcsync_spark.wire.sql.syntax.reader import folded
from cdcsync_spark.wire.sql.syntax.tokens import Session

#: the widths that servers give to integers, signed and unsigned
_DISPLAY = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
#: from this version on MySQL keeps no display width but TINYINT(1)
_WITHOUT_WIDTHS = 80_019
#: character sets whose conversion to another one keeps each character
_SUPERSETS = {
    "ascii": frozenset({"latin1", "utf8mb3", "utf8mb4"}),
    "latin1": frozenset({"utf8mb3", "utf8mb4"}),
    "utf8mb3": frozenset({"utf8mb4"}),
}
#: the bytes of a character, at most
MAX_BYTES = {
    "utf8mb4": 4, "utf8mb3": 3, "utf16": 4, "utf16le": 4, "utf32": 4, "ucs2": 2, "gb18030": 4, "big5": 2, "gbk": 2,
    "gb2312": 2, "sjis": 2, "cp932": 2, "euckr": 2, "ujis": 3, "eucjpms": 3,
}  # fmt: skip
#: the bytes of a text or blob
CAPACITY = {
    **dict.fromkeys(("tinytext", "tinyblob"), 2**8 - 1),
    **dict.fromkeys(("text", "blob"), 2**16 - 1),
    **dict.fromkeys(("mediumtext", "mediumblob"), 2**24 - 1),
    **dict.fromkeys(("longtext", "longblob"), 2**32 - 1),
}
#: a row's bytes; a server that is not strict makes another type of a longer column
_ROW = 65_535
_REAL_AS_FLOAT = 1
_FLOAT_BITS, _DOUBLE_BITS = 24, 53
#: what MODIFY and ADD can be followed for in no mode of the session: MAXDB (TIMESTAMP means
#: DATETIME), PAD_CHAR_TO_FULL_LENGTH (CHAR gets blanks), and all that is newer than these, but for
#: what says how assignments and fractions of a second are treated: no literal that is followed has
#: too many digits
_MAXDB, _PAD_CHAR, _NEWER = 1 << 12, 1 << 31, ~((1 << 32) - 1)
_OF_MARIADB, _OF_MYSQL = 1 << 33 | 1 << 34, 1 << 32


class Unpredictable(Exception):
    """What becomes of the rows, or of the definition, depends on more than is known."""


def check_session(session: Session) -> None:
    """Raises Unpredictable for a session in which types or literals mean something else."""
    if session.sql_mode is None or not session.version:
        raise Unpredictable("the settings of the session are not known")
    maxdb = session.mariadb and session.sql_mode & _MAXDB
    newer = _NEWER & ~(_OF_MARIADB if session.mariadb else _OF_MYSQL)
    if maxdb or session.sql_mode & (_PAD_CHAR | newer):
        raise Unpredictable(f"sql_mode {session.sql_mode:#x}")


def same_characters(recorded: str, declared: str) -> bool:
    """Whether each text of the one character set is the same text in the other."""
    recorded, declared = (("utf8mb3" if c == "utf8" else c) for c in (recorded, declared))
    return recorded == declared or declared in _SUPERSETS.get(recorded, ())


def max_bytes(charset: str) -> int:
    return MAX_BYTES.get("utf8mb3" if charset == "utf8" else charset, 1)


def declared_type(declared: Declared, charset: str, session: Session) -> SourceType:
    """`charset` is the default for texts, empty if not known. Raises Unpredictable."""
    check_session(session)
    base = declared.base
    rule = _RULES.get(base)
    if rule is None:
        raise Unpredictable(f"the type {base}")
    if base not in LABELLED and (declared.charset or declared.collation):
        raise Unpredictable(f"a character set of {base}")
    return rule(declared, charset, session)


def _parsed(text: str, charset: str = "") -> SourceType:
    return SourceType.parse(text, charset)


def _integer(declared: Declared, _: str, session: Session) -> SourceType:
    base, sign = declared.base, " unsigned" if declared.unsigned else ""
    if len(declared.numbers) > 1 or any(not 1 <= n <= 255 for n in declared.numbers):
        raise Unpredictable("the display width")
    if not session.mariadb and session.version >= _WITHOUT_WIDTHS:
        width: tuple[int, ...] = (1,) if base == "tinyint" and declared.numbers == (1,) and not sign else ()
    else:
        width = declared.numbers or (_DISPLAY[base][declared.unsigned],)
    return _parsed(f"{base}{_arguments(width)}{sign}")


def _arguments(numbers: tuple[int, ...]) -> str:
    return f"({','.join(map(str, numbers))})" if numbers else ""


def _decimal(declared: Declared, _: str, __: Session) -> SourceType:
    precision, scale = (*declared.numbers, *(10, 0)[len(declared.numbers) :])[:2]
    if len(declared.numbers) > 2 or not 0 <= scale <= precision <= 65 or precision < 1:
        raise Unpredictable("the precision")
    return _parsed(f"decimal({precision},{scale}){' unsigned' if declared.unsigned else ''}")


def _real(declared: Declared, _: str, session: Session) -> SourceType:
    """FLOAT(p) is one of the two by its precision in bits; REAL by the sql_mode."""
    base, numbers = declared.base, declared.numbers
    if base == "real":
        base = "float" if (session.sql_mode or 0) & _REAL_AS_FLOAT else "double"
    if base == "float" and len(numbers) == 1 and 0 <= numbers[0] <= _DOUBLE_BITS:
        base, numbers = "double" if numbers[0] > _FLOAT_BITS else "float", ()
    if numbers:
        raise Unpredictable("digits of a floating point number")
    return _parsed(f"{base}{' unsigned' if declared.unsigned else ''}")


def _sized(least: int, most: int, default: int | None) -> Callable[[Declared, str, Session], SourceType]:
    """One number, or the default; no default: it must be declared."""

    def rule(declared: Declared, _: str, __: Session) -> SourceType:
        numbers = declared.numbers or ((default,) if default is not None else ())
        if len(numbers) != 1 or not least <= numbers[0] <= most or declared.unsigned:
            raise Unpredictable(f"the size of {declared.base}")
        return _parsed(f"{declared.base}({numbers[0]})")

    return rule


def _fraction(declared: Declared, _: str, __: Session) -> SourceType:
    digits = declared.numbers or (0,)
    if len(digits) != 1 or not 0 <= digits[0] <= 6 or declared.unsigned:
        raise Unpredictable(f"the digits of {declared.base}")
    return _parsed(declared.base + _arguments(digits if digits != (0,) else ()))


def _bare(declared: Declared, _: str, __: Session) -> SourceType:
    if declared.numbers or declared.unsigned:
        raise Unpredictable(f"a size of {declared.base}")
    return _parsed(declared.base)


def _blob(declared: Declared, default: str, session: Session) -> SourceType:
    if declared.base == "blob" and len(declared.numbers) == 1:
        return _least("blob", declared, declared.numbers[0])
    return _bare(declared, default, session)


def _least(base: str, declared: Declared, needed: int, charset: str = "") -> SourceType:
    """The smallest TEXT or BLOB that holds so many bytes."""
    if not 1 <= needed <= CAPACITY["long" + base] or declared.unsigned:
        raise Unpredictable(f"the size of {declared.base}")
    size = next(size for size in ("tiny", "", "medium", "long") if CAPACITY[size + base] >= needed)
    return _parsed(size + base, charset)


def _vector(declared: Declared, default: str, session: Session) -> SourceType:
    if session.version < (_VECTORS_OF_MARIADB if session.mariadb else _VECTORS_OF_MYSQL):
        raise Unpredictable("the type vector")
    return _sized(1, _LONGEST_VECTOR, None if session.mariadb else 2048)(declared, default, session)


#: the versions that brought them
_VECTORS_OF_MARIADB, _VECTORS_OF_MYSQL, _LONGEST_VECTOR = 110_701, 90_000, 16_383


def _year(declared: Declared, _: str, session: Session) -> SourceType:
    if declared.numbers not in ((), (4,)) or declared.unsigned:
        raise Unpredictable("the digits of YEAR")
    widthless = not session.mariadb and session.version >= _WITHOUT_WIDTHS
    return _parsed("year" if widthless else "year(4)")


def _json(declared: Declared, default: str, session: Session) -> SourceType:
    """MariaDB's is a LONGTEXT in utf8mb4_bin."""
    if not session.mariadb:
        return _bare(declared, default, session)
    if declared.numbers or declared.unsigned:
        raise Unpredictable("a size of json")
    declared.collation = "utf8mb4_bin"
    return _parsed("longtext", "utf8mb4")


def _of_mariadb(declared: Declared, default: str, session: Session) -> SourceType:
    if not session.mariadb:
        raise Unpredictable(f"the type {declared.base}")
    return _bare(declared, default, session)


def charset_of_text(declared: Declared, default: str) -> str:
    """The character set that the server gives to a text column; raises Unpredictable."""
    charset = declared.charset if declared.charset not in ("", "uca1400") else default
    if charset in ("", "utf8", "binary", "default"):
        raise Unpredictable(f"the character set {charset or 'that is the default'}")
    return charset


def _text(declared: Declared, default: str, _: Session) -> SourceType:
    charset = charset_of_text(declared, default)
    base = declared.base
    if base == "text" and len(declared.numbers) == 1:
        return _least("text", declared, declared.numbers[0] * max_bytes(charset), charset)
    numbers = declared.numbers or ((1,) if base == "char" else ())
    size, most = (
        (1, 255 if base == "char" else _ROW // max_bytes(charset) - 3) if base in ("char", "varchar") else (0, 0)
    )
    if len(numbers) != size or any(not 1 <= n <= most for n in numbers) or declared.unsigned:
        raise Unpredictable(f"the size of {base}")
    return _parsed(base + _arguments(numbers), charset)


def _members(declared: Declared, default: str, _: Session) -> SourceType:
    """Members that servers compare or print differently than here are not followed."""
    charset = charset_of_text(declared, default)
    names = declared.members
    plain = all(m and m.isascii() and m.isprintable() and m == m.strip() and not set(m) & set("\\'\"") for m in names)
    distinct = len({folded(m) for m in names}) == len(names)
    if not plain or not distinct or (declared.base == "set" and (len(names) > 64 or any("," in m for m in names))):
        raise Unpredictable(f"the members of {declared.base}")
    listed = ",".join(f"'{m}'" for m in names)
    return _parsed(f"{declared.base}({listed})", charset)


_RULES: dict[str, Callable[[Declared, str, Session], SourceType]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(BINARIES - {"binary", "varbinary"}, _blob),
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys(("enum", "set"), _members),
    **dict.fromkeys(("datetime", "timestamp", "time"), _fraction),
    **dict.fromkeys(("float", "double", "real"), _real),
    "vector": _vector,
    **dict.fromkeys(GEOMETRIES - {"geomcollection", "geometrycollection"}, _bare),
    **dict.fromkeys(("uuid", "inet4", "inet6"), _of_mariadb),
    "date": _bare,
    "decimal": _decimal,
    "year": _year,
    "json": _json,
    "bit": _sized(1, 64, 1),
    "binary": _sized(1, 255, 1),
    "varbinary": _sized(1, _ROW - 3, None),
}
