"""A statement as the binlog has it: the fact that the readers of this folder start from."""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_spark.wire.sql.tokens import UNKNOWN_SESSION, Session


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL in the binlog that is not about transactions: DDL, administration, or DML in statement
    format.

    `database` is the default database. Characters that could not be decoded are U+FFFD. `session`
    says how the text was read.
    """

    database: str
    sql: str
    session: Session = UNKNOWN_SESSION
