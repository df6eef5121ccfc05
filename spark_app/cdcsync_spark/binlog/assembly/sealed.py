"""What the assembler of transactions hands over, and what it asks for before it can go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import FilePosition, LogOffset, Position
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.spool import Spooled
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.wire.binlog.facts import FileLeft
from cdcsync_spark.wire.binlog.rows_block import RowsBlock
from cdcsync_spark.wire.sql.row_changes.dml import Dml

#: an event with the index of its transaction, or those of many with that of the last one
KeptRows = tuple[int, Spooled | RowsBlock]


@dataclass(frozen=True)
class TableStop:
    """Why a table stops, and where the reader stood before the transaction that stopped it."""

    error: CdcError
    upto: Position


@dataclass(frozen=True)
class SealedTransactions:
    """Whole transactions between two positions. `rows` holds per table (index into `transactions`,
    event).

    `transactions` lists only those with rows that are kept, `committed_at` their seconds. `left` is
    the file before the first of them, whose end was not seen. A table in `steps` has no rows here:
    the step is the last transaction before `end`.
    """

    start: Position
    end: Position
    timestamp: float | None
    transactions: TransactionIds
    committed_at: list[float | None]
    rows: dict[TableId, list[KeptRows]]
    stops: dict[TableId, TableStop]
    left: FileLeft | None = None
    steps: dict[TableId, SchemaStep] = field(default_factory=dict)


class ReachNeeded(Exception):
    """The transaction that ends at `end` has a change in statement format: can it reach a captured
    table?"""

    def __init__(self, dml: Dml, end: LogOffset) -> None:
        super().__init__(dml)
        self.dml, self.end = dml, end


class PrepareNeeded(Exception):
    """The transaction that ends at `end` commits the XA transaction `xid`, whose PREPARE this
    reader has not read."""

    def __init__(self, xid: str, end: LogOffset) -> None:
        super().__init__(xid)
        self.xid, self.end = xid, end


def begun(position: Position) -> tuple[str, int]:
    """What a position knows of its own offset: MariaDB's GTID position, when its file was begun."""
    if isinstance(position, FilePosition):
        return str(position.gtid_pos), position.file_created_at
    return "", position.anchor.file_created_at if position.anchor and position.anchor.at == position.at else 0
