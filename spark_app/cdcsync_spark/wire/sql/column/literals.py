"""What a column of a type stores for a literal, where it holds it exactly.

Why it is right: a literal is followed only if its value is one of the column's own values, so that
no rule of rounding, cutting or padding, no sql_mode and no collation decides. Numbers are compared
as numbers, however they are written; a FLOAT or DOUBLE has the nearest value, which every server
finds. A text is followed if the client's and the literal's character set and the column's have all
of its characters. Everything else raises.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import BINARIES, INTEGERS, TEXTS, SourceType
from cdcsync_spark.wire.columns.charset import contains_ascii, is_utf8
from cdcsync_spark.wire.sql.column.column_types import CAPACITY, max_bytes
from cdcsync_spark.wire.sql.syntax.tokens import Session, TokenKind


class Literal(NamedTuple):
    """`text` is what stands between quotes, or the number with its sign; `word` is DATE, TIME or
    TIMESTAMP before a text."""

    kind: TokenKind
    text: str
    word: str = ""


def stored(source: SourceType, literal: Literal, session: Session) -> Value:
    """Raises ValueError or OverflowError."""
    rule = _RULES.get(source.base)
    if rule is None or (literal.word and source.base not in _WORDS.get(literal.word, ())):
        raise ValueError(source.declared)
    return rule(source, literal, session)


#: the columns that hold what such a literal says
_WORDS = {"DATE": ("date", "datetime"), "TIME": ("time",), "TIMESTAMP": ("datetime",)}


# -- numbers

_PLAIN_NUMBER = re.compile(r"-?(?:\d{1,65}(?:\.\d{0,38})?|\.\d{1,38})")
_ANY_NUMBER = re.compile(r"-?(?:\d{1,65}(?:\.\d{0,38})?|\.\d{1,38})(?:[eE][-+]?\d{1,3})?")


def _exact(literal: Literal) -> Decimal:
    """The value of a number, or of a text that is one; with an exponent it is a DOUBLE, so it must
    be one exactly."""
    if literal.kind is TokenKind.LITERAL:
        raise ValueError(literal.text)
    if _PLAIN_NUMBER.fullmatch(literal.text):
        return Decimal(literal.text)
    if literal.kind is not TokenKind.NUMBER or not _ANY_NUMBER.fullmatch(literal.text):
        raise ValueError(literal.text)
    value = Decimal(literal.text)
    if Decimal(float(literal.text)) != value:
        raise ValueError(literal.text)
    return value


def _whole(literal: Literal) -> int:
    value = _exact(literal)
    if value != int(value):
        raise ValueError(literal.text)
    return int(value)


def _integer(source: SourceType, literal: Literal, _: Session) -> int:
    value = _whole(literal)
    bits = 8 * INTEGERS[source.base]
    least, most = (0, 2**bits - 1) if source.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not least <= value <= most:
        raise ValueError(literal.text)
    return value


def _decimal(source: SourceType, literal: Literal, _: Session) -> Decimal:
    value = _exact(literal)
    scaled = value.scaleb(source.scale)
    whole = source.size - source.scale
    if scaled != int(scaled) or abs(value) >= 10**whole or (source.unsigned and value < 0):
        raise ValueError(literal.text)
    return value + 0


def _real(source: SourceType, literal: Literal, _: Session) -> float:
    """Zero has no sign here, as in no server's catalog."""
    if literal.kind is TokenKind.LITERAL or not _ANY_NUMBER.fullmatch(literal.text) or source.size >= 0:
        raise ValueError(literal.text)
    value = float(literal.text)
    if source.base == "float":
        (value,) = struct.unpack("f", struct.pack("f", value))
    signed = value < 0 or literal.text.startswith("-")
    if not math.isfinite(value) or (signed and (source.unsigned or not value)):
        raise ValueError(literal.text)
    return float(value)


def _bit(source: SourceType, literal: Literal, _: Session) -> int:
    value = int.from_bytes(_digits(literal.text)) if literal.kind is TokenKind.LITERAL else _whole(literal)
    if literal.kind is TokenKind.STRING or not 0 <= value < 2 ** max(source.size, 1):
        raise ValueError(literal.text)
    return value


def _year(_: SourceType, literal: Literal, __: Session) -> int:
    if literal.kind is TokenKind.LITERAL or not re.fullmatch(r"\d{4}", literal.text):
        raise ValueError(literal.text)
    if not 1901 <= int(literal.text) <= 2155:
        raise ValueError(literal.text)
    return int(literal.text)


# -- texts and bytes

_CANONICAL = re.compile(r"0|-?[1-9]\d{0,17}")
_HEX = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'|0x((?:[0-9a-fA-F]{2})+)")
_NATIONAL = re.compile(r"[nN]'([^'\\\x80-\U0010ffff]*)'")
_BITS = re.compile(r"[bB]'([01]*)'|0b([01]+)")


def _digits(text: str) -> bytes:
    """The bytes of a literal in hexadecimal or binary digits."""
    if match := _HEX.fullmatch(text):
        return bytes.fromhex(match[1] or match[2] or "")
    if match := _BITS.fullmatch(text):
        digits = match[1] or match[2] or ""
        return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8)
    raise ValueError(text)


