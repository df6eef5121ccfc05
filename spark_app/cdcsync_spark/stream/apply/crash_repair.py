"""Rows that a crash of the source may have lost, reread from the source.

A server that does not flush its redo log at every commit (`innodb_flush_log_at_trx_commit` other
than 1) forgets its last transactions when it crashes, and its binlog keeps them. A copy that
follows the binlog then keeps rows that the source does not have. The settings at the time of the
crash are not known afterwards, so every file that the server did not end counts.

Why the repaired copy is right. Let Q be the position behind the crashed file. The lost transactions
are in the last part of the binlog before Q (`binlog.search.crash_tail`), so every row that the
source lost has one of the keys that were changed there. All that lies before Q and was not lost is
visible since the server takes connections again. So a SELECT of these keys reads a state that has
everything before Q, as a split reads one that has everything before LOW (R1): the rows that it
returns are upserted, the keys without a row are deleted, and the binlog is applied from Q; per key
the last image wins (R2). The position moves to Q in the commit of the last piece, HIGH is as after
a wave: until then the table is `CatchingUp`. After a crash of this program before that commit the
position is still before Q, and the next run finds the same end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import Anchor, FilePosition, LogOffset, Position
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.search.crash_tail import TailReader
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind, changes_schema
from cdcsync_spark.snapshot.splits.split_read import KeyReader
from cdcsync_spark.wire.binlog.facts import FileLeft


@dataclass(frozen=True)
class Piece:
    """Some of a table's keys as the source has them: `changes` deletes them all, then inserts the
    rows that are there. `high` covers everything that the rows may contain; `last` is the table's
    last piece."""

    changes: pa.Table
    high: LogOffset
    nulled: int
    last: bool


class Repair(Protocol):
    """What the applier needs to repair its tables."""

    def keys(self, left: FileLeft, tables: Mapping[TableId, Capture]) -> Mapping[TableId, pa.Table | CdcError]:
        """The keys that the source may have lost, per table that has some."""
        ...

    def passed(self, before: Position, place: LogOffset) -> Position:
        """The position at the beginning of the next file, where `before` is the one at the end of
        the crashed file."""
        ...

    def pieces(self, table: Capture, keys: pa.Table, passed: Position) -> Iterator[Piece]:
        """Raises CdcError."""
        ...


@dataclass(frozen=True)
class SourceRepair:
    """Reads from `source`, whose binlog is the one that `lineage` ends with; a SELECT takes
    `max_seconds` at most, and `piece_keys` keys are read and committed at a time."""

    source: Source
    lineage: Lineage
    tail: TailReader
    max_seconds: int
    decoder: Decoder = Decoder.VECTORIZED
    piece_keys: int = 20_000

    def keys(self, left: FileLeft, tables: Mapping[TableId, Capture]) -> Mapping[TableId, pa.Table | CdcError]:
        return self.tail.keys(left, tables)

    def passed(self, before: Position, place: LogOffset) -> Position:
        created = file_created_at(self.source, place.file, self.lineage.newest)
        if isinstance(before, FilePosition):
            return FilePosition(place, before.gtid_pos, created)
        return replace(before, at=place, anchor=Anchor(place, created))

    def pieces(self, table: Capture, keys: pa.Table, passed: Position) -> Iterator[Piece]:
        for start in range(0, keys.num_rows, self.piece_keys):
            part = keys.slice(start, self.piece_keys)
            reader = KeyReader(
                self.source, self.lineage, table, Split(), passed, self.max_seconds, self.decoder, keys=part
            )
            rows = pa.Table.from_batches(list(reader.batches()), schema=captured_schema(table))
            with open_session(self.source) as session:
                place = high(session.proved(self.lineage, passed), session.facts)
            last = start + self.piece_keys >= keys.num_rows
            yield Piece(as_changes(table, part, rows), place, reader.nulled, last=last)


def as_changes(table: Capture, keys: pa.Table, rows: pa.Table) -> pa.Table:
    """All keys deleted, then the rows inserted, in the form of a batch of changes.

    The server may give the row of another spelling of a key, and give it twice: folded it counts
    once, under its own bytes.
    """
    schema = changes_schema(captured_schema(table))
    deleted = {name: keys[name] for name in table.key}
    return pa.concat_tables(
        [_changes(schema, deleted, keys.num_rows, ChangeKind.DELETE), _changes(schema, rows, rows.num_rows)]
    )


def _changes(
    schema: pa.Schema,
    columns: Mapping[str, pa.ChunkedArray] | pa.Table,
    count: int,
    kind: ChangeKind = ChangeKind.INSERT,
) -> pa.Table:
    names = columns.column_names if isinstance(columns, pa.Table) else columns
    constant = {KIND: kind.value, TRANSACTION: 0}
    arrays = [columns[f.name] if f.name in names else pa.array([constant.get(f.name)] * count, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
