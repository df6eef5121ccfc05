"""Readers agree, Spark among them, and Spark's own OPTIMIZE, DELETE, vectors and checkpoints are
gone on from (R4, R8).

All tables are made first, by lives against a model; then one session of Spark reads them all in one
query.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import TABLES, TableLife, key_of, live, read_by_delta_rs, read_by_duckdb
from contract.sinkcase import SYNC, Model, Row, batch, content, in_order, make_table, whole_snapshot

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> list[TableLife]:
    return [life for kind in TABLES for life in live(kind, tmp_path_factory.mktemp(kind), lives=5, steps=25)[-3:]]


def read_by_spark(spark: SparkSession, lives: list[TableLife]) -> list[list[Row]]:
    """The rows of each table, by one query."""
    parts = [
        f"SELECT {n} AS life, to_json(struct(*)) AS row FROM delta.`{life.target.uri}`" for n, life in enumerate(lives)
    ]
    rows: list[list[Row]] = [[] for _ in lives]
    for life, row in spark.sql(" UNION ALL ".join(parts)).collect():
        rows[life].append(tuple(json.loads(row).values()))
    return [in_order(r) for r in rows]


def models(lives: list[TableLife]) -> list[list[Row]]:
    return [life.model.content for life in lives]


def test_spark_returns_the_models_rows(delta_spark: SparkSession, lived: list[TableLife]) -> None:
    assert len(lived) == 3 * len(TABLES)
    assert read_by_spark(delta_spark, lived) == models(lived)


@pytest.mark.long
def test_what_spark_did_to_a_table_is_gone_on_from(delta_spark: SparkSession, lived: list[TableLife]) -> None:
    """Its deletion vectors in its own files, its checkpoint and its protocol; then batches and
    maintenance of ours."""
    changed = [lived[0], lived[-1]]
    for turn, life in enumerate(changed):
        meddle(delta_spark, life, turn)
        go_on(life)
    assert read_by_spark(delta_spark, changed) == models(changed)


def meddle(spark: SparkSession, life: TableLife, turn: int) -> None:
    """A DELETE by deletion vectors, then an OPTIMIZE that takes them in, or a checkpoint over
    them."""
    table = f"delta.`{life.target.uri}`"
    spark.sql(f"DELETE FROM {table} WHERE id % 5 = {turn}")
    for number in range(turn, 31, 5):
        life.model.rows.pop(key_of(life.table, number), None)
    if turn == 0:
        spark.sql(f"OPTIMIZE {table}")
    if turn == 1:
        assert spark._jvm is not None
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, life.target.uri).checkpoint()


def go_on(life: TableLife) -> None:
    for n in range(4):
        life.commit({n: "on", 10 + n: "on", 20: str(n)}, {5, 6 + n}, steps=3)
        assert read_by_delta_rs(life.target.uri) == life.model.content
        assert read_by_duckdb(life.target.uri) == life.model.content
        assert content(life.target) == life.model.content


def test_spark_reads_every_type_at_its_ends(delta_spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "int(11)", "n": "bigint(20) unsigned", "d": "decimal(38,4)", "b": "varbinary(9)", "day": "date"}
    columns |= {
        "at": "datetime(6)",
        "ts": "timestamp(6)",
        "f": "double",
        "v": "vector(2)",
        "bit": "bit(1)",
        "s": "text",
    }
    table = make_table(columns, ["id"])
    target, model = DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(table.id), Model(table)
    utc, least, most = dt.UTC, dt.datetime(1, 1, 1), dt.datetime.max
    unsigned, decimal = Decimal(2**64 - 1), Decimal("-" + "9" * 34 + ".9999")
    low = (
        unsigned,
        decimal,
        b"\xff\0",
        least.date(),
        least,
        least.replace(tzinfo=utc),
        -0.0,
        [0.5, -2.0],
        True,
        "\U0010ffff",
    )
    high = (
        Decimal(0),
        decimal.copy_negate(),
        b"",
        most.date(),
        most,
        most.replace(tzinfo=utc),
        5e-324,
        [1.5, 3.0],
        False,
        "",
    )
    model.rows = {(n,): (n, *low) for n in range(3)}
    whole_snapshot(target, model.content, table)
    target.commit(1, batch(1, model.apply([(1, *high), (7, *low), (8, *[None] * 10)], [(2,)])))
    read = delta_spark.sql(f"SELECT * FROM delta.`{target.uri}`").toArrow()
    assert in_order(zip(*(c.to_pylist() for c in read.columns), strict=True)) == model.content