def _string(literal: Literal, charset: str = "") -> str:
    """A whole number is stored as it is written, if it is written in the one way. The bytes of
    hexadecimal and binary digits are those of the column's `charset`."""
    if literal.kind is TokenKind.STRING or (literal.kind is TokenKind.NUMBER and _CANONICAL.fullmatch(literal.text)):
        return literal.text
    if match := _NATIONAL.fullmatch(literal.text):
        return match[1]
    if literal.kind is TokenKind.LITERAL and (is_utf8(charset) or contains_ascii(charset)):
        return _digits(literal.text).decode("ascii")
    raise ValueError(literal.text)


def _text(source: SourceType, literal: Literal, session: Session) -> str:
    text = _string(literal, source.charset)
    most = source.size if source.base in ("char", "varchar") else CAPACITY[source.base] // max_bytes(source.charset)
    if len(text) > most or "\0" in text or not all(_has(c, text) for c in (source.charset, session.connection)):
        raise ValueError(text)
    return text.rstrip(" ") if source.base == "char" else text


def _has(charset: str, text: str) -> bool:
    """Whether a character set has all characters of a text; in doubt not. All that statements are
    read in have those of ASCII."""
    beyond = {ord(c) for c in text if not c.isascii()}
    first, last = _BEYOND.get(charset, (0, 0))
    return not beyond or (min(beyond) >= first and max(beyond) <= last)


#: without the bytes of latin1 that are not those of ISO 8859-1, and what catalogs show as `?`
_BEYOND = {
    "utf8mb4": (0x80, 0xFFFF),
    "utf8mb3": (0x80, 0xFFFF),
    "utf8": (0x80, 0xFFFF),
    "latin1": (0xA0, 0xFF),
}


def _bytes(source: SourceType, literal: Literal, session: Session) -> bytes:
    """Catalogs show nothing behind a zero byte but padding, MariaDB's no bytes beyond ASCII."""
    text = _digits(literal.text) if literal.kind is TokenKind.LITERAL else _string(literal).encode("ascii")
    most = source.size if source.size >= 0 else CAPACITY[source.base]
    plain = text.rstrip(b"\0") if source.base == "binary" else text
    if len(text) > most or b"\0" in plain or (session.mariadb and not text.isascii()):
        raise ValueError(literal.text)
    return text.ljust(source.size, b"\0") if source.base == "binary" else text


def _member(source: SourceType, literal: Literal, _: Session) -> str:
    if literal.kind is not TokenKind.STRING or literal.text not in source.members:
        raise ValueError(literal.text)
    return literal.text


def _subset(source: SourceType, literal: Literal, _: Session) -> str:
    """In the order of the members, as the server prints it."""
    chosen = literal.text.split(",") if literal.text else []
    if literal.kind is not TokenKind.STRING or [m for m in source.members if m in chosen] != chosen:
        raise ValueError(literal.text)
    return literal.text


def _json(_: SourceType, literal: Literal, __: Session) -> str:
    """Texts that the server prints as they are."""
    if literal.kind is not TokenKind.STRING or literal.text not in ("{}", "[]"):
        raise ValueError(literal.text)
    return literal.text


# -- times

_DATE = re.compile(r"[1-9]\d{3}-\d\d-\d\d")
_DATETIME = re.compile(r"([1-9]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?")
_TIME = re.compile(r"(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_ZERO_DATE = re.compile(r"0000-00-00(?: 00:00:00(?:\.0{1,6})?)?")
_HOURS = 838


def _instant(literal: Literal) -> str:
    if literal.kind is not TokenKind.STRING:
        raise ValueError(literal.text)
    return literal.text


def _date(_: SourceType, literal: Literal, __: Session) -> dt.date | None:
    text = _instant(literal)
    if _ZERO_DATE.fullmatch(text):
        return None
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return dt.date.fromisoformat(text)


def _datetime(source: SourceType, literal: Literal, _: Session) -> dt.datetime | None:
    text = _instant(literal)
    if _ZERO_DATE.fullmatch(text):
        return None
    if _DATE.fullmatch(text):
        return dt.datetime.fromisoformat(text)
    match = _DATETIME.fullmatch(text)
    if not match:
        raise ValueError(text)
    return dt.datetime.fromisoformat(match[1]) + _fraction(source, match[2])


def _fraction(source: SourceType, digits: str | None) -> dt.timedelta:
    """Raises ValueError for more of them than the column has."""
    plain = (digits or "").rstrip("0")
    if len(plain) > max(source.size, 0):
        raise ValueError(digits)
    return dt.timedelta(microseconds=int(plain.ljust(6, "0")))


def _time(source: SourceType, literal: Literal, _: Session) -> dt.timedelta:
    match = _TIME.fullmatch(_instant(literal))
    if not match or int(match[1]) > _HOURS:
        raise ValueError(literal.text)
    hours, minutes, seconds = map(int, match.groups()[:3])
    return dt.timedelta(hours=hours, minutes=minutes, seconds=seconds) + _fraction(source, match[4])


_RULES: dict[str, Callable[[SourceType, Literal, Session], Value]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(("float", "double"), _real),
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys(BINARIES, _bytes),
    "bit": _bit,
    "decimal": _decimal,
    "enum": _member,
    "set": _subset,
    "json": _json,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "year": _year,
}
