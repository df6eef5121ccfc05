"""The sources alone, for any PySpark program: one table with typed columns.

    spark.dataSource.register(MySqlSnapshot); spark.dataSource.register(MySqlBinlog)
    low = low_watermark(options)
    rows = spark.read.format("mysql_snapshot").options(**options).load()
    changes = spark.readStream.format("mysql_binlog").options(**options, startPosition=low).load()

`mysql_snapshot` (batch) reads the table in splits of `chunkSize` rows, one Spark partition each.
`mysql_binlog` (stream) gives every change after `startPosition` in the order of the binlog:
`_change_kind` (insert, update_before, update_after, delete), `_position`, then the columns. Rows
and changes fit together as rule R2 says: take LOW first, read the rows, then per key the last image
wins. Offsets are positions, so a query goes on from its checkpoint as long as the server has the
log.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import BinlogId, Lineage
from cdcsync_core.positions.position import Position, position_from_dict, position_to_dict
from cdcsync_core.resource.spec import replica_id
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.planner import plan
from cdcsync_spark.binlog.batch import BinlogBatch, read_transactions
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.sources.options import SourceOptions, whole

_KINDS = pa.array([kind.name.lower() for kind in ChangeKind])
_META = [pa.field("_change_kind", pa.string()), pa.field("_position", pa.string())]


def low_watermark(options: Mapping[str, str]) -> str:
    """A position that every row read after this call reflects, for `startPosition` (rule R1)."""
    source = SourceOptions.parse(options).source
    with open_session(source) as session:
        session.refuse_hidden_changes()
    return json.dumps(position_to_dict(LowMark(source, session.facts).take()))


class MySqlSnapshot(DataSource):
    """`spark.read.format("mysql_snapshot")`."""

    @classmethod
    def name(cls) -> str:
        return "mysql_snapshot"

    def schema(self) -> StructType:
        return from_arrow_schema(
            captured_schema(SourceOptions.parse(self.options).read_definition()), prefer_timestamp_ntz=True
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.parse(self.options)
        return SnapshotReader(
            options, whole(self.options, "chunkSize", 50_000), whole(self.options, "maxSplitSeconds", 60)
        )


@dataclass
class SplitPartition(InputPartition):
    """One split, and what its task needs to prove that it reaches the planned table of the planned
    log."""

    table: Capture
    split: Split
    lineage: Lineage
    low: Position

    def __post_init__(self) -> None:
        super().__init__(self.split)


@dataclass
class SnapshotReader(DataSourceReader):
    options: SourceOptions
    chunk_size: int
    max_seconds: int

    def partitions(self) -> list[InputPartition]:
        with open_session(self.options.source) as session:
            lineage = session.facts.lineage
            table = self.options.read_definition()
            low = LowMark(self.options.source, session.facts).take()
            splits = plan(session.proved(lineage, low), table, self.chunk_size)
            return [SplitPartition(table, s, lineage, low) for s in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        source, seconds = self.options.source, self.max_seconds
        return SplitReader(
            source, partition.lineage, partition.table, partition.split, partition.low, seconds
        ).batches()


class MySqlBinlog(DataSource):
    """`spark.readStream.format("mysql_binlog")`."""

    @classmethod
    def name(cls) -> str:
        return "mysql_binlog"

    def schema(self) -> StructType:
        table = SourceOptions.parse(self.options).read_definition()
        return from_arrow_schema(pa.schema([*_META, *captured_schema(table)]), prefer_timestamp_ntz=True)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        options = SourceOptions.parse(self.options)
        identity = str(self.options.get("name", "stream"))
        return ChangesStreamReader(
            options,
            str(self.options.get("startPosition", "")),
            whole(self.options, "serverId", replica_id("mysql_binlog", f"{identity} {options.table}")),
            whole(self.options, "maxBatchBytes", 16 << 20),
        )


@dataclass
class ChangesStreamReader(SimpleDataSourceStreamReader):
    """`start_position` is the JSON of a position, or "" for the source's present one."""

    options: SourceOptions
    start_position: str
    replica_id: int
    max_batch_bytes: int

    def __post_init__(self) -> None:
        self._reader: BinlogReader | None = None
        self._first: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Asked twice for a new query, so it is found once."""
        if self._first is None:
            start = position_from_dict(json.loads(self.start_position)) if self.start_position else self._current()
            self._first = _offset(start)
        return self._first

    def read(self, start: dict[str, Any]) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        if self._reader is None:
            position = _position(start)
            self._reader = self._open(position, self._binlog(position))
        batch = self._reader.next_batch()
        if batch is None:
            return iter([]), start
        return iter(_rows(batch)), _offset(batch.end)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """A batch that was read before a restart, once more: the binlog from `start` to exactly
        `end`."""
        if start == end:
            return
        binlog = self._binlog(_position(start))
        reader, goal = self._open(_position(start), binlog), _position(end).in_binlog(binlog)
        try:
            while True:
                batch = reader.next_batch()
                if batch is None:
                    time.sleep(0.05)
                    continue
                yield from _rows(batch, goal)
                if batch.end.includes(goal) and (goal.at is None or batch.end.has_reached(goal.at)):
                    return
        finally:
            reader.stop()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to keep: the offset is the position."""

    def _current(self) -> Position:
        with open_session(self.options.source) as session:
            return watermark.current(session.proved(session.facts.lineage), session.facts)

    def _binlog(self, position: Position) -> BinlogId:
        """An offset of an earlier version names no binlog: the server that is reached now is taken
        for its own, and what the position itself proves is proved."""
        if position.binlog is not None:
            return position.binlog
        with open_session(self.options.source) as session:
            return session.facts.log

    def _open(self, position: Position, binlog: BinlogId) -> BinlogReader:
        start = position.in_binlog(binlog)
        table = self.options.read_definition()
        settings = ReaderSettings(
            source=self.options.source,
            lineage=Lineage.of(binlog),
            replica_id=self.replica_id,
            tables={table.id: table},
            start=start,
            ahead={},
            heartbeat_seconds=10.0,
            max_batch_bytes=self.max_batch_bytes,
            folder=Path(tempfile.mkdtemp(prefix="mysql_binlog-")),
        )
        reader = BinlogReader(settings)
        reader.start()
        return reader


