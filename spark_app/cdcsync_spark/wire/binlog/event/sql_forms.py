"""Statements of the binlog that control transactions: the forms of their text."""

from __future__ import annotations

import re

from cdcsync_spark.wire.sql.syntax.tokens import Session, TokenKind, Unreadable, tokenize

_NAME = r"(?:`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|\S+)"
SAVEPOINT = re.compile(rf"SAVEPOINT\s+({_NAME})", re.I)
RELEASE = re.compile(rf"RELEASE\s+SAVEPOINT\s+{_NAME}", re.I)
ROLLBACK_TO = re.compile(rf"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?({_NAME})", re.I)
_CREATES, _OPENS = "CREATE TABLE", "START TRANSACTION"
XA = re.compile(r"XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+(.*)", re.I | re.S)


def savepoint_name(name: str) -> str:
    """The servers compare savepoints without case."""
    quote = name[0]
    return (name[1:-1].replace(quote * 2, quote) if quote in '`"' and len(name) > 1 else name).casefold()


def opens_transaction(sql: str, session: Session) -> bool:
    """MySQL logs CREATE TABLE ... SELECT as `CREATE TABLE ... START TRANSACTION`, rows and an XID.
    Every other statement may end with these words, in a body or a comment."""
    text = sql.strip().upper()
    if session.mariadb or not text.endswith(_OPENS):
        return False
    try:
        words = [t.text.upper() if t.kind is TokenKind.WORD else "" for t in tokenize(sql, session)]
    except Unreadable:
        return text.startswith(_CREATES)
    return words[:2] == _CREATES.split() and words[-2:] == _OPENS.split()
