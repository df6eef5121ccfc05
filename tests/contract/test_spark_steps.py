"""Spark reads what a step of a table's schema has made, with deletion vectors and after the native
batch that follows; and steps go on from what Spark's own OPTIMIZE and DELETE have made.

Each table is made first; then one query reads them all by their columns' texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdcsync_spark.sinks.contract.changes import Empty, Upsert
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import read_by_delta_rs, read_by_duckdb
from contract.sinkcase import SYNC, Row, batch, content, in_order, keys_of, rows_of, step, whole_snapshot
from contract.stepcase import KEPT, ROWS, STEPS, TABLE

pytestmark = pytest.mark.spark
GONE: list[Row] = [(4, "gone", None, None, 1), (5, "old", None, None, 2)]


@dataclass
class Stepped:
    """A table, one of whose files has a deletion vector, before the step `name`."""

    name: str
    target: DeltaTarget
    writer: Writer
    rows: list[Row]

    @classmethod
    def made(cls, name: str, folder: Path) -> Stepped:
        target = DeltaSink(open_store(str(folder / name.replace(" ", "-"))), SYNC).target(TABLE.id)
        whole_snapshot(target, [*ROWS[:2], *GONE], TABLE)
        writer = target.writer(folder)
        writer.commit(1, batch(1, Upsert(rows_of(TABLE, ROWS[2:]), keys_of(TABLE, [(4,), (5,)]))))
        return cls(name, target, writer, ROWS)

    def step(self, number: int) -> None:
        table, origins, self.rows = STEPS[self.name]
        self.writer.commit(1, step(number, table, origins))

    def go_on(self, number: int) -> None:
        """A native batch of the new columns: row 1 goes, row 2 has its values."""
        table, _, rows = STEPS[self.name]
        at = [c.name for c in table.captured].index("id")
        changed = (*rows[0][:at], 2, *rows[0][at + 1 :])
        self.writer.commit(1, batch(number, Upsert(rows_of(table, [changed]), keys_of(table, [(1,)]))))
        assert self.writer.status.fallback == ""
        self.rows = [changed, rows[2]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Stepped]:
    """For each step two tables: after it, and after the batch that follows; and an emptied one."""
    made = []
    for name in STEPS:
        for go_on in (False, True):
            table = Stepped.made(name, tmp_path_factory.mktemp("steps"))
            table.step(2)
            if go_on:
                table.go_on(3)
            made.append(table)
    emptied = Stepped.made("nothing", tmp_path_factory.mktemp("emptied"))
    emptied.writer.commit(1, batch(2, Empty()))
    emptied.rows = []
    return [*made, emptied]


def read(spark: SparkSession, tables: list[Stepped]) -> list[list[tuple[str | None, ...]]]:
    """The rows of each table as texts, by one query."""
    parts = []
    for number, table in enumerate(tables):
        names = table.target.open_snapshot().schema.names
        texts = ", ".join(f"CAST(`{n}` AS STRING)" for n in names)
        parts.append(f"SELECT {number} AS number, array({texts}) AS row FROM delta.`{table.target.uri}`")
    rows: list[list[tuple[str | None, ...]]] = [[] for _ in tables]
    for number, row in spark.sql(" UNION ALL ".join(parts)).collect():
        rows[number].append(tuple(row))
    return [in_order(r) for r in rows]


def texts(rows: list[Row]) -> list[Row]:
    return in_order(tuple(None if v is None else str(v) for v in row) for row in rows)


@pytest.mark.long
def test_spark_returns_the_rows_after_each_step(delta_spark: SparkSession, tables: list[Stepped]) -> None:
    assert len(tables) == 2 * len(STEPS) + 1
    assert read(delta_spark, tables) == [texts(table.rows) for table in tables]
    for table in tables:
        names = delta_spark.table(f"delta.`{table.target.uri}`").columns
        assert names == table.target.open_snapshot().schema.names


@pytest.mark.parametrize(
    "statement", ["OPTIMIZE {}", pytest.param("DELETE FROM {} WHERE id = 3", marks=pytest.mark.long)]
)
def test_steps_go_on_from_what_spark_did(delta_spark: SparkSession, tmp_path: Path, statement: str) -> None:
    """Before a step, and between it and the next."""
    table = Stepped.made("a column added and filled", tmp_path)
    name = f"delta.`{table.target.uri}`"
    delta_spark.sql(statement.format(name))
    table.step(2)
    delta_spark.sql(statement.format(name))
    table.writer.commit(1, step(3, TABLE, KEPT))
    changed: Row = (2, "changed", None, None, None)
    table.writer.commit(1, batch(4, Upsert(rows_of(TABLE, [changed]), keys_of(TABLE, [(1,)]))))
    assert table.writer.status.fallback == ""
    table.rows = [changed] if "DELETE" in statement else [changed, ROWS[2]]
    assert read(delta_spark, [table]) == [texts(table.rows)]
    wanted = in_order(table.rows)
    assert content(table.target) == read_by_delta_rs(table.target.uri) == read_by_duckdb(table.target.uri) == wanted
