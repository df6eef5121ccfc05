"""Statements of the binlog that control transactions: the forms of their text."""

from __future__ import annotations

import re

_NAME = r"(?:`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|\S+)"
SAVEPOINT = re.compile(rf"SAVEPOINT\s+({_NAME})", re.I)
RELEASE = re.compile(rf"RELEASE\s+SAVEPOINT\s+{_NAME}", re.I)
ROLLBACK_TO = re.compile(rf"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?({_NAME})", re.I)
XA = re.compile(r"XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+(.*)", re.I | re.S)


def savepoint_name(name: str) -> str:
    """The servers compare savepoints without case."""
    quote = name[0]
    return (name[1:-1].replace(quote * 2, quote) if quote in '`"' and len(name) > 1 else name).casefold()


def opens_transaction(sql: str) -> bool:
    """MySQL logs CREATE TABLE ... SELECT as `CREATE TABLE ... START TRANSACTION`, rows and an
    XID."""
    return sql.rstrip().upper().endswith("START TRANSACTION")
