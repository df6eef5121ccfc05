"""Facts of the binlog to whole transactions, and to the tables that must stop. Pure but for the
spool.

Theory of operation. Rows are kept until their transaction ends, because only then is it known which
transaction they belong to; then the `RowKeeper` takes them for the tables that lack it, the
`StatementApplier` the statements, and the `PositionKeeper` passes it.

What stops a table (R1, R9, R10): a statement that may change it and is not followed, DML in
statement format, an event that cannot be used. An incident stops all tables.

What an XA PREPARE prepared counts at its XA COMMIT (`prepared`). A commit whose PREPARE was not
read asks for it by `PrepareNeeded` and changes nothing; the transaction is reread after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import Position, TransactionId
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.plain_transactions import PlainTransactions
from cdcsync_spark.binlog.assembly.position_keeper import PositionKeeper
from cdcsync_spark.binlog.assembly.prepared import PreparedTransactions
from cdcsync_spark.binlog.assembly.row_keeper import RowKeeper
from cdcsync_spark.binlog.assembly.sealed import PrepareNeeded, SealedTransactions
from cdcsync_spark.binlog.assembly.spool import EVENT_BYTES, Spool
from cdcsync_spark.binlog.assembly.statements import StatementApplier
from cdcsync_spark.binlog.assembly.temporary_tables import TemporaryTables
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.binlog.schema.stop_reasons import incident_error, xa_error
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.sql.syntax.text import Statement


class TransactionAssembler:
    """Collects from `start`, which all `tables` have; `ahead` are positions of tables beyond it."""

    def __init__(
        self,
        definitions: Definitions,
        start: Position,
        ahead: Mapping[TableId, Position],
        spool: Spool,
        gtids_at_once: int = 4096,
    ) -> None:
        self._spool = spool
        self.reached = PositionKeeper(start, gtids_at_once)
        self.rows = RowKeeper(definitions, ahead, self.reached)
        self.statements = StatementApplier(definitions, self.rows)
        self.temporary = TemporaryTables()
        self.prepared = PreparedTransactions(spool)
        self._left: facts.FileLeft | None = None
        self._open = OpenTransaction()
        #: whether the last fact was a heartbeat: the server has nothing else to send
        self.waits = False

    def abandon(self) -> None:
        """Drops the transaction that is being read: the connection is lost and it will come
        again."""
        self._open = OpenTransaction()
        self.temporary.go_back()
        self._spool.rotate()

    def seal(self) -> SealedTransactions:
        """All complete transactions; one that is still being read goes to a later batch."""
        sealed, self._left = self.rows.seal(self._left), None
        self.reached.begin_batch(sealed.end)
        self._spool.rotate()
        return sealed

    def refuse(self, table: TableId, error: CdcError) -> None:
        """Stops the table where the reader stands; nothing is being read."""
        if self.rows.wanted(table):
            self.rows.stop(table, error)
            self.reached.moved = True

    def cuts(self, fact: facts.Fact) -> bool:
        """Whether a batch ends before the fact: a file that a crash may have ended, or a
        transaction that changes a definition (R9)."""
        if type(fact) is not facts.TransactionEnd:
            return type(fact) is facts.FileLeft
        return self.statements.cuts(self._open.statements, fact.id)

    def take_plain(self, plain: PlainTransactions) -> None:
        """As the facts of each of them: their rows, and their ends."""
        self._spool.account(plain.spooled)
        self._open, self.waits = OpenTransaction(), False
        self.rows.keep_plain(plain)
        self.reached.pass_plain(plain)

    # -- facts

    def feed(self, fact: facts.Fact) -> None:
        """Raises CdcError for what stops all tables."""
        _READERS[type(fact)](self, fact)

    def _row_event(self, event: facts.RowsEvent) -> None:
        self._open.add(event, self._spool)
        self.rows.size += event.size + EVENT_BYTES

    def _begin(self, _: facts.TransactionBegin) -> None:
        self._open = OpenTransaction()
        self.waits = False

    def _statement(self, statement: Statement) -> None:
        judged = self.temporary.judge(statement)
        if judged is not None:
            self._open.statements.append(judged)

    def _xa_prepare(self, prepare: facts.XaPrepare) -> None:
        self._open.prepared = prepare.xid

    def _xa_end(self, end: facts.XaEnd) -> None:
        self._open.ended.append(end)

    def _incident(self, incident: facts.Incident) -> None:
        raise incident_error(incident.text)

    def _progress(self, progress: facts.Progress) -> None:
        self.reached.progress(progress)
        self.waits = progress.waits

    def _leave(self, left: facts.FileLeft) -> None:
        """The reader has sealed everything before."""
        self._left = left
        self.reached.moved = True

    def _end(self, end: facts.TransactionEnd) -> None:
        self.reached.start.covers(end.id)  # raises for a transaction of the other kind, before any of it is kept
        self._check_prepared(self._open.ended, end.id)
        if self._open.prepared is None:  # what was prepared was written at another time: it stops
            self.statements.check_reach(self._open.statements, end.id)
        self.temporary.settle()
        done, self._open = self._open, OpenTransaction()
        if done.prepared is None:
            self._commit(done, end.id, end.timestamp)
        else:
            self.prepared.hold(done.prepared, done)
        self.reached.pass_transaction(end.id, end)

    def _commit(self, done: OpenTransaction, transaction: TransactionId, committed_at: float | None) -> None:
        """What an XA COMMIT commits is a part of its transaction, which has no rows of its own."""
        prepared = [part for end in done.ended for part in self._end_prepared(end, transaction)]
        self.rows.size += sum(part.size for part in prepared)
        for statement in done.statements:
            self.statements.forget_reach(statement)
        for statement in [s for p in prepared for s in p.statements] + done.statements:
            self.statements.apply(SchemaStep(statement, transaction, committed_at))
        self.rows.keep([item for part in (*prepared, done) for item in part.rows], transaction, committed_at)

    def _rollback(self, rollback: facts.TransactionRollback) -> None:
        """Temporary tables stay."""
        self.temporary.settle()
        self._open = OpenTransaction()
        if rollback.id is not None:
            self.reached.pass_transaction(rollback.id, rollback)

    # -- XA

    def _check_prepared(self, ended: list[facts.XaEnd], transaction: TransactionId) -> None:
        """Raises PrepareNeeded while everything is still as it was."""
        for end in ended:
            if end.committed and end.xid not in self.prepared and self.rows.flowing(transaction):
                raise PrepareNeeded(end.xid, transaction.end)

    def _end_prepared(self, end: facts.XaEnd, transaction: TransactionId) -> list[OpenTransaction]:
        """The prepared transaction that counts now; it is no longer held."""
        ended = self.prepared.take(end.xid)
        if isinstance(ended, str) and end.committed:
            for table in self.rows.flowing(transaction):
                self.rows.stop(table, xa_error(end.xid, ended, table))
        return [ended] if isinstance(ended, OpenTransaction) and end.committed else []


_READERS: dict[type, Callable[[TransactionAssembler, Any], None]] = {
    facts.RowsEvent: TransactionAssembler._row_event,
    facts.TransactionBegin: TransactionAssembler._begin,
    facts.TransactionEnd: TransactionAssembler._end,
    facts.TransactionRollback: TransactionAssembler._rollback,
    Statement: TransactionAssembler._statement,
    facts.Progress: TransactionAssembler._progress,
    facts.FileLeft: TransactionAssembler._leave,
    facts.Savepoint: lambda assembler, savepoint: assembler._open.set_savepoint(savepoint),
    facts.RollbackTo: lambda assembler, rollback: assembler._open.roll_back_to(rollback),
    facts.XaPrepare: TransactionAssembler._xa_prepare,
    facts.XaEnd: TransactionAssembler._xa_end,
    facts.ServerStarted: lambda assembler, started: assembler.temporary.end_sessions(started.server),
    facts.Incident: TransactionAssembler._incident,
}
