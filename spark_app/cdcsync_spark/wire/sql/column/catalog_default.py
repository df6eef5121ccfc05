"""A column's default as the server's catalog shows it, in a form in which it can be compared with
the value that a statement was predicted to give to existing rows.

Why it exists: no row event carries a default, so a literal that was misread is seen in the catalog
alone.

Why it is right: what is predicted are literals that the column holds exactly, implicit defaults and
CURRENT_TIMESTAMP (`fills`). The catalog's text of such a default is read by the same rules of its
type; what it shows otherwise, an expression for instance, is none of them and differs from every
prediction. MariaDB shows SQL; MySQL the bare text, hexadecimal digits for bytes, and SQL whose
quotes are escaped for what stood between parentheses.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from dataclasses import replace
from decimal import Decimal

from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import BINARIES, Column
from cdcsync_spark.wire.sql.column.column_types import Unpredictable
from cdcsync_spark.wire.sql.column.fills import fill
from cdcsync_spark.wire.sql.syntax.tokens import Session, Token, TokenKind, Unreadable, tokenize

#: the time of the statement, whatever that was
STATEMENT_TIME = "CURRENT_TIMESTAMP"
#: what differs from every prediction
OTHER = "?"
_LONGEST = 64
_INSTANTS = frozenset({"datetime", "timestamp"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal", "year", "bit"})
_NOW = re.compile(r"(?:current_timestamp|now)(?:\((\d?)\))?", re.I)
_OPEN, _CLOSE = Token(TokenKind.SYMBOL, "("), Token(TokenKind.SYMBOL, ")")
_HEX = re.compile(r"0x([0-9a-fA-F]*)")


def predicted_default(column: Column, value: Value, session: Session) -> str:
    """The default of a column that a statement of `session` has added with `value` in existing
    rows."""
    if isinstance(value, dt.datetime) and value == _now(column, session):
        return STATEMENT_TIME
    return _shown(column, value)


def catalog_default(column: Column, default: str | None, extra: str, *, mariadb: bool) -> str:
    """`default` and `extra` are `COLUMN_DEFAULT` and `EXTRA` of `information_schema.COLUMNS`."""
    if default is not None and (now := _NOW.fullmatch(default)) and column.type.base in _INSTANTS:
        return STATEMENT_TIME if int(now[1] or 0) == max(column.type.size, 0) else OTHER
    session = Session(0, "utf8mb4", mariadb, connection="utf8mb4")
    sql = mariadb or "DEFAULT_GENERATED" in extra.upper()
    try:
        return _shown(column, fill(column.type, column.nullable, _tokens(column, default, session, sql=sql), session))
    except (Unpredictable, Unreadable, ValueError):
        return OTHER


def _now(column: Column, session: Session) -> Value:
    """None where the time is not in the event."""
    size = max(column.type.size, 0)
    text = f"{STATEMENT_TIME}({size})" if size else STATEMENT_TIME
    try:
        return fill(column.type, True, tokenize(text, replace(session, sql_mode=0, charset="utf8mb4")), session)
    except Unpredictable:
        return None


def _tokens(column: Column, default: str | None, session: Session, *, sql: bool) -> tuple[Token, ...]:
    """The tokens of the text as SQL, or of the bare value."""
    if default is None:
        return ()
    if sql and not session.mariadb:
        return (_OPEN, *tokenize(default.replace("\\'", "'"), session), _CLOSE)
    if sql or column.type.base in _NUMBERS:
        return tokenize(default, session)
    hexadecimal = _HEX.fullmatch(default) if column.type.base in BINARIES else None
    return (Token(TokenKind.LITERAL, f"x'{hexadecimal[1]}'") if hexadecimal else Token(TokenKind.STRING, default),)


def _shown(column: Column, value: Value) -> str:
    """Equal for equal values; a long one as its digest."""
    match value:
        case None:
            text = "NULL"
        case bytes():
            text = (value.rstrip(b"\0") if column.type.base == "binary" else value).hex()
        case Decimal():
            text = f"{value.normalize():f}" if value else "0"
        case float():  # servers show six digits of a FLOAT
            text = f"{value:.6g}" if column.type.base == "float" else repr(value)
        case _:
            text = str(value)
    text = f"{type(value).__name__} {text}"
    return text if len(text) <= _LONGEST else hashlib.sha256(text.encode()).hexdigest()
