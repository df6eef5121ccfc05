"""The rows of whole transactions until a batch takes them, the changes of definitions beside them,
and the tables that stopped.

Why it is right: a table whose position covers a transaction (its snapshot's LOW, or its last
commit) drops the transaction's rows, so that rows of an older definition of the table are never
decoded. A stopped table keeps everything before the transaction that stopped it; the others flow
on. Memory is bounded by `size`, which counts all that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import Position, TransactionId
from cdcsync_core.tables.schema_change import Emptied, Followed
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.plain_transactions import TRANSACTION_BYTES, PlainTransactions
from cdcsync_spark.binlog.assembly.position_keeper import PositionKeeper
from cdcsync_spark.binlog.assembly.sealed import KeptRows, SealedTransactions, TableStop
from cdcsync_spark.binlog.assembly.spool import Spooled
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.binlog.schema.stop_reasons import statement_error
from cdcsync_spark.wire.binlog.facts import FileLeft
from cdcsync_spark.wire.binlog.images.cut_images import as_captured


class RowKeeper:
    """`ahead` are positions of tables, some beyond `reached`."""

    def __init__(self, definitions: Definitions, ahead: Mapping[TableId, Position], reached: PositionKeeper) -> None:
        self._definitions = definitions
        self._reached = reached
        #: the positions of tables that are beyond what is read
        self.ahead = {t: p for t, p in ahead.items() if not reached.start.includes(p)}
        self._stopped: set[TableId] = set()
        #: the transactions so far that change a table of ours, or stop one
        self.changes = 0
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._transactions = TransactionIds()
        self._committed_at: list[float | None] = []
        self._rows: dict[TableId, list[KeptRows]] = {}
        self._stops: dict[TableId, TableStop] = {}
        self._steps: dict[TableId, SchemaStep] = {}
        #: memory of what is kept since the last batch, in bytes: events, and Python's share of each
        self.size = 0

    def wanted(self, table: TableId) -> bool:
        return table in self._definitions and table not in self._stopped

    def flowing(self, transaction: TransactionId) -> list[TableId]:
        """The tables that lack the transaction and have not stopped."""
        return [t for t in self._definitions if t not in self._stopped and not self._has(t, transaction)]

    def _has(self, table: TableId, transaction: TransactionId) -> bool:
        ahead = self.ahead.get(table)
        return ahead is not None and ahead.covers(transaction)

    @property
    def stepped(self) -> bool:
        """Whether the last transaction has changed a definition, so that a batch ends after it."""
        return bool(self._steps)

    def seal(self, left: FileLeft | None) -> SealedTransactions:
        """All that was kept up to the position that is reached; `left` is the file before."""
        reached, end = self._reached, self._reached.position
        sealed = SealedTransactions(
            reached.start,
            end,
            reached.timestamp,
            self._transactions,
            self._committed_at,
            self._rows,
            self._stops,
            left,
            self._steps,
        )
        self.ahead = {t: p for t, p in self.ahead.items() if not end.includes(p)}
        self._begin_batch()
        return sealed

    def keep(self, rows: list[Spooled], transaction: TransactionId, committed_at: float | None) -> None:
        """Keeps the rows of a transaction for the tables that lack it."""
        index = len(self._transactions)
        last: TableId | None = None
        for item in rows:
            table = item.head.table
            if (self._stopped and table in self._stopped) or (self.ahead and self._has(table, transaction)):
                continue
            if item.head.defect is not None:
                item = item._replace(head=as_captured(item.head, self._definitions[table]))
            defect = item.head.defect or self._beside_step(table)
            if defect is not None:
                self.stop(table, defect)
                continue
            if not item.head.map.described:
                self._definitions.note_undescribed(table)
            if table is not last:
                last, of_table = table, self._rows.setdefault(table, [])
            of_table.append((index, item))
        if last is not None:
            self._transactions.append(transaction)
            self._committed_at.append(committed_at)
            self.size += TRANSACTION_BYTES
            self.changes += 1

    def keep_plain(self, plain: PlainTransactions) -> None:
        """As `keep` of each of them, whose tables lack them."""
        for table, block in plain.blocks(first=len(self._transactions)):
            if not block.map.described:
                self._definitions.note_undescribed(table)
            self._rows.setdefault(table, []).append((int(block.transactions[-1]), block))
        self.changes += plain.add_to(self._transactions, self._committed_at)
        self.size += plain.size

    def _beside_step(self, table: TableId) -> CdcError | None:
        """Rows of the transaction that changes their table: which definition they have is not
        known."""
        step = self._steps.get(table)
        return None if step is None else statement_error(step.statement, table)

    def stop(self, table: TableId, error: CdcError) -> None:
        """The position is still before the current transaction, none of whose rows are kept yet for
        this table."""
        index = len(self._transactions)
        self._rows[table] = [r for r in self._rows.get(table, []) if r[0] != index]
        self._steps.pop(table, None)
        self._stopped.add(table)
        self.changes += 1
        self._stops[table] = TableStop(error, self._reached.position)

    def follow(self, table: TableId, change: Followed | Emptied, step: SchemaStep) -> None:
        """Alone in its batch: the rows before it were sealed."""
        if self._rows.get(table) or table in self._steps:
            self.stop(table, statement_error(step.statement, table))
            return
        self._definitions.advance(table, change)
        self._steps[table] = step
        self.changes += 1
