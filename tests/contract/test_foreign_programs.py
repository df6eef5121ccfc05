"""What Spark and DuckDB do to our tables, replicas and histories: each change of rows is noted, a
RESTORE takes the state back, and what changes no row is nothing (R4). delta-rs is in
`test_delta_foreign`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.delta.history.target import HistorySink
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import duckdb_connection
from contract.sinkcase import ORDERS, SYNC, content
from support.delta_tables import changes, streamed
from support.event_source import END, EventSource, follow, read_snapshot

pytestmark = pytest.mark.spark
#: a statement -> the operation by which its commit calls it
USUAL = {"DELETE FROM {t} WHERE id = 1": "DELETE", "OPTIMIZE {t}": ""}
#: empty: it changes no row
MORE = {
    "UPDATE {t} SET note = 'theirs' WHERE id = 2": "UPDATE",
    "INSERT INTO {t} SELECT * FROM {t} LIMIT 1": "WRITE",
    "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 2": "WRITE",
    "MERGE INTO {t} a USING (SELECT 2 AS id) b ON a.id = b.id WHEN MATCHED THEN DELETE": "MERGE",
    "REORG TABLE {t} APPLY (PURGE)": "",
    "VACUUM {t}": "",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')": "",
}


@pytest.fixture
def spark(delta_spark: SparkSession) -> Iterator[SparkSession]:
    """A RESTORE joins the files of two versions in several jobs."""
    before = delta_spark.conf.get("spark.sql.shuffle.partitions")
    delta_spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield delta_spark
    delta_spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture(params=["replica", "history"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    store = open_store(str(tmp_path / "lake"))
    if request.param == "replica":
        target = DeltaSink(store, SYNC).target(ORDERS.id)
        streamed(target, 3)
        return target
    sink, source = HistorySink(store, SYNC), EventSource(random.Random(5))
    read_snapshot(sink, source.snapshot())
    follow(sink, source, tmp_path)
    history = sink.target(ORDERS.id)
    assert content(history) == sorted(source.at[END].items(), key=repr)
    return history


def last(target: Target) -> TableState:
    state = target.last_commit()
    assert state is not None
    return state


def uri(target: Target) -> str:
    return str(target.uri)  # type: ignore[attr-defined]


def version(target: Target) -> int:
    return int(target.path.view().version)  # type: ignore[attr-defined]


@pytest.mark.parametrize("statements", [USUAL, pytest.param(MORE, marks=pytest.mark.long)], ids=["usual", "more"])
def test_what_spark_changes_is_noted_and_what_it_restores_is_forgotten(
    spark: SparkSession, table: Target, statements: dict[str, str]
) -> None:
    name, first, rows = f"delta.`{uri(table)}`", version(table), content(table)
    state = last(table)
    for statement, operation in statements.items():
        before = version(table)
        spark.sql(statement.format(t=name))
        written = last(table).written
        if not operation:
            assert written is None, statement
            continue
        assert written is not None, statement
        assert (written.version, written.operation) == (before + 1, operation)
        assert written.program.startswith("Apache-Spark")
        assert replace(last(table), written=None) == state
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {first}")
        assert (last(table), content(table)) == (state, rows)


@pytest.mark.long
def test_spark_restores_to_a_time(spark: SparkSession, tmp_path: Path) -> None:
    target = DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(ORDERS.id)
    streamed(target, 2)
    state, rows, name = last(target), content(target), f"delta.`{target.uri}`"
    target.commit(1, changes(3))
    newest = spark.sql(f"DESCRIBE HISTORY {name}").first()
    assert newest is not None
    spark.sql(f"RESTORE TABLE {name} TO TIMESTAMP AS OF '{newest.timestamp - timedelta(milliseconds=1)}'")
    assert (last(target).position, content(target)) == (state.position, rows)


def test_what_duckdb_appends_is_noted(table: Target) -> None:
    state = last(table)
    with duckdb_connection().cursor() as duckdb:
        duckdb.execute(f"ATTACH '{uri(table)}' AS theirs (TYPE delta)")
        duckdb.execute("INSERT INTO theirs SELECT * FROM theirs LIMIT 1")
        duckdb.execute("DETACH theirs")
    written = last(table).written
    assert written is not None
    assert (written.version, written.program) == (version(table), "DuckDB")
    assert replace(last(table), written=None) == state
