"""What a commit costs in a table of N rows: our own entry beside the MERGE of delta-rs, in one run, on the same batches.

    DELTA_ROWS=1000000,10000000 make bench ARGS='-k delta_commits -s'

Keys are uniform, of the newest hundredth, or nine tenths of them so. Each batch changes 10,000 keys: eight in ten updated, one
deleted, one inserted. CPU seconds of the process stand beside the wall's, because a machine is never alone; every table ends in a
count and sums that must be the model's.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdcsync_core.chunk import Split
from cdcsync_core.position import FilePosition
from cdcsync_core.state import TableState
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks.base import Append, Commit, Merge
from cdcsync_spark.sinks.delta import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta_commit import DeltaWriter
from cdcsync_spark.sinks.place import Place
from contract.sinkcase import SYNC, WATERMARK, batch, first_state, make_table
from support.lake import query

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SIZES = [int(n) for n in os.environ.get("DELTA_ROWS", "1000000").split(",")]
CHANGES, PIECE = 10_000, 131_072
TABLE = make_table(
    {
        "id": "bigint(20)",
        "v": "int(11)",
        "a": "bigint(20)",
        "d": "decimal(18,2)",
        "ts": "datetime(6)",
        "s": "varchar(40)",
    },
    ["id"],
)
Ids = npt.NDArray[np.int64]


def rows_of(ids: Ids, version: int) -> pa.Table:
    schema = arrow_schema(TABLE)
    mixed = (ids * 2654435761 + version * 40503) % 2**40
    columns = [
        pa.array(ids),
        pa.array(np.full(len(ids), version, np.int32)),
        pa.array(mixed),
        pa.array((mixed % 10**7).astype(np.float64)).cast(pa.decimal128(18, 2)),
        pa.array(1_600_000_000_000_000 + mixed).cast(pa.timestamp("us")),
        pa.array(mixed).cast(pa.string()),
    ]
    return pa.table(columns, schema=schema)


class Stream:
    """Batches of one kind, and the newest version of each key (-1: deleted)."""

    def __init__(self, rows: int, kind: str) -> None:
        self.random = np.random.default_rng(1)
        self.kind, self.top, self.number = kind, rows, 0
        self.version = np.full(rows + 1_000_000, -1, np.int32)
        self.version[:rows] = 0

    def batch(self) -> Merge:
        self.number += 1
        inserted = CHANGES // 10
        newest = {"uniform": 0, "newest": CHANGES - inserted, "mixed": (CHANGES - inserted) * 9 // 10}[self.kind]
        chosen = np.unique(
            np.concatenate(
                [
                    self.random.integers(0, self.top, CHANGES - inserted - newest),
                    self.random.integers(self.top - self.top // 100, self.top, newest),
                ]
            )
        )
        gone = chosen[self.random.random(len(chosen)) < 1 / 9]
        changed = np.concatenate([np.setdiff1d(chosen, gone), np.arange(self.top, self.top + inserted)])
        self.top += inserted
        self.version[gone], self.version[changed] = -1, self.number
        return Merge(rows_of(changed, self.number), pa.table({"id": gone}))

    @property
    def expected(self) -> tuple[int, int, int]:
        ids = np.flatnonzero(self.version >= 0)
        return len(ids), int(ids.sum()), int(self.version[ids].sum())


def filled(target: DeltaTarget, rows: int) -> None:
    """The snapshot: files of a million rows in the order of the key."""
    target.prepare(first_state(TABLE))
    files = []
    for start in range(0, rows, 1_000_000):
        pieces = (
            rows_of(np.arange(at, min(at + PIECE, start + 1_000_000)), 0).combine_chunks().to_batches()[0]
            for at in range(start, start + 1_000_000, PIECE)
        )
        files += target.stage(TABLE, pieces, "wave")

    def build(found: TableState) -> Commit:
        return Commit(found.after_wave([Split()], FilePosition(WATERMARK), WATERMARK, rows, 0), Append(tuple(files)))

    target.commit(1, build)


def measured(act: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu


def folder_bytes(target: DeltaTarget) -> int:
    return sum(p.stat().st_size for p in Path(target.uri).rglob("*") if p.is_file())


def report(name: str, times: list[tuple[float, float]], written: int) -> None:
    wall, cpu = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
    slowest = max(t for t, _ in times) * 1000
    changed = written / (len(times) * CHANGES)
    print(
        f"{name}: median {wall:.0f} ms wall, {cpu:.0f} ms CPU, slowest {slowest:.0f} ms, {changed:.0f} bytes a change"
    )


def tended(writer: DeltaWriter) -> Iterator[str]:
    """All steps of upkeep that are due, and what each took."""
    step = "first"
    while step:
        wall, cpu = time.perf_counter(), time.process_time()
        step = writer.tend()
        spent = (1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu))
        yield f"{step or 'look'} {spent[0]:.0f} ms wall, {spent[1]:.0f} ms CPU"


@pytest.mark.parametrize("kind", ["uniform", "newest", "mixed"])
@pytest.mark.parametrize("rows", SIZES)
def test_delta_commits(rows: int, kind: str, tmp_path: Path) -> None:
    for name, vectors, batches in (("own entry", True, 30), ("delta-rs MERGE", False, 2)):
        target = DeltaSink(Place.parse(str(tmp_path / name.replace(" ", "-"))), SYNC, vectors).target(TABLE.id)
        filled(target, rows)
        stream, writer = Stream(rows, kind), target.writer(tmp_path)
        index = measured(writer.warm)
        before, times = folder_bytes(target), []
        for _ in range(batches):
            change = stream.batch()
            times.append(measured(partial(writer.commit, 1, batch(stream.number, change))))
        written = folder_bytes(target) - before
        report(f"{rows:,} rows, {kind}, {name}", times, written)
        if vectors:
            print(f"  index {index[0]:.2f} s wall, {index[1]:.2f} s CPU; upkeep: {'; '.join(tended(writer))}")
        found = query(DeltaTable(target.uri), "SELECT count(*), sum(id), sum(v) FROM t")
        assert tuple(c[0].as_py() for c in found.columns) == stream.expected