def _rows(batch: BinlogBatch, until: Position | None = None) -> list[pa.RecordBatch]:
    """The batch's changes with their kind and position; up to `until` where given. Raises what
    stopped the table."""
    if batch.fatal is not None:
        raise batch.fatal
    batches: list[pa.RecordBatch] = []
    for part in batch.tables:
        if part.file:
            with pa.OSFile(part.file) as file:
                batches += _described(pa.ipc.open_file(file).read_all(), batch, until).to_batches()
            Path(part.file).unlink()
        if part.stop is not None:
            raise part.stop
    if batch.transactions:
        Path(batch.transactions).unlink()
    return [b for b in batches if b.num_rows]


def _described(changes: pa.Table, batch: BinlogBatch, until: Position | None) -> pa.Table:
    transactions = read_transactions(batch.transactions)
    if until is not None:
        covered = pa.array(np.flatnonzero(transactions.covered(until)), pa.int32())
        changes = changes.filter(pc.is_in(changes[TRANSACTION], covered))
    names = pa.array([str(t.gtid or t.end) for t in transactions.ids], pa.string())
    columns = [_KINDS.take(changes[KIND].combine_chunks()), names.take(changes[TRANSACTION].combine_chunks())]
    rest = changes.drop_columns([KIND, TRANSACTION])
    return pa.Table.from_arrays([*columns, *rest.columns], schema=pa.schema([*_META, *rest.schema]))


def _offset(position: Position) -> dict[str, Any]:
    return {"v": 1, "position": position_to_dict(position)}


def _position(offset: dict[str, Any]) -> Position:
    return position_from_dict(offset["position"])


__all__ = ["MySqlBinlog", "MySqlSnapshot", "low_watermark"]
