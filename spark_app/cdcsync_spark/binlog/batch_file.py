"""Sealed transactions to Arrow files, table by table, in bounded memory.

A table whose rows cannot be decoded exactly, or contradict the definition that was predicted for
them, stops; none of its rows of this batch are used, because
its position must not pass changes that it lacks. The error names the end of the transaction that
the rows are of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdcsync_core.errors import CdcError, DecodeError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.sealed import KeptRows, SealedTransactions, TableStop
from cdcsync_spark.binlog.assembly.spool import Spooled, disk_error
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import changes_schema
from cdcsync_spark.wire.binlog.facts import RowsEvent, TableMap
from cdcsync_spark.wire.binlog.rows import batches, block_batches
from cdcsync_spark.wire.binlog.rows_block import RowsBlock, blocks_of

#: bytes of the binlog that are decoded at once; their columns are made in smaller parts
_PIECE_BYTES = 8 << 20
_PIECE_EVENTS = 20_000
#: intervals of each source's GTIDs that a table's part of a batch has at most
_MOST_INTERVALS = 4


@dataclass
class BatchWriter:
    """Writes the batches of one reader into `folder`, under names that are not used twice. Without
    `befores`, before images that a fold by key does not need are left out, except for a declared
    key, which only they show to be taken twice."""

    folder: Path
    definitions: Definitions
    decoder: Decoder = Decoder.VECTORIZED
    befores: bool = True

    def __post_init__(self) -> None:
        self._numbers = count()

    def write(self, sealed: SealedTransactions) -> BinlogBatch:
        """Raises CdcError where the disk fails; a table's own failure is in its
        `TableBatch.stop`."""
        number = next(self._numbers)
        transactions = ""
        batches = []
        try:
            if sealed.transactions:
                transactions = str(self.folder / f"{number}.transactions")
                write_transactions(transactions, Transactions(sealed.transactions, sealed.committed_at))
            for index, table in enumerate(sorted(sealed.rows.keys() | sealed.stops.keys() | sealed.steps.keys())):
                path = self.folder / f"{number}-{index}.arrow"
                batches.append(self._table(table, sealed, path))
        except OSError as e:
            raise disk_error(e, str(self.folder)) from e
        return BinlogBatch(sealed.start, sealed.end, sealed.timestamp, transactions, tuple(batches), left=sealed.left)

    def _table(self, table: TableId, sealed: SealedTransactions, path: Path) -> TableBatch:
        stop, step = sealed.stops.get(table), sealed.steps.get(table)
        rows = sealed.rows.get(table, [])
        images, nulled, proved, undescribed = 0, 0, False, False
        try:
            if rows:
                undescribed = any(not _map_of(item).described for _, item in rows)
                proved = self._prove(table, _map_of(rows[0][1]))
                images, nulled = self._rows(self.definitions[table], rows, sealed.transactions, path)
        except CdcError as e:
            path.unlink(missing_ok=True)
            stop, images, nulled, proved = TableStop(e, sealed.start), 0, 0, False
        upto, error = (stop.upto, stop.error) if stop else (sealed.end, None)
        file, undescribed = str(path) if images else "", bool(images) and undescribed
        changing = _changing(rows, sealed.transactions) if images else GtidSet()
        return TableBatch(str(table), file, images, nulled, upto, error, step, proved, undescribed, changing)

    def _prove(self, table: TableId, first: TableMap) -> bool:
        """Whether the rows were to prove their definition, and have; raises SchemaChangeRefused
        where they disprove it."""
        if not self.definitions.is_unproved(table):
            return False
        self.definitions.prove(table, first)
        return not self.definitions.is_unproved(table)

    def _rows(self, table: Capture, rows: list[KeptRows], transactions: TransactionIds, path: Path) -> tuple[int, int]:
        schema = changes_schema(captured_schema(table))
        images = nulled = 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for piece in _pieces(rows):
                try:
                    for decoded in block_batches(table, piece, self.decoder, befores=self._befores(table)):
                        writer.write_batch(decoded.batch)
                        images += decoded.images
                        nulled += decoded.nulled
                except DecodeError as e:
                    at = transactions[self._first_bad(table, piece)].end
                    raise e.placed(position=str(at)) from None
        return images, nulled

    def _befores(self, table: Capture) -> bool:
        return self.befores or table.declared

    def _first_bad(self, table: Capture, piece: list[RowsBlock]) -> int:
        """The transaction of the first event that cannot be decoded, not all of which can: found by
        halves."""
        events = [event for block in piece for event in block.events()]
        low, high = 0, len(events)
        while high - low > 1:
            middle = (low + high) // 2
            if self._decodes(table, events[low:middle]):
                low = middle
            else:
                high = middle
        return int(np.concatenate([block.transactions for block in piece])[low])

    def _decodes(self, table: Capture, events: list[RowsEvent]) -> bool:
        try:
            for _ in batches(table, events, [0] * len(events), self.decoder, befores=self._befores(table)):
                continue
        except DecodeError:
            return False
        return True


def _map_of(item: Spooled | RowsBlock) -> TableMap:
    return item.map if isinstance(item, RowsBlock) else item.head.map


def _changing(rows: list[KeptRows], transactions: TransactionIds) -> GtidSet:
    """Covers the transactions that the rows are of."""
    indexes = [item.transactions if isinstance(item, RowsBlock) else np.array([at], np.int32) for at, item in rows]
    return transactions.gtids(np.unique(np.concatenate(indexes)), _MOST_INTERVALS)


def _pieces(rows: list[KeptRows]) -> Iterator[list[RowsBlock]]:
    """Pieces of about the same size: a small one costs as many steps as a large one."""
    sizes = np.cumsum([item.size for _, item in rows])
    counts = np.cumsum([len(item.sizes) if isinstance(item, RowsBlock) else 1 for _, item in rows])
    total = int(sizes[-1])
    enough = total // (total // _PIECE_BYTES + 1) + 1
    at = size = count = 0
    while at < len(rows):
        full = min(int(np.searchsorted(sizes, size + enough)), int(np.searchsorted(counts, count + _PIECE_EVENTS)))
        last = min(full, len(rows) - 1)
        yield list(_blocks(rows[at : last + 1]))
        at, size, count = last + 1, int(sizes[last]), int(counts[last])


def _blocks(rows: list[KeptRows]) -> Iterator[RowsBlock]:
    """Single events that follow one another are gathered into blocks."""
    for kind, group in groupby(rows, lambda row: type(row[1])):
        run = list(group)
        if kind is RowsBlock:
            yield from (item for _, item in run if isinstance(item, RowsBlock))
        else:
            events = [item.event() for _, item in run if isinstance(item, Spooled)]
            yield from blocks_of(events, [index for index, _ in run])
