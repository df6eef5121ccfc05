"""A statement as the binlog has it: the fact that the readers of this folder start from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cdcsync_spark.wire.sql.syntax.reader import TableName
from cdcsync_spark.wire.sql.syntax.tokens import UNKNOWN_SESSION, Session


class Thread(NamedTuple):
    """The session that ran a statement: its number on the server `server`.

    `specific` is the event's mark LOG_EVENT_THREAD_SPECIFIC_F: the session opened a temporary table
    or called CONNECTION_ID(), in this statement or earlier in the same call of a procedure. Servers
    also mark every DROP TABLE.
    """

    server: int
    number: int
    specific: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL in the binlog that is not about transactions: DDL, administration, or DML in statement
    format.

    `database` is the default database. Characters that could not be decoded are U+FFFD. `session`
    says how the text was read. `temporary` are the temporary tables of the session at that place;
    with `in_doubt`, it may have others, so that a table in the statement need not be the base
    table.
    """

    database: str
    sql: str
    session: Session = UNKNOWN_SESSION
    thread: Thread | None = field(default=None, compare=False)
    temporary: frozenset[TableName] = field(default=frozenset(), compare=False)
    in_doubt: bool = field(default=False, compare=False)
