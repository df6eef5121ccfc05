"""What the reader of the binlog hands to the applier: a range of the binlog, table by table, as
files of Arrow on local disk.

Nothing of it crosses the JVM: a `BinlogBatch` is handed over as a line of JSON (`engine.handover`),
the rows lie in Arrow IPC files that both processes of the driver see. A transaction that did not
fit in memory is the same thing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.errors import CdcError, from_json
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.position import Position, TransactionId, position_from_dict, position_to_dict
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.schema.steps import SchemaStep
from cdcsync_spark.wire.binlog.facts import FileLeft

#: the metadata of a file of transactions that names their binlog
_BINLOG = b"binlog"


@dataclass(frozen=True)
class TableBatch:
    """Changes of one table (`database.table`).

    `file` is an Arrow IPC file of `change.changes_schema`, "" where there are no rows; `rows`
    counts the row images of the binlog that it stands for; `upto` is where the reader stood after
    the last transaction of the batch that counts for this table: the batch's end, or where `stop`
    stopped the table. With `step` the part is a change of the table's definition and nothing else.
    `proved`: the rows are the first since such a change, and are described as it was predicted.
    `undescribed`: some of them came without the names of their columns.
    `changing` covers the GTIDs of the transactions that the rows are of.
    """

    table: str
    file: str
    rows: int
    nulled: int
    upto: Position
    stop: CdcError | None = None
    step: SchemaStep | None = None
    proved: bool = False
    undescribed: bool = False
    changing: GtidSet = field(default_factory=GtidSet)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "file": self.file,
            "rows": self.rows,
            "nulled": self.nulled,
            "upto": position_to_dict(self.upto),
            "stop": self.stop.to_json() if self.stop else None,
            "step": self.step.to_dict() if self.step else None,
            "proved": self.proved,
            "undescribed": self.undescribed,
            "changing": str(self.changing),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableBatch:
        stop = from_json(data["stop"]) if data["stop"] else None
        step = SchemaStep.from_dict(data["step"]) if data["step"] else None
        upto, changing = position_from_dict(data["upto"]), GtidSet.parse(data["changing"])
        return cls(**(data | {"upto": upto, "stop": stop, "step": step, "changing": changing}))


@dataclass(frozen=True)
class BinlogBatch:
    """The binlog between the positions `start` and `end`: whole transactions, in order.

    `timestamp` is the commit time of the last one, in unix seconds; None where only heartbeats
    came. `transactions` is an Arrow file with the columns of each (see `read_transactions`), ""
    where there are none. `fatal` ends the run. `full` batches are those of a reader that is behind:
    another one may wait. `left` is the file before the batch whose end was not seen: what it holds
    at its end may be lost on the source. `changes` counts the transactions that change or stop a
    table of ours, from the reader's start to the end of this batch. `appeared` counts what was met
    of tables that are not the run's and might be captured (`binlog.schema.new_tables`).
    """

    start: Position
    end: Position
    timestamp: float | None
    transactions: str
    tables: tuple[TableBatch, ...]
    fatal: CdcError | None = None
    full: bool = False
    left: FileLeft | None = None
    changes: int = 0
    appeared: int = 0

    def to_json(self) -> str:
        return json.dumps(
            {
                "start": position_to_dict(self.start),
                "end": position_to_dict(self.end),
                "timestamp": self.timestamp,
                "transactions": self.transactions,
                "tables": [t.to_dict() for t in self.tables],
                "fatal": self.fatal.to_json() if self.fatal else None,
                "full": self.full,
                "left": [self.left.file, self.left.next] if self.left else None,
                "changes": self.changes,
                "appeared": self.appeared,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> BinlogBatch:
        data = json.loads(text)
        return cls(
            position_from_dict(data["start"]),
            position_from_dict(data["end"]),
            data["timestamp"],
            data["transactions"],
            tuple(TableBatch.from_dict(t) for t in data["tables"]),
            from_json(data["fatal"]) if data["fatal"] else None,
            data["full"],
            FileLeft(*data["left"]) if data["left"] else None,
            data["changes"],
            data["appeared"],
        )


class Transactions(NamedTuple):
    """Columns with one row a transaction: its place and GTID, and when it was committed (seconds
    since 1970, None where the binlog does not say)."""

    ids: Sequence[TransactionId] = ()
    committed_at: Sequence[float | None] = ()

    def covered(self, position: Position) -> npt.NDArray[np.bool_]:
        """Which of them the position covers."""
        ids = self.ids if isinstance(self.ids, TransactionIds) else TransactionIds(self.ids)
        return ids.covered(position)


def write_transactions(path: str, transactions: Transactions) -> None:
    ids = transactions.ids if isinstance(transactions.ids, TransactionIds) else TransactionIds(transactions.ids)
    columns = ids.to_columns() | {"committed_at": pa.array(transactions.committed_at, pa.float64())}
    table = pa.table(columns).replace_schema_metadata({_BINLOG: ids.binlog or ""})
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_transactions(path: str) -> Transactions:
    """The transactions that the `TRANSACTION` column of the batch's files counts."""
    with pa.OSFile(path) as source:
        table = pa.ipc.open_file(source).read_all()
    return Transactions(TransactionIds.of_columns(table, _binlog_of(table)), table["committed_at"].to_pylist())


def _binlog_of(table: pa.Table) -> BinlogId | None:
    return (table.schema.metadata or {}).get(_BINLOG, b"").decode() or None
