"""What a commit of changes costs in a history table: beside an append of the same rows by delta-rs,
and beside the commit of a replica, in one run.

    make bench ARGS='-k history_commits'

CPU stands beside the wall's time, because a machine is never alone. 20,000 changes a commit: half
of them before images. The history is read at the end: its rows must be all that were committed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from bench.delta_tables import TABLE, rows_of
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.contract.changes import Append, Commit, Emit, Upsert
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.delta.history.target import HistorySink
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.history.rows import event_rows
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import SYNC, WATERMARK, batch, first_state, keys_of
from support.history_updates import CHANGES, COMMITS, ROWS, WARM_UP, updates
from support.lake import query

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]


def as_upsert(events: Events) -> Upsert:
    after = events.images.filter(pc.equal(events.images["_cdc_kind"], ChangeKind.UPDATE_AFTER))
    return Upsert(after.select(captured_schema(TABLE).names), keys_of(TABLE, []))


def timed(commit: Callable[[int, Events], object]) -> tuple[float, float]:
    """Median wall and CPU milliseconds of a commit."""
    wall, cpu = [], []
    for number in range(1, WARM_UP + COMMITS + 1):
        events = updates(number)
        begun, spent = time.perf_counter(), time.process_time()
        commit(number, events)
        if number > WARM_UP:
            wall.append(1000 * (time.perf_counter() - begun))
            cpu.append(1000 * (time.process_time() - spent))
    return statistics.median(wall), statistics.median(cpu)


def filled(target: Target, scratch: Path) -> Writer:
    """A writer whose target has `ROWS` rows that were read of a source at rest."""
    target.prepare(first_state(TABLE))
    append = Append(target.stage(TABLE, rows_of(np.arange(ROWS), 0).to_batches(), "wave"))
    target.commit(
        1, lambda found: Commit(found.after_wave([Split()], FilePosition(WATERMARK), WATERMARK, ROWS, 0), append)
    )
    scratch.mkdir()
    return target.writer(scratch)


def test_history_commits(tmp_path: Path) -> None:
    history = HistorySink(open_store(str(tmp_path / "history")), SYNC).target(TABLE.id)
    replica = DeltaSink(open_store(str(tmp_path / "replica")), SYNC).target(TABLE.id)
    emitter, upserter = filled(history, tmp_path / "a"), filled(replica, tmp_path / "b")
    appended, zstd = str(tmp_path / "appended"), WriterProperties(compression="ZSTD", compression_level=1)

    def append(number: int, events: Events) -> None:
        write_deltalake(appended, event_rows(events, EventColumns()), mode="append", writer_properties=zstd)

    ways: dict[str, Callable[[int, Events], object]] = {
        "append by delta-rs": append,
        "history": lambda number, events: emitter.commit(1, batch(number, Emit(events))),
        "replica": lambda number, events: upserter.commit(1, batch(number, as_upsert(events))),
    }
    print("\n| way | median ms | CPU ms |\n|---|---|---|")
    for name, commit in ways.items():
        wall, cpu = timed(commit)
        print(f"| {name} | {wall:,.0f} | {cpu:,.0f} |")
    counted = query(DeltaTable(str(tmp_path / "history/shop/orders")), "SELECT count(*), max(_cdc_seq) FROM t")
    changes = (WARM_UP + COMMITS) * CHANGES
    assert [c[0].as_py() for c in counted.columns] == [ROWS + changes, changes]
