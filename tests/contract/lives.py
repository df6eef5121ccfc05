"""Lives of a Delta table against a model: batches, maintenance, restarts, deaths, other programs'
commits, in any order.

After every step the table is read from its log alone by our scan, by delta-rs' SQL and by DuckDB,
and all return the model's rows. Other programs are played by delta-rs here, by Spark in
`test_spark_readers.py`. `SMALL_STEPS` makes sizes and intervals small, so that compactions,
checkpoints and clean-up happen within a few commits.
"""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path

import duckdb
import duckdb_extension_delta
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

from cdcsync_core.tables.capture import Capture
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import SYNC, Model, Row, batch, content, in_order, make_table, rows_of, whole_snapshot
from support.deaths import Died, dying_at

TABLES = {
    "exact": make_table({"id": "int(11)", "v": "varchar(20)"}, ["id"]),
    "hashed": make_table({"name": "varchar(20)", "id": "int(11)", "v": "varchar(20)"}, ["name", "id"]),
}
IDS = st.integers(0, 30)
SMALL_STEPS = MaintenancePolicy(checkpoint_entries=4, gathered_files=3, peeled_bytes=1, most_rows=6)
NOTHING_KEPT = {f"delta.{n}RetentionDuration": "interval 0 seconds" for n in ("log", "deletedFile")}
#: the steps between which a commit may die
DEATHS = ("before-commit", "data-written", "vectors-written", "entry-written", "committed")


def row_of(table: Capture, number: int, text: str) -> Row:
    return (number, text) if len(table.key) == 1 else (f"name {number % 7}", number, text)


def key_of(table: Capture, number: int) -> Row:
    return row_of(table, number, "")[: len(table.key)]


def read_by_delta_rs(uri: str) -> list[Row]:
    result = QueryBuilder().register("t", DeltaTable(uri)).execute("SELECT * FROM t").read_all()
    return in_order(zip(*(result.column(i).to_pylist() for i in range(result.num_columns)), strict=True))


@cache
def duckdb_connection() -> duckdb.DuckDBPyConnection:
    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    settings = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    connection = duckdb.connect(config=settings)
    connection.execute(f"LOAD '{extension}'")
    return connection


def read_by_duckdb(uri: str) -> list[Row]:
    return in_order(duckdb_connection().execute("SELECT * FROM delta_scan($1)", [uri]).fetchall())


class TableLife(RuleBasedStateMachine):
    """One table, its model and its writer."""

    table: Capture
    folder: Path
    #: where tables are left when their life ends
    lived: list[TableLife]

    @initialize(numbers=st.sets(IDS))
    def make(self, numbers: set[int]) -> None:
        lake = self.folder / uuid.uuid4().hex
        self.target: DeltaTarget = DeltaSink(open_store(str(lake)), SYNC, policy=SMALL_STEPS).target(self.table.id)
        rows = [row_of(self.table, n, "first") for n in sorted(numbers)]
        whole_snapshot(self.target, rows, self.table)
        self.model = Model(self.table)
        self.model.rows = {self.model.key(r): r for r in rows}
        self.number = 0
        self.delta().alter.set_table_properties(NOTHING_KEPT)
        self.restart()

    def teardown(self) -> None:
        self.lived.append(self)

    def delta(self) -> DeltaTable:
        return DeltaTable(self.target.uri)

    @rule()
    def restart(self) -> None:
        """Another process: nothing is known but the Delta log."""
        self.writer = self.target.writer(self.folder)

    @rule(
        changed=st.dictionaries(IDS, st.text("ab", max_size=3), max_size=8),
        gone=st.sets(IDS, max_size=5),
        steps=st.integers(0, 3),
        death=st.sampled_from([None, None, *DEATHS]),
    )
    def commit(self, changed: dict[int, str], gone: set[int], steps: int, death: str | None = None) -> None:
        self.number += 1
        rows = [row_of(self.table, n, v) for n, v in changed.items()]
        change = self.model.apply(rows, [key_of(self.table, n) for n in gone])
        if death is not None:
            try:
                with dying_at(death):
                    self.writer.commit(1, batch(self.number, change))
            except Died:
                self.restart()
        self.writer.commit(1, batch(self.number, change))
        assert self.writer.status.fallback == ""
        for _ in range(steps):
            self.writer.maintain()

    @rule()
    def optimize(self) -> None:
        self.delta().optimize.compact()

    @rule(number=IDS)
    def delete(self, number: int) -> None:
        """Another program's: against the rules of the house, but the Delta log shows it, so the
        next batch is right."""
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
            assert read_by_duckdb(self.target.uri) == self.model.content
            assert content(self.target) == self.model.content


def live(kind: str, folder: Path, *, lives: int, steps: int) -> list[TableLife]:
    """Tables of `kind` after `lives` lives of at most `steps` steps each."""
    lived: list[TableLife] = []
    machine = type("Machine", (TableLife,), {"table": TABLES[kind], "folder": folder, "lived": lived})
    chosen = settings(
        max_examples=lives,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)
    return [life for life in lived if hasattr(life, "model")]
