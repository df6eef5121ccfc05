"""The whole pipeline in one process: the binlog read in a thread and applied to a Delta table, as a
driver does it without Spark.

The source process of Spark and the driver are two processes, so this one has half of their cores;
its CPU seconds are theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_mysql.positions.watermark import current, high, low
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions.connection import Source, connect
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.sinks.contract.changes import Append, Commit
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable

SYNC = "bench/pipeline"
#: the defaults of `spec.stream`: batches begin that many seconds apart, or when the one before is
#: done
INTERVAL, MAX_BATCH_BYTES = 1.0, 64 << 20
_CHUNK = 50_000
_IDLE_SECONDS = 0.01


@dataclass
class Parts:
    """Where the applying thread's time went, in wall seconds."""

    batches: int = 0
    images: int = 0
    waiting: float = 0.0
    applying: float = 0.0
    tending: float = 0.0
    slowest: float = 0.0

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        taken = time.perf_counter() - begun
        setattr(self, name, getattr(self, name) + taken)
        if name == "applying":
            self.slowest = max(self.slowest, taken)


def target_in(folder: Path, table: TableId) -> DeltaTarget:
    return DeltaSink(open_store(str(folder / "lake")), SYNC).target(table)


def snapshot(source: Source, folder: Path, table_id: TableId) -> None:
    """Copies the table into its target; the stream goes on from here."""
    target = target_in(folder, table_id)
    with connect(source) as connection:
        facts, table = read_facts(connection), read_table(connection, table_id)
        splits = list(plan(connection, table, _CHUNK))
    target.prepare(TableState(Identity(SYNC, facts.lineage, str(table_id)), table, TargetSchema.of(table), epoch=1))
    safe = low(source, facts)
    readers = [SplitReader(source, facts.lineage, table, split, safe, 600) for split in splits]
    files = [f for i, r in enumerate(readers) for f in target.stage(table, r.batches(), f"split-{i}")]
    with connect(source) as connection:
        end = high(connection, facts)

    def build(found: TableState) -> Commit:
        rows = sum(r.rows for r in readers)
        return Commit(replace(found.after_wave(splits, safe, end, rows, 0), epoch=1), Append(tuple(files)))

    target.commit(1, build)


def apply_backlog(source: Source, folder: Path, table: TableId) -> int:
    """All changes between the target's position and the binlog's end; the number of row images."""
    with connect(source) as connection:
        facts = read_facts(connection)
        goal = current(connection, facts).at
    assert goal
    writer = target_in(folder, table).writer(folder)
    state = writer.last_commit()
    assert state
    assert state.position
    settings = ReaderSettings(
        source=source,
        lineage=facts.lineage,
        replica_id=4_000_000_001,
        tables={table: state.capture},
        start=state.position,
        ahead={},
        heartbeat_seconds=1.0,
        max_batch_bytes=MAX_BATCH_BYTES,
        folder=folder,
        befores=False,
    )
    applier = Applier(
        {str(table): StreamTable(str(table), writer, state, time.monotonic())}, 1, state.position, time.monotonic
    )
    reader, parts = BinlogReader(settings), Parts()
    reader.start()
    begun = 0.0
    while not applier.reader.has_reached(goal):
        with parts.timed("waiting"):
            time.sleep(max(0.0, begun + INTERVAL - time.monotonic()))
            begun = time.monotonic()
            batch = _next(reader)
        _apply(applier, batch, begun, parts)
    reader.stop()
    (folder / "parts.json").write_text(json.dumps(asdict(parts)))
    return parts.images


def _next(reader: BinlogReader) -> BinlogBatch:
    while (batch := reader.next_batch()) is None:
        time.sleep(_IDLE_SECONDS)
    if batch.fatal:
        raise batch.fatal
    return batch


def _apply(applier: Applier, batch: BinlogBatch, begun: float, parts: Parts) -> None:
    with parts.timed("applying"):
        applier.apply(batch)
    with parts.timed("tending"):
        applier.maintain(until=begun + INTERVAL)
    for part in batch.tables:
        if part.stop:
            raise part.stop
        parts.images += part.rows
        Path(part.file).unlink(missing_ok=True)
    parts.batches += 1
