"""Whether the stream will stop a table at a statement behind a place of the binlog: a table that
the server no longer has, or has in another form, goes on up to there.

Why it is right: the statements are read as the stream reads them, with the temporary tables of
their sessions, and each with the definition that the ones before it left. The policy follows all
that can be followed, so every other one stops the table at the same statement or at an earlier
one. A change in statement format, and a statement that may be about a temporary table, prove
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import Position, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.assembly.temporary_tables import TemporaryTables
from cdcsync_spark.binlog.dump.dump import facts_behind
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.sql.changes.exclusion import is_dml, touches
from cdcsync_spark.wire.sql.syntax.text import Statement

_FOLLOWS_ALL = FollowPolicy(follow=True)


def stops(table: Capture, statements: Iterable[Statement]) -> bool:
    """Whether the stream stops the table at one of the statements, which come in their order."""
    definitions = Definitions({table.id: table}, {table.id: _FOLLOWS_ALL})
    for statement in statements:
        meant = definitions.meaning(table.id, statement)
        if isinstance(meant, CdcError):
            return True
        if meant is not None:
            definitions.advance(table.id, meant)
    return False


@dataclass(frozen=True)
class CommittedStatement:
    """A statement and the transaction that it ended in."""

    statement: Statement
    transaction: TransactionId


def behind(position: Position, statements: Iterable[CommittedStatement]) -> list[Statement]:
    """The statements that the position does not have."""
    return [s.statement for s in statements if not position.covers(s.transaction)]


def statements_behind(
    source: Source, server: ServerFacts, position: Position, tables: Collection[TableId]
) -> tuple[CommittedStatement, ...]:
    """The DDL from `position` to the end of the server's binlog that certainly is about no
    temporary table and may be about one of `tables`. Raises CdcError as `facts_behind`."""
    committed, opened, temporary = list[CommittedStatement](), list[Statement](), TemporaryTables()
    for fact in facts_behind(source, server.lineage, position, lambda _: False):
        match fact:
            case Statement():
                judged = temporary.judge(fact)
                opened += [judged] if judged is not None and _counts(judged, tables) else []
            case facts.TransactionEnd():
                committed += [CommittedStatement(statement, fact.id) for statement in opened]
                opened = []
                temporary.settle()
            case facts.TransactionRollback():
                opened = []
                temporary.settle()
            case facts.ServerStarted(server=number):
                temporary.end_sessions(number)
    return tuple(committed)


def _counts(statement: Statement, tables: Collection[TableId]) -> bool:
    if statement.in_doubt or is_dml(statement.sql):
        return False
    charset = statement.session.charset
    return any(touches(statement.sql, statement.database, table, charset) for table in tables)
