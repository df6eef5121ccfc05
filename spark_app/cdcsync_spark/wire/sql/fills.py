"""The value that existing rows have in an added column, from its default and the statement's time.

Why it is right: followed are literals that the server stores unchanged in a column of the type
(no rounding, no conversion, no session setting), the documented implicit defaults of NOT NULL, and
CURRENT_TIMESTAMP, which is the time that the event carries. Expressions, which may differ in each
row and on each replica, are `Unpredictable`, and so is every literal that the server converts.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal

from cdcsync_core.schema_change import Value
from cdcsync_core.source_table import BINARIES, INTEGERS, TEXTS, SourceType
from cdcsync_spark.wire.sql.column_types import CAPACITY, Unpredictable, max_bytes
from cdcsync_spark.wire.sql.reader import Reader
from cdcsync_spark.wire.sql.tokens import Kind, Session, Started, Token, Unreadable

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME")
_INTEGER = re.compile(r"\d{1,20}")
_PLAIN_NUMBER = re.compile(r"\d{1,65}(?:\.\d{1,38})?")
_DATE = re.compile(r"[1-9]\d{3}-\d\d-\d\d")
_DATETIME = re.compile(r"[1-9]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)")
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
#: integers up to here are exact in a FLOAT and in a DOUBLE
_EXACT = {"float": 2**24, "double": 2**53}


def fill(source: SourceType, nullable: bool, default: tuple[Token, ...], session: Session) -> Value:
    """Raises Unpredictable."""
    if not default:
        return None if nullable else _implicit(source)
    reader = Reader(default)
    try:
        value = _value(reader, source, nullable, session)
        reader.finish()
    except (Unreadable, ValueError, OverflowError):
        raise Unpredictable(f"the default of a column of type {source.declared}") from None
    return value


def _value(reader: Reader, source: SourceType, nullable: bool, session: Session) -> Value:
    """Raises Unreadable, or ValueError for a date that is none."""
    if reader.take("NULL"):
        if not nullable:
            raise reader.unexpected()
        return None
    if reader.take_any(*_NOW):
        return _now(reader, source, session.started)
    if truth := reader.take_any("TRUE", "FALSE"):
        return _literal(reader, source, Kind.NUMBER, str(int(truth == "TRUE")))
    sign = "-" if reader.take("-") else ""
    kind = reader.peek().kind
    if kind is not Kind.NUMBER and (sign or kind is not Kind.STRING):
        raise reader.unexpected()
    return _literal(reader, source, kind, sign + reader.next().text)


def _literal(reader: Reader, source: SourceType, kind: Kind, text: str) -> Value:
    rule = _LITERALS.get(source.base)
    if rule is None:
        raise reader.unexpected()
    wanted, read = rule
    if kind is not wanted or not text.isascii():
        raise reader.unexpected()
    return read(source, text)


# -- literals


def _number(pattern: re.Pattern[str], text: str) -> Decimal:
    if not pattern.fullmatch(text.removeprefix("-")):
        raise ValueError(text)
    return Decimal(text)


def _integer(source: SourceType, text: str) -> int:
    value = int(_number(_INTEGER, text))
    bits = 8 * INTEGERS[source.base]
    least, most = (0, 2**bits - 1) if source.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not least <= value <= most:
        raise ValueError(text)
    return value


def _decimal(source: SourceType, text: str) -> Decimal:
    value = _number(_PLAIN_NUMBER, text)
    scaled = value.scaleb(source.scale)
    whole = source.size - source.scale
    if scaled != int(scaled) or abs(value) >= 10**whole or (source.unsigned and value < 0):
        raise ValueError(text)
    return value + 0


def _real(source: SourceType, text: str) -> float:
    """Whole numbers, which both types hold exactly."""
    value = int(_number(_INTEGER, text))
    if abs(value) > _EXACT[source.base] or (source.unsigned and value < 0) or text.startswith("-0"):
        raise ValueError(text)
    return float(value)


def _text(source: SourceType, text: str) -> str:
    most = source.size if source.base in ("char", "varchar") else CAPACITY[source.base] // max_bytes(source.charset)
    if len(text) > most or "\0" in text:
        raise ValueError(text)
    return text.rstrip(" ") if source.base == "char" else text


def _bytes(source: SourceType, text: str) -> bytes:
    most = source.size if source.size >= 0 else CAPACITY[source.base]
    if len(text) > most:
        raise ValueError(text)
    return text.encode().ljust(source.size, b"\0") if source.base == "binary" else text.encode()


def _member(source: SourceType, text: str) -> str:
    if text not in source.members:
        raise ValueError(text)
    return text


def _subset(source: SourceType, text: str) -> str:
    """In the order of the members, as the server prints it."""
    chosen = text.split(",") if text else []
    if [m for m in source.members if m in chosen] != chosen:
        raise ValueError(text)
    return text


def _date(_: SourceType, text: str) -> dt.date:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return dt.date.fromisoformat(text)


def _datetime(_: SourceType, text: str) -> dt.datetime:
    if not _DATETIME.fullmatch(text):
        raise ValueError(text)
    return dt.datetime.fromisoformat(text)


def _time(_: SourceType, text: str) -> dt.timedelta:
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(text)
    hours, minutes, seconds = map(int, match.groups())
    return dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _year(_: SourceType, text: str) -> int:
    if len(text) != 4 or not 1901 <= int(text) <= 2155:
        raise ValueError(text)
    return int(text)


_LITERALS: dict[str, tuple[Kind, Callable[[SourceType, str], Value]]] = {
    **dict.fromkeys(INTEGERS, (Kind.NUMBER, _integer)),
    **dict.fromkeys(("float", "double"), (Kind.NUMBER, _real)),
    **dict.fromkeys(TEXTS, (Kind.STRING, _text)),
    **dict.fromkeys(BINARIES, (Kind.STRING, _bytes)),
    "decimal": (Kind.NUMBER, _decimal),
    "enum": (Kind.STRING, _member),
    "set": (Kind.STRING, _subset),
    "date": (Kind.STRING, _date),
    "datetime": (Kind.STRING, _datetime),
    "time": (Kind.STRING, _time),
    "year": (Kind.NUMBER, _year),
}


# -- the statement's time


def _now(reader: Reader, source: SourceType, started: Started) -> dt.datetime:
    digits = 0
    if reader.word() == "(":
        inside = Reader(reader.parentheses())
        digits = 0 if inside.ended else int(inside.of(Kind.NUMBER))
        inside.finish()
    if source.base not in ("datetime", "timestamp") or digits != max(source.size, 0) or not started.seconds:
        raise reader.unexpected()
    if digits and started.microseconds is None:
        raise reader.unexpected()
    unit = 10 ** (6 - digits)
    fraction = (started.microseconds or 0) // unit * unit if digits else 0
    instant = dt.datetime.fromtimestamp(started.seconds, dt.UTC) + dt.timedelta(microseconds=fraction)
    return instant if source.base == "timestamp" else _local(reader, instant, started.time_zone)


def _local(reader: Reader, instant: dt.datetime, time_zone: str) -> dt.datetime:
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
