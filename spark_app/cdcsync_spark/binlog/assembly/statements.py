"""What statements do to captured tables: another definition, a stop, or nothing.

A statement that changes a definition in a way that is followed is a step: the reader ends a batch
before its transaction and after it (`cuts`, `RowKeeper.stepped`), so that a batch has rows of one
definition. What else may change a table stops it, DML in statement format too (R1, R9, R10); which
tables that can reach is asked by `ReachNeeded`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import TransactionId
from cdcsync_core.tables.schema_change import Emptied, Followed
from cdcsync_spark.binlog.assembly.known_reach import KnownReach, Reach
from cdcsync_spark.binlog.assembly.row_keeper import RowKeeper
from cdcsync_spark.binlog.assembly.sealed import ReachNeeded
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.wire.sql.row_changes.dml import Dml
from cdcsync_spark.wire.sql.syntax.text import Statement


class StatementApplier:
    """Applies statements to the definitions, and to what `rows` keeps."""

    def __init__(self, definitions: Definitions, rows: RowKeeper) -> None:
        self._definitions = definitions
        self._rows = rows
        self._reach = KnownReach()

    def cuts(self, statements: Sequence[Statement], transaction: TransactionId) -> bool:
        """Whether a batch ends before the transaction of these, because it changes a definition
        (R9)."""
        return bool(statements) and any(
            isinstance(self._definitions.meaning(table, statement), (Followed, Emptied))
            for statement in statements
            if self._reach.fault(statement) != ""
            for table in self._rows.flowing(transaction)
        )

    def learn_reach(self, dml: Dml, reach: Reach) -> None:
        """Takes the answer to `ReachNeeded`, about changes like this."""
        self._reach.learn(dml, reach)

    def check_reach(self, statements: Sequence[Statement], transaction: TransactionId) -> None:
        """Raises ReachNeeded, before anything of the transaction is applied."""
        for statement in statements:
            dml = self._reach.unknown(statement)
            if dml is not None and self._rows.flowing(transaction):
                raise ReachNeeded(dml, transaction.end)

    def forget_reach(self, statement: Statement) -> None:
        """Drops the answers that the statement may change."""
        self._reach.forget(statement)

    def apply(self, step: SchemaStep) -> None:
        """Gives each table that the statement may change another definition, or stops it."""
        fault = self._reach.fault(step.statement)
        for table in self._rows.flowing(step.transaction):
            lock = self._reach.lock(step.statement, table)
            if fault == "" and lock is not None:
                self._rows.stop(table, lock)
                continue
            if not self._reach.reaches(step.statement, table):
                continue
            meaning = self._definitions.meaning(table, step.statement, fault)
            if isinstance(meaning, CdcError):
                self._rows.stop(table, meaning)
            elif meaning is not None:
                self._rows.follow(table, meaning, step)
