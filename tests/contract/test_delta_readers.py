"""Readers agree: whatever became of a table, delta-rs and our own reader return the model's rows (R4, R8).

A writer lives through batches, upkeep, restarts and other programs' commits: an OPTIMIZE, an append of new keys, a delete. The
table is read after every step by delta-rs' SQL and by our scan, each from the log alone. Sizes and intervals are made small, so
that moves, checkpoints and clean-up happen within a few commits.
"""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cdcsync_core.table import Table
from cdcsync_spark.sinks import delta_compaction, delta_upkeep
from cdcsync_spark.sinks.delta import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.place import Place
from contract.sinkcase import SYNC, Model, Row, batch, content, in_order, make_table, rows_of, whole_snapshot

TABLES = {
    "exact": make_table({"id": "int(11)", "v": "varchar(20)"}, ["id"]),
    "hashed": make_table({"name": "varchar(20)", "id": "int(11)", "v": "varchar(20)"}, ["name", "id"]),
}
IDS = st.integers(0, 30)


def row_of(table: Table, number: int, text: str) -> Row:
    return (number, text) if len(table.key) == 1 else (f"name {number % 7}", number, text)


def key_of(table: Table, number: int) -> Row:
    return row_of(table, number, "")[: len(table.key)]


def read_by_delta_rs(uri: str) -> list[Row]:
    result = QueryBuilder().register("t", DeltaTable(uri)).execute("SELECT * FROM t").read_all()
    return in_order(zip(*(result.column(i).to_pylist() for i in range(result.num_columns)), strict=True))


class Readers(RuleBasedStateMachine):
    """One table, its model and its writer."""

    table: Table
    folder: Path

    @initialize(numbers=st.sets(IDS))
    def make(self, numbers: set[int]) -> None:
        lake = self.folder / uuid.uuid4().hex
        self.target: DeltaTarget = DeltaSink(Place.parse(str(lake)), SYNC).target(self.table.id)
        rows = [row_of(self.table, n, "first") for n in sorted(numbers)]
        whole_snapshot(self.target, rows, self.table)
        self.model = Model(self.table)
        self.model.rows = {self.model.key(r): r for r in rows}
        self.number = 0
        self.delta().alter.set_table_properties(
            {
                "delta.logRetentionDuration": "interval 0 seconds",
                "delta.deletedFileRetentionDuration": "interval 0 seconds",
            }
        )
        self.restart()

    def delta(self) -> DeltaTable:
        return DeltaTable(self.target.uri)

    @rule()
    def restart(self) -> None:
        """Another process: nothing is known but the log."""
        self.writer = self.target.writer(self.folder)

    @rule(
        changed=st.dictionaries(IDS, st.text("ab", max_size=3), max_size=8),
        gone=st.sets(IDS, max_size=5),
        steps=st.integers(0, 3),
    )
    def commit(self, changed: dict[int, str], gone: set[int], steps: int) -> None:
        self.number += 1
        rows = [row_of(self.table, n, v) for n, v in changed.items()]
        change = self.model.apply(rows, [key_of(self.table, n) for n in gone])
        self.writer.commit(1, batch(self.number, change))
        assert self.writer.fallback == ""
        for _ in range(steps):
            self.writer.tend()

    @rule()
    def optimize(self) -> None:
        self.delta().optimize.compact()

    @rule(number=IDS)
    def delete(self, number: int) -> None:
        """Another program's: against the rules of the house, but the log tells, so the next batch is right."""
        self.delta().delete(f"id = {number}")
        self.model.rows.pop(key_of(self.table, number), None)

    @precondition(lambda self: len(self.model.rows) < 31)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        free = [n for n in range(31) if key_of(self.table, n) not in self.model.rows]
        row = row_of(self.table, data.draw(st.sampled_from(free)), "theirs")
        write_deltalake(self.target.uri, rows_of(self.table, [row]), mode="append")
        self.model.rows[self.model.key(row)] = row

    @rule()
    def checkpoint(self) -> None:
        self.delta().create_checkpoint()

    @invariant()
    def all_agree(self) -> None:
        if hasattr(self, "model"):
            assert read_by_delta_rs(self.target.uri) == self.model.content
            assert content(self.target) == self.model.content


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_compaction, "GATHERED", 3)
    monkeypatch.setattr(delta_compaction, "PEELED_BYTES", 1)
    monkeypatch.setattr(delta_compaction, "MOST_ROWS", 6)
    monkeypatch.setattr(delta_upkeep, "EVERY", 4)


@pytest.mark.parametrize("kind", sorted(TABLES))
@pytest.mark.usefixtures("small_steps")
def test_all_readers_return_the_models_rows(kind: str, tmp_path: Path) -> None:
    machine = type("Machine", (Readers,), {"table": TABLES[kind], "folder": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_long_history_with_all_steps_of_upkeep(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 batches over 4,000 keys; the process restarts now and then; every step of upkeep happens many times."""
    for name, value in {"PEELED_BYTES": 1, "MOST_ROWS": 700, "SMALLEST": 1500}.items():
        monkeypatch.setattr(delta_compaction, name, value)
    table, random = TABLES[kind], Random(kind)
    target = DeltaSink(Place.parse(str(tmp_path / "lake")), SYNC).target(table.id)
    model = Model(table)
    model.rows = {key_of(table, n): row_of(table, n, "first") for n in range(2000)}
    whole_snapshot(target, model.rows.values(), table)
    retained = {f"delta.{n}RetentionDuration": "interval 0 seconds" for n in ("log", "deletedFile")}
    DeltaTable(target.uri).alter.set_table_properties(retained)
    writer, steps = target.writer(tmp_path), Counter[str]()
    for number in range(1, 301):
        changed = [row_of(table, random.randrange(4000), f"by {number}") for _ in range(random.randrange(60))]
        gone = [key_of(table, random.randrange(4000)) for _ in range(random.randrange(30))]
        writer.commit(1, batch(number, model.apply(changed, gone)))
        steps.update([writer.tend()])
        if number % 97 == 0:
            writer = target.writer(tmp_path)
        if number % 50 == 0:
            assert read_by_delta_rs(target.uri) == content(target) == model.content
    assert steps.keys() >= {"move", "remove", "checkpoint", "sweep", "tidy"}
    assert steps["move"] > 20
    assert len(list(Path(target.uri).rglob("*.*"))) < 200


def test_a_move_of_a_file_that_the_index_has_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program's files come between two batches, and upkeep moves them before the next batch looks at them."""
    monkeypatch.setattr(delta_compaction, "GATHERED", 3)
    table = TABLES["exact"]
    target = DeltaSink(Place.parse(str(tmp_path / "lake")), SYNC).target(table.id)
    whole_snapshot(target, [(1, "a"), (2, "a")], table)
    writer, model = target.writer(tmp_path), Model(table, {(n,): (n, "a") for n in (1, 2)})
    writer.commit(1, batch(1, model.apply([(1, "b")], [])))
    for number in (7, 8):
        write_deltalake(target.uri, rows_of(table, [(number, "theirs")]), mode="append")
        model.rows[number,] = (number, "theirs")
    writer.last_commit()
    while step := writer.tend():
        assert step in {"move", "sweep", "tidy"}
    assert len(DeltaTable(target.uri).file_uris()) == 1
    writer.commit(1, batch(2, model.apply([(7, "c")], [(8,)])))
    assert read_by_delta_rs(target.uri) == content(target) == model.content
