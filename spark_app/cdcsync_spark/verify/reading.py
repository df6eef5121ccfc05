"""Reads all of one table on both sides, once, in worker processes, and finds the keys whose rows
differ.

The source is read by the plan's splits, as the snapshot reads it (R1, R3, R6): every possible key
is in exactly one split. It is decoded by the plain reader, from the server's own text: a fault of
the fast one must not verify itself. The target is read at one version. Rows become digests where
they are read; of the source's rows the keys are kept beside them, on disk, so that the source is
read once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import Position
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.own_process import processes
from cdcsync_spark.sinks.contract.snapshot import SessionSnapshot, TargetSnapshot
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.verify.digest import Digesters, Digests, DigestSet
from cdcsync_spark.verify.keys import matching
from cdcsync_spark.verify.spool import RecordSpool, partitions_for

#: more candidates than this are counted only: something is wrong at large
MOST_CANDIDATES = 200_000


@dataclass(frozen=True)
class Work:
    """What a worker needs to read a piece of one table. `low` proves the binlog (R6)."""

    source: Source
    lineage: Lineage
    table: Capture
    low: Position
    max_seconds: int
    digesters: Digesters
    spool: RecordSpool

    @property
    def key_folder(self) -> Path:
        return self.spool.folder / "keys"


class Candidates(NamedTuple):
    """`keys` has the key columns, `digests` those keys' digests; `uncounted` is how many more keys
    differ."""

    keys: pa.Table
    digests: Digests
    uncounted: int
    source_rows: int
    target_rows: int
    ranges: int


def start_workers(count: int) -> ProcessPoolExecutor:
    """Processes that end with this one, however it ends. What they import is imported once."""
    return processes(count, __name__)


def count_rows(snapshot: TargetSnapshot) -> int:
    """Counts the rows of the target, by its first key column."""
    return sum(batch.num_rows for batch in snapshot.scan(columns=snapshot.state.capture.key[:1]))


def compare_table(
    pool: ProcessPoolExecutor,
    workers: int,
    work: Work,
    snapshot: TargetSnapshot,
    chunk_size: int,
    advance: Callable[[int, int], None],
) -> Candidates:
    """Reads everything. `advance(rows, ranges)` is called with what was read of the source. Raises
    CdcError; removes its files."""
    try:
        with _readers(pool, snapshot) as readers:
            scanned = readers.submit(read_target, work, snapshot)
            ranges = _read_source(pool, workers, work, chunk_size, advance)
            scanned.result()
        compared = work.spool.compare(MOST_CANDIDATES)
        keys, digests = _collect_keys(work, snapshot, DigestSet(compared.candidates))
        return Candidates(keys, digests, compared.uncounted, compared.source_rows, compared.target_rows, ranges)
    finally:
        shutil.rmtree(work.spool.folder, ignore_errors=True)


def _readers(pool: ProcessPoolExecutor, snapshot: TargetSnapshot) -> AbstractContextManager[Executor]:
    """Who reads the target: a worker, or a thread of this process."""
    return ThreadPoolExecutor(1) if isinstance(snapshot, SessionSnapshot) else nullcontext(pool)


def spool_for(folder: Path, rows: int) -> RecordSpool:
    (folder / "keys").mkdir(parents=True)
    return RecordSpool(folder, partitions_for(rows))


# ---- in the workers


def read_split(work: Work, split: Split, number: int) -> int:
    """Rows read."""
    reader = SplitReader(work.source, work.lineage, work.table, split, work.low, work.max_seconds, Decoder.REFERENCE)
    names = list(work.table.key)
    path = work.key_folder / f"{number}.arrow"
    with work.spool.source() as records, pa.OSFile(str(path), "wb") as file:
        writer: pa.ipc.RecordBatchStreamWriter | None = None
        for batch in reader.batches():
            keys = batch.select(names)
            writer = writer or pa.ipc.new_stream(file, keys.schema)
            writer.write_batch(keys)
            records.add(work.digesters.keys.of(keys), work.digesters.rows.of(batch))
        if writer:
            writer.close()
    return reader.rows


def read_target(work: Work, snapshot: TargetSnapshot) -> None:
    with work.spool.target() as records:
        for batch in snapshot.scan():
            records.add(work.digesters.keys.of(batch), work.digesters.rows.of(batch))


# ---- in the leading process


def _read_source(
    pool: ProcessPoolExecutor, workers: int, work: Work, chunk_size: int, advance: Callable[[int, int], None]
) -> int:
    rows = ranges = 0
    with open_session(work.source) as session:
        splits = plan(session.proved(work.lineage, work.low), work.table, chunk_size)
        for count in _results(pool, 2 * workers, work, splits):
            rows, ranges = rows + count, ranges + 1
            advance(rows, ranges)
    return ranges


def _results(pool: ProcessPoolExecutor, most: int, work: Work, splits: Iterable[Split]) -> Iterator[int]:
    """Rows of each split, as they are done; at most `most` splits are handed out at a time, so the
    plan stays lazy."""
    running: set[Future[int]] = set()
    try:
        for number, split in enumerate(splits):
            running.add(pool.submit(read_split, work, split, number))
            if len(running) >= most:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (f.result() for f in done)
        yield from (f.result() for f in running)
    finally:
        for future in running:
            future.cancel()
        wait(running)


def _collect_keys(work: Work, snapshot: TargetSnapshot, keys: DigestSet) -> tuple[pa.Table, Digests]:
    """The key columns of the wanted digests: from the source's keys, and what is not there from the
    target."""
    schema = pa.schema([snapshot.schema.field(name) for name in work.table.key])
    seen: set[bytes] = set()
    batches: list[pa.RecordBatch] = []
    digests: list[Digests] = []
    if len(keys):
        for side in (_source_keys(work), snapshot.scan(columns=list(work.table.key))):
            for batch, matches in matching(side, work.digesters.keys, keys):
                new = {d.tobytes(): i for i, d in enumerate(matches) if d.tobytes() not in seen}
                seen |= new.keys()
                fresh = sorted(new.values())
                batches.append(batch.take(pa.array(fresh, pa.int64())))
                digests.append(matches[fresh])
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return table, np.concatenate(digests) if digests else np.empty((0, 2), np.uint64)


def _source_keys(work: Work) -> Iterator[pa.RecordBatch]:
    for path in sorted(work.key_folder.glob("*.arrow")):
        if path.stat().st_size:
            with pa.OSFile(str(path)) as file:
                yield from pa.ipc.open_stream(file)
