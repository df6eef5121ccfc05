"""Facts of the binlog to whole transactions, and to the tables that must stop. Pure but for the
spool.

Theory of operation. Rows are kept until their transaction ends, because only then is it known which
transaction they belong to: a table whose position covers it (its snapshot's LOW, or its last
commit) drops its rows, so that rows of an older definition of the table are never decoded.

A statement that changes a definition in a way that is followed is a step: the reader ends a batch
before its transaction and after it (`cuts`, `stepped`), so that a batch has rows of one definition.

What stops a table (R1, R9, R10): a statement that may change it and is not followed, DML in
statement format, an event that cannot be used. A stopped table keeps everything before the
transaction that stopped it; the other tables flow on. An incident stops all of them.

What an XA PREPARE prepared counts at its XA COMMIT (`prepared`). A commit whose PREPARE was not
read asks for it by `PrepareNeeded` and changes nothing; the transaction is reread after `learn`.

Memory is bounded by `size`, which counts all that is kept; a transaction without captured rows
leaves its GTID only, and those are joined to a set, thousands at a time.

The reader's offset never goes back: with GTIDs the server begins a dump at the beginning of a file,
and what is skipped there is in the set, so everything before the furthest offset stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, LogOffset, Position, TransactionId
from cdcsync_core.tables.schema_change import Emptied, Followed
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.known_reach import KnownReach, Reach
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.plain_transactions import TRANSACTION_BYTES, PlainTransactions
from cdcsync_spark.binlog.assembly.prepared import PreparedTransactions
from cdcsync_spark.binlog.assembly.read_gtids import ReadGtids
from cdcsync_spark.binlog.assembly.read_witnesses import witnesses_since
from cdcsync_spark.binlog.assembly.sealed import (
    KeptRows,
    PrepareNeeded,
    ReachNeeded,
    SealedTransactions,
    TableStop,
    begun,
)
from cdcsync_spark.binlog.assembly.spool import EVENT_BYTES, Spool, Spooled
from cdcsync_spark.binlog.assembly.temporary_tables import TemporaryTables
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.binlog.schema.stop_reasons import incident_error, statement_error, xa_error
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.images.cut_images import as_captured
from cdcsync_spark.wire.sql.row_changes.dml import Dml
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
        self._definitions = definitions
        self._spool = spool
        self._gtids_at_once = gtids_at_once
        self._ahead = {t: p for t, p in ahead.items() if not start.includes(p)}
        self._stopped: set[TableId] = set()
        self._reach = KnownReach()
        self.temporary = TemporaryTables()
        self._prepared = PreparedTransactions(spool)
        self._sealed_at = start
        self._witnesses = witnesses_since(start)
        #: grows with each progress of the position, and with each confirmation of the same one
        self.progress_count = 0
        #: the transactions so far that change a table of ours, or stop one
        self.changes = 0
        #: whether the last fact was a heartbeat: the server has nothing else to send
        self.waits = False
        self._reset()

    def _reset(self) -> None:
        self._at: LogOffset | None = self._sealed_at.at
        self._gtid_pos, self._created = begun(self._sealed_at)
        self._gtids = ReadGtids(self._gtids_at_once)
        self._timestamp: float | None = None
        self._transactions = TransactionIds()
        self._committed_at: list[float | None] = []
        self._rows: dict[TableId, list[KeptRows]] = {}
        self._stops: dict[TableId, TableStop] = {}
        self._steps: dict[TableId, SchemaStep] = {}
        self._left: facts.FileLeft | None = None
        self._open = OpenTransaction()
        #: memory of what is kept since the last batch, in bytes: events, and Python's share of each
        self.size = 0
        self.moved = False

    # -- state for the reader

    def wanted(self, table: TableId) -> bool:
        return table in self._definitions and table not in self._stopped

    @property
    def position(self) -> Position:
        """After the last whole transaction: where a reader goes on after a lost connection."""
        if isinstance(self._sealed_at, FilePosition):
            return self._place(self._at) if self._at else self._sealed_at
        anchor = Anchor(self._at, self._created) if self._at and self._created else self._sealed_at.anchor
        return GtidPosition(self._gtids.added_to(self._sealed_at.gtids), self._at, anchor, self._witnesses.witnesses)

    def _place(self, at: LogOffset) -> FilePosition:
        witnesses, gtid_pos = self._witnesses, MariaDbGtidPos.parse(self._gtid_pos)
        return FilePosition(at, gtid_pos, self._created, witnesses.witnesses, witnesses.others)

    def learn_state(self, state: MariaDbGtidPos) -> None:
        """The last GTIDs of all servers that wrote up to `position`."""
        self._witnesses.learn(state)

    @property
    def at(self) -> LogOffset | None:
        """The offset of `position`, cheaper than all of it where there are GTIDs."""
        return self._at

    def abandon(self) -> None:
        """Drops the transaction that is being read: the connection is lost and it will come
        again."""
        self._open = OpenTransaction()
        self.temporary.go_back()
        self._spool.rotate()

    def seal(self) -> SealedTransactions:
        """All complete transactions; one that is still being read goes to a later batch."""
        end = self.position
        sealed = SealedTransactions(
            self._sealed_at,
            end,
            self._timestamp,
            self._transactions,
            self._committed_at,
            self._rows,
            self._stops,
            self._left,
            self._steps,
        )
        self._ahead = {t: p for t, p in self._ahead.items() if not end.includes(p)}
        self._sealed_at = end
        self._spool.rotate()
        still_open = self._open
        self._reset()
        self._open = still_open
        return sealed

    # -- facts

    def feed(self, fact: facts.Fact) -> None:
        """Raises CdcError for what stops all tables."""
        _READERS[type(fact)](self, fact)

    def _row_event(self, event: facts.RowsEvent) -> None:
        self._open.add(event, self._spool)
        self.size += event.size + EVENT_BYTES

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

    def _end(self, end: facts.TransactionEnd) -> None:
        self._sealed_at.covers(end.id)  # raises for a transaction of the other kind, before any of it is kept
        self._check_prepared(self._open.ended, end.id)
        self._check_reach(self._open, end.id)
        self.temporary.settle()
        done, self._open = self._open, OpenTransaction()
        if done.prepared is None:
            self._commit(done, end.id, end.timestamp)
        else:
            self._prepared.hold(done.prepared, done)
        self._pass(end.id, end)

    def _pass(self, transaction: TransactionId, end: facts.TransactionEnd | facts.TransactionRollback) -> None:
        self._gtids.add(transaction.gtid)
        self._witnesses.add(transaction, end.timestamp)
        self._progress(transaction.end, end.timestamp)
        self._gtid_pos = end.gtid_pos

    @property
    def ahead(self) -> Mapping[TableId, Position]:
        """The positions of tables that are beyond what is read."""
        return self._ahead

    def takes(self, sources: Iterable[str | None]) -> bool:
        """Whether transactions with GTIDs of these sources (None: without) are of our kind."""
        return isinstance(self._sealed_at, FilePosition) or None not in sources

    def take_plain(self, plain: PlainTransactions) -> None:
        """As the facts of each of them: their rows, and their ends."""
        self._spool.account(plain.spooled)
        self._open, self.waits = OpenTransaction(), False
        for table, block in plain.blocks(first=len(self._transactions)):
            if not block.map.described:
                self._definitions.note_undescribed(table)
            self._rows.setdefault(table, []).append((int(block.transactions[-1]), block))
        self.changes += plain.add_to(self._transactions, self._committed_at)
        self.size += plain.size
        self._gtids.join(plain.gtids)
        if plain.stretch.domains is not None or isinstance(self._sealed_at, GtidPosition):
            self._witnesses.add_all(plain.witnesses())
        self._progress(plain.end, plain.timestamp)
        self.progress_count += plain.count - 1
        self._gtid_pos = plain.gtid_pos

    def _commit(self, done: OpenTransaction, transaction: TransactionId, committed_at: float | None) -> None:
        """What an XA COMMIT commits is a part of its transaction, which has no rows of its own."""
        prepared = [part for end in done.ended for part in self._end_prepared(end, transaction)]
        self.size += sum(part.size for part in prepared)
        for statement in done.statements:
            self._reach.forget(statement)
        for statement in [s for p in prepared for s in p.statements] + done.statements:
            self._apply_statement(SchemaStep(statement, transaction, committed_at))
        self._keep_rows([item for part in (*prepared, done) for item in part.rows], transaction, committed_at)

    def _rollback(self, rollback: facts.TransactionRollback) -> None:
        """Temporary tables stay."""
        self.temporary.settle()
        self._open = OpenTransaction()
        if rollback.id is not None:
            self._pass(rollback.id, rollback)

    def begin_file(self, created: int) -> None:
        """`created`: when the current file was begun (seconds since 1970), from its first event."""
        self._created = created

    def _on_progress(self, progress: facts.Progress) -> None:
        self._progress(progress.at, progress.timestamp)
        self.waits = progress.waits
        if progress.gtid_pos is not None:
            self._gtid_pos = progress.gtid_pos

    def _leave(self, left: facts.FileLeft) -> None:
        """The reader has sealed everything before."""
        self._left = left
        self.moved = True

    def _progress(self, at: LogOffset, timestamp: float | None) -> None:
        if self._at is None or at.covers(self._at):
            if self._at is not None and self._at.file != at.file:
                self._created = 0
            self._at = at
        self._timestamp = timestamp or self._timestamp
        self.moved = True
        self.progress_count += 1

    def _keep_rows(self, rows: list[Spooled], transaction: TransactionId, committed_at: float | None) -> None:
        index = len(self._transactions)
        kept: TableId | None = None
        for item in rows:
            table = item.head.table
            if (self._stopped and table in self._stopped) or (self._ahead and self._has(table, transaction)):
                continue
            if item.head.defect is not None:
                item = item._replace(head=as_captured(item.head, self._definitions[table]))
            defect = item.head.defect or self._beside_step(table)
            if defect is not None:
                self._stop(table, defect)
                continue
            if not item.head.map.described:
                self._definitions.note_undescribed(table)
            if table is not kept:
                kept, found = table, self._rows.setdefault(table, [])
            found.append((index, item))
        if kept is not None:
            self._transactions.append(transaction)
            self._committed_at.append(committed_at)
            self.size += TRANSACTION_BYTES
            self.changes += 1

    def _beside_step(self, table: TableId) -> CdcError | None:
        """Rows of the transaction that changes their table: which definition they have is not
        known."""
        step = self._steps.get(table)
        return None if step is None else statement_error(step.statement, table)

    def _has(self, table: TableId, transaction: TransactionId) -> bool:
        ahead = self._ahead.get(table)
        return ahead is not None and ahead.covers(transaction)

    # -- stops

    def _stop(self, table: TableId, error: CdcError) -> None:
        """`position` is still before the current transaction, none of whose rows are kept yet for
        this table."""
        index = len(self._transactions)
        self._rows[table] = [r for r in self._rows.get(table, []) if r[0] != index]
        self._steps.pop(table, None)
        self._stopped.add(table)
        self.changes += 1
        self._stops[table] = TableStop(error, self.position)

    def refuse(self, table: TableId, error: CdcError) -> None:
        """Stops the table where the reader stands; nothing is being read."""
        if self.wanted(table):
            self._stop(table, error)
            self.moved = True

    def _flowing(self, transaction: TransactionId) -> list[TableId]:
        return [t for t in self._definitions if t not in self._stopped and not self._has(t, transaction)]

    # -- statements

    def cuts(self, fact: facts.Fact) -> bool:
        """Whether a batch ends before the fact: a file that a crash may have ended, or a
        transaction that changes a definition (R9)."""
        if type(fact) is not facts.TransactionEnd:
            return type(fact) is facts.FileLeft
        return bool(self._open.statements) and any(
            isinstance(self._definitions.meaning(table, statement), (Followed, Emptied))
            for statement in self._open.statements
            if self._reach.fault(statement) != ""
            for table in self._flowing(fact.id)
        )

    @property
    def stepped(self) -> bool:
        """Whether the last transaction has changed a definition, so that a batch ends after it."""
        return bool(self._steps)

    def _apply_statement(self, step: SchemaStep) -> None:
        """For each table that it may change: another definition, or a stop."""
        fault = self._reach.fault(step.statement)
        for table in self._flowing(step.transaction):
            lock = self._reach.lock(step.statement, table)
            if fault == "" and lock is not None:
                self._stop(table, lock)
                continue
            if not self._reach.reaches(step.statement, table):
                continue
            found = self._definitions.meaning(table, step.statement, fault)
            if isinstance(found, CdcError):
                self._stop(table, found)
            elif found is not None:
                self._follow(table, found, step)

    def _follow(self, table: TableId, found: Followed | Emptied, step: SchemaStep) -> None:
        """Alone in its batch: the rows before it were sealed."""
        if self._rows.get(table) or table in self._steps:
            self._stop(table, statement_error(step.statement, table))
            return
        self._definitions.advance(table, found)
        self._steps[table] = step
        self.changes += 1

    # -- changes in statement format

    def learn_reach(self, dml: Dml, reach: Reach) -> None:
        """The answer to `ReachNeeded`, about changes like this."""
        self._reach.learn(dml, reach)

    def _check_reach(self, done: OpenTransaction, transaction: TransactionId) -> None:
        """Raises ReachNeeded while everything is still as it was. What was prepared (XA) was
        written at another time: it stops."""
        for statement in done.statements if done.prepared is None else ():
            dml = self._reach.unknown(statement)
            if dml is not None and self._flowing(transaction):
                raise ReachNeeded(dml, transaction.end)

    # -- XA

    def learn(self, xid: str, prepared: OpenTransaction | str) -> None:
        """The answer to `PrepareNeeded`; a text says why there is none, which stops the tables at
        the commit."""
        self._prepared.learn(xid, prepared)

    def _check_prepared(self, ended: list[facts.XaEnd], transaction: TransactionId) -> None:
        """Raises PrepareNeeded while everything is still as it was."""
        for end in ended:
            if end.committed and end.xid not in self._prepared and self._flowing(transaction):
                raise PrepareNeeded(end.xid, transaction.end)

    def _end_prepared(self, end: facts.XaEnd, transaction: TransactionId) -> list[OpenTransaction]:
        """The prepared transaction that counts now; it is no longer held."""
        found = self._prepared.take(end.xid)
        if isinstance(found, str) and end.committed:
            for table in self._flowing(transaction):
                self._stop(table, xa_error(end.xid, found, table))
        return [found] if isinstance(found, OpenTransaction) and end.committed else []


_READERS: dict[type, Callable[[TransactionAssembler, Any], None]] = {
    facts.RowsEvent: TransactionAssembler._row_event,
    facts.TransactionBegin: TransactionAssembler._begin,
    facts.TransactionEnd: TransactionAssembler._end,
    facts.TransactionRollback: TransactionAssembler._rollback,
    Statement: TransactionAssembler._statement,
    facts.Progress: TransactionAssembler._on_progress,
    facts.FileLeft: TransactionAssembler._leave,
    facts.Savepoint: lambda assembler, savepoint: assembler._open.set_savepoint(savepoint),
    facts.RollbackTo: lambda assembler, rollback: assembler._open.roll_back_to(rollback),
    facts.XaPrepare: TransactionAssembler._xa_prepare,
    facts.XaEnd: TransactionAssembler._xa_end,
    facts.ServerStarted: lambda assembler, started: assembler.temporary.end_sessions(started.server),
    facts.Incident: TransactionAssembler._incident,
}
