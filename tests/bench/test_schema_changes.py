"""What a step of a Delta table's schema costs in a table of N rows: a column that is filled, which
rewrites the files, and one that is NULL, which changes metadata alone.

    CDCSYNC_BENCH_ROWS=10000000,50000000 make bench ARGS='-k schema_change'

By default a million rows. The step is timed by the writer of a stream whose key index is there, as
long as the table's stream waits for it; the first batch after it is timed, too. CPU seconds are the
process's own, all threads. Every table ends in a count and sums that must be the model's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench.delta_tables import TABLE, KeyBatches, filled, folder_bytes, linked, target_in
from cdcsync_core.tables.schema_change import Filled, Kept, Origin
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaTarget
from cdcsync_spark.sinks.lake.policy import CommitLimits
from contract.sinkcase import batch, keys_of, make_table, rows_of, step
from support.lake import query

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SIZES = [int(n) for n in os.environ.get("CDCSYNC_BENCH_ROWS", "1000000").split(",")]
AFTER = make_table({**{c.name: c.type.declared for c in TABLE.columns}, "x": "int(11)"}, ["id"])
STEPS: dict[str, tuple[Origin, int]] = {"filled": (Filled(7), 7), "null": (Filled(), 0)}
_HEAD = "rows | column added | seconds | CPU seconds | bytes written | next batch, ms"


@pytest.fixture(scope="module", params=SIZES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """The rows of a table, and its lake."""
    folder = tmp_path_factory.mktemp(f"base-{request.param}")
    filled(folder, request.param)
    os.sync()
    return request.param, folder


@pytest.mark.parametrize("kind", STEPS)
def test_schema_change(base: tuple[int, Path], tmp_path: Path, kind: str) -> None:
    rows, (origin, value) = base[0], STEPS[kind]
    folder, stream = linked(base[1], tmp_path / "lake"), KeyBatches(rows, "uniform", 1000)
    found = target_in(folder)
    writer = DeltaTarget(found.path, limits=CommitLimits(rewritten_bytes=2**50)).writer(tmp_path)
    writer.commit(1, batch(1, stream.batch()))
    before = folder_bytes(folder)
    origins = [*(Kept(c.name) for c in TABLE.columns), origin]
    wall, cpu = timed(lambda: writer.commit(1, step(2, AFTER, origins)))
    written = folder_bytes(folder) - before
    none = Upsert(rows_of(AFTER, []), keys_of(AFTER, [(0,)]))
    following, _ = timed(lambda: writer.commit(1, batch(3, none)))
    cells = f"{rows:,} | {kind} | {wall:.3f} | {cpu:.3f} | {written:,} | {1000 * following:.0f}"
    print(f"\n| {_HEAD} |\n| {cells} |")
    writer.commit(1, batch(4, Upsert(rows_of(AFTER, []), keys_of(AFTER, [(1,)]))))
    count, total = query(DeltaTable(found.uri), "SELECT count(*), coalesce(sum(x), 0) FROM t").columns
    left = stream.expected[0] - sum(stream.alive(n) for n in (0, 1))
    assert (count[0].as_py(), total[0].as_py()) == (left, left * value)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    cpu, begun = time.process_time(), time.perf_counter()
    act()
    wall = time.perf_counter() - begun
    return wall, time.process_time() - cpu
