"""Readers agree: whatever became of a table, delta-rs, DuckDB and our own reader return the model's
rows (R4, R8)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable, write_deltalake

from cdcsync_spark.sinks.contract.writer import Maintenance
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import NOTHING_KEPT, TABLES, key_of, live, read_by_delta_rs, read_by_duckdb, row_of
from contract.sinkcase import SYNC, Model, batch, content, rows_of, whole_snapshot


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_all_readers_return_the_models_rows(kind: str, tmp_path: Path) -> None:
    assert live(kind, tmp_path, lives=8, steps=20)


@pytest.mark.parametrize("kind", ["hashed", pytest.param("exact", marks=pytest.mark.long)])
def test_a_long_history_with_all_steps_of_upkeep(kind: str, tmp_path: Path) -> None:
    """300 batches over 4,000 keys; the process restarts now and then; every step of maintenance
    happens many times."""
    policy = MaintenancePolicy(peeled_bytes=1, most_rows=700, smallest_class_bytes=1500)
    table, random = TABLES[kind], Random(kind)
    target = DeltaSink(open_store(str(tmp_path / "lake")), SYNC, policy=policy).target(table.id)
    model = Model(table)
    model.rows = {key_of(table, n): row_of(table, n, "first") for n in range(2000)}
    whole_snapshot(target, model.rows.values(), table)
    DeltaTable(target.uri).alter.set_table_properties(NOTHING_KEPT)
    writer, steps, costs = target.writer(tmp_path), Counter[str](), Maintenance()
    for number in range(1, 301):
        changed = [row_of(table, random.randrange(4000), f"by {number}") for _ in range(random.randrange(60))]
        gone = [key_of(table, random.randrange(4000)) for _ in range(random.randrange(30))]
        writer.commit(1, batch(number, model.apply(changed, gone)))
        steps.update([writer.maintain()])
        if number % 97 == 0:
            costs = replace(costs, steps=costs.steps + writer.status.maintenance.steps)
            writer = target.writer(tmp_path)
        if number % 50 == 0:
            assert read_by_delta_rs(target.uri) == content(target) == model.content
    assert read_by_duckdb(target.uri) == model.content
    assert steps.keys() >= {"compact", "remove files", "checkpoint", "remove orphans", "merge runs"}
    assert steps["compact"] > 20
    assert sum(steps.values()) - steps[""] == costs.steps + writer.status.maintenance.steps
    assert writer.status.maintenance.bytes_written > 0
    assert writer.status.maintenance.files_removed > 0
    assert writer.status.maintenance.seconds > 0
    assert len(list(Path(target.uri).rglob("*.*"))) < 200


def test_a_move_of_a_file_that_the_index_has_not_seen(tmp_path: Path) -> None:
    """Another program's files come between two batches, and maintenance moves them before the next
    batch looks at them."""
    table, policy = TABLES["exact"], MaintenancePolicy(gathered_files=3)
    target = DeltaSink(open_store(str(tmp_path / "lake")), SYNC, policy=policy).target(table.id)
    whole_snapshot(target, [(1, "a"), (2, "a")], table)
    writer, model = target.writer(tmp_path), Model(table, {(n,): (n, "a") for n in (1, 2)})
    writer.commit(1, batch(1, model.apply([(1, "b")], [])))
    for number in (7, 8):
        write_deltalake(target.uri, rows_of(table, [(number, "theirs")]), mode="append")
        model.rows[number,] = (number, "theirs")
    writer.last_commit()
    while step := writer.maintain():
        assert step in {"compact", "remove orphans", "merge runs"}
    assert len(DeltaTable(target.uri).file_uris()) == 1
    writer.commit(1, batch(2, model.apply([(7, "c")], [(8,)])))
    assert read_by_delta_rs(target.uri) == content(target) == model.content
