"""The value that existing rows have in an added column, from its default and the statement's time.

Why it is right: followed are literals that a column of the type holds exactly (`literals`), also
between parentheses, the documented implicit defaults of NOT NULL, and CURRENT_TIMESTAMP, which is
the time that the event carries. Other expressions, which may differ in each row and on each
replica, are `Unpredictable`, and so is every literal that the server rounds or cuts.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import BINARIES, INTEGERS, TEXTS, SourceType
from cdcsync_spark.wire.columns.charset import contains_ascii, is_utf8
from cdcsync_spark.wire.sql.column.column_types import CAPACITY, Unpredictable
from cdcsync_spark.wire.sql.column.literals import Literal, stored
from cdcsync_spark.wire.sql.syntax.reader import TokenReader
from cdcsync_spark.wire.sql.syntax.tokens import Session, Started, Token, TokenKind, Unreadable

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME")
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
_EMPTY_JSON = {"JSON_OBJECT ( )": "{}", "JSON_ARRAY ( )": "[]"}


def fill(source: SourceType, nullable: bool, default: tuple[Token, ...], session: Session) -> Value:
    """Raises Unpredictable."""
    if not default:
        return None if nullable else _implicit(source)
    reader = TokenReader(default)
    try:
        value = _value(reader, source, nullable, session)
        reader.finish()
    except (Unreadable, ValueError, OverflowError):
        raise Unpredictable(f"the default of a column of type {source.declared}") from None
    return value


def _value(
    reader: TokenReader, source: SourceType, nullable: bool, session: Session, *, expression: bool = False
) -> Value:
    """Raises Unreadable, or ValueError for a literal that the type does not hold."""
    if reader.word() == "(":
        inside = TokenReader(reader.parentheses())
        value = _value(inside, source, nullable, session, expression=True)
        inside.finish()
        return value
    if reader.take("NULL"):
        if not nullable:
            raise reader.unexpected()
        return None
    if reader.take_any(*_NOW):
        return _now(reader, source, session.started)
    if empty := reader.take_any(*_EMPTY_JSON):
        return stored(source, Literal(TokenKind.STRING, _EMPTY_JSON[empty]), session)
    literal = _literal(reader, session)
    if not session.mariadb:
        _check_expression(source, literal, expression)
    return stored(source, literal, session)


def _check_expression(source: SourceType, literal: Literal, expression: bool) -> None:
    """MySQL gives a TEXT or BLOB no default but an expression, and does not refuse one that it
    drops; its catalog shows the texts of expressions changed, unless they are plain. Raises
    ValueError."""
    changed = expression and not _PLAIN.fullmatch(literal.text) and literal.kind is TokenKind.STRING
    if changed or (source.base in CAPACITY and not expression):
        raise ValueError(literal.text)


def _literal(reader: TokenReader, session: Session) -> Literal:
    if truth := reader.take_any("TRUE", "FALSE"):
        return Literal(TokenKind.NUMBER, str(int(truth == "TRUE")))
    if reader.peek(1).kind is TokenKind.STRING and (word := reader.take_any(*_BEFORE)):
        return Literal(TokenKind.STRING, reader.next().text, word)
    introduced = _introduces(reader, session)
    if introduced:
        reader.next()
    sign = reader.take_any("-", "+")
    if sign == "-" and reader.word() == "(":
        return _negated(TokenReader(reader.parentheses()), session)
    kind = reader.peek().kind
    if kind not in (TokenKind.NUMBER, TokenKind.STRING, TokenKind.LITERAL) or (sign and kind is not TokenKind.NUMBER):
        raise reader.unexpected()
    text = sign.removeprefix("+") + reader.next().text
    while kind is TokenKind.STRING and reader.peek().kind is TokenKind.STRING and not introduced:
        text += reader.next().text
    return Literal(kind, text)


def _negated(inside: TokenReader, session: Session) -> Literal:
    """MySQL's catalog shows a negative number with parentheses around its digits."""
    literal = _literal(inside, session)
    inside.finish()
    if literal.kind is not TokenKind.NUMBER or literal.text.startswith("-"):
        raise inside.unexpected()
    return Literal(TokenKind.NUMBER, f"-{literal.text}")


def _introduces(reader: TokenReader, session: Session) -> bool:
    """A character set before a text that is the same one in it. The server takes the bytes that the
    client sent; a text behind it comes in the connection's set."""
    charset, text = reader.word().lower().removeprefix("_"), reader.peek(1)
    if not reader.word().startswith("_") or text.kind is not TokenKind.STRING:
        return False
    return charset == session.charset or (text.text.isascii() and (is_utf8(charset) or contains_ascii(charset)))


_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
#: they say of what type the text behind them is
_BEFORE = ("DATE", "TIME", "TIMESTAMP")


# -- the statement's time


def _now(reader: TokenReader, source: SourceType, started: Started) -> dt.datetime:
    digits = 0
    if reader.word() == "(":
        inside = TokenReader(reader.parentheses())
        digits = 0 if inside.ended else int(inside.of(TokenKind.NUMBER))
        inside.finish()
    if source.base not in ("datetime", "timestamp") or digits != max(source.size, 0) or not started.seconds:
        raise reader.unexpected()
    if digits and started.microseconds is None:
        raise reader.unexpected()
    unit = 10 ** (6 - digits)
    fraction = (started.microseconds or 0) // unit * unit if digits else 0
    instant = dt.datetime.fromtimestamp(started.seconds, dt.UTC) + dt.timedelta(microseconds=fraction)
    return instant if source.base == "timestamp" else _local(reader, instant, started.time_zone)


def _local(reader: TokenReader, instant: dt.datetime, time_zone: str) -> dt.datetime:
    """A zone with a name, SYSTEM included, is known to the server alone."""
    match = _OFFSET.fullmatch(time_zone)
    if not match:
        raise reader.unexpected()
    minutes = int(match[2]) * 60 + int(match[3])
    offset = dt.timedelta(minutes=-minutes if match[1] == "-" else minutes)
    return (instant + offset).replace(tzinfo=None)


# -- NOT NULL without a default


def _implicit(source: SourceType) -> Value:
    """TIMESTAMP depends on `explicit_defaults_for_timestamp`; JSON and geometries get what is no
    value of theirs."""
    if source.base == "enum":
        return source.members[0]
    if source.base == "binary":
        return bytes(source.size)
    if source.base not in _IMPLICIT:
        raise Unpredictable(f"NOT NULL without a default for {source.declared}")
    return _IMPLICIT[source.base]


_IMPLICIT: dict[str, Value] = {
    **dict.fromkeys((*INTEGERS, "year", "bit"), 0),
    **dict.fromkeys(("float", "double"), 0.0),
    **dict.fromkeys((*TEXTS, "set"), ""),
    **dict.fromkeys(BINARIES - {"binary"}, b""),
    "decimal": Decimal(0),
    "time": dt.timedelta(),
    # zero dates
    "date": None,
    "datetime": None,
}
