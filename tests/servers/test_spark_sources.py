"""The public Spark sources, used as docs/spark-sources.md shows: rows since LOW, then changes, and
the last image wins (R2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdcsync_spark.datasource import MySqlBinlog, MySqlSnapshot, low_watermark
from cdcsync_spark.engine.start import start_session
from support.servers import Server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = str(tmp_path_factory.mktemp("spark"))
    with start_session("sources", cores=2, memory="1g", scratch_dir=folder, extra={}) as session:
        session.dataSource.register(MySqlSnapshot)
        session.dataSource.register(MySqlBinlog)
        yield session


def each_on(usual: str, other: str) -> pytest.MarkDecorator:
    """One server says what Spark's side does; the other one is for `make test-all`."""
    return pytest.mark.parametrize("server", [usual, pytest.param(other, marks=pytest.mark.long)], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def options(server: Server, fresh_database: Any, tmp_path: Path) -> dict[str, str]:
    database = fresh_database(server)
    server.create_user("reader", "pass", ["ALL"])
    (tmp_path / "username").write_text("reader")
    (tmp_path / "password").write_text("pass")
    server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20), price DECIMAL(10,2), at DATETIME(6), big BIGINT UNSIGNED)",
        "INSERT INTO orders VALUES (1,'a',1.50,'2024-01-02 03:04:05.000006',18446744073709551615), (2,'b',2,NULL,0), (3,NULL,3,NULL,1)",
        db=database,
    )
    return {
        "host": server.host,
        "port": str(server.port),
        "usernameFile": str(tmp_path / "username"),
        "passwordFile": str(tmp_path / "password"),
        "table": f"{database}.orders",
        "chunkSize": "2",
    }


def _changes(
    spark: SparkSession, options: dict[str, str], low: str, checkpoint: Path, last: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    """The changes after `low` up to `last`, as (kind, id, item)."""
    found: list[tuple[Any, ...]] = []
    stream = spark.readStream.format("mysql_binlog").options(**options, startPosition=low).load()
    writer = (
        stream.writeStream.foreachBatch(
            lambda batch, _: found.extend((r["_change_kind"], r["id"], r["item"]) for r in batch.collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="100 milliseconds")
    )
    query = writer.start()
    deadline = time.monotonic() + 240
    while last not in found and time.monotonic() < deadline:
        if not query.isActive:
            assert "failed to connect back" in str(query.exception()), (
                "Spark waits for ten seconds, a busy machine longer"
            )
            query = writer.start()
        time.sleep(0.1)
    progress = query.lastProgress
    query.stop()
    assert query.exception() is None
    assert last in found, progress
    return found


@each_on("mariadb1011", "mysql97_gtid")
def test_rows_and_changes_fit_together(
    spark: SparkSession, server: Server, options: dict[str, str], tmp_path: Path
) -> None:
    """R2: rows read after LOW and the changes since LOW give the table."""
    low = low_watermark(options)
    database = options["table"].split(".")[0]
    server.run("INSERT INTO orders VALUES (4,'between',4,NULL,4)", db=database)
    rows = spark.read.format("mysql_snapshot").options(**options).load()
    assert dict(rows.dtypes) == {
        "id": "int",
        "item": "string",
        "price": "decimal(10,2)",
        "at": "timestamp_ntz",
        "big": "decimal(20,0)",
    }
    assert rows.rdd.getNumPartitions() >= 2
    found = {r["id"]: r for r in rows.collect()}
    assert sorted(found) == [1, 2, 3, 4]
    assert int(found[1]["big"]) == 2**64 - 1
    assert found[1]["at"].microsecond == 6

    server.run(
        "UPDATE orders SET item='x' WHERE id=2",
        "DELETE FROM orders WHERE id=3",
        "UPDATE orders SET id=9 WHERE id=4",
        db=database,
    )
    assert _changes(spark, options, low, tmp_path / "checkpoint", ("update_after", 9, "between")) == [
        ("insert", 4, "between"),
        ("update_before", 2, "b"),
        ("update_after", 2, "x"),
        ("delete", 3, None),
        ("update_before", 4, "between"),
        ("update_after", 9, "between"),
    ]


@each_on("mysql97_gtid", "mariadb1011")
def test_a_query_goes_on_from_its_checkpoint(
    spark: SparkSession, server: Server, options: dict[str, str], tmp_path: Path
) -> None:
    """Offsets are positions: what came while no query ran is read by the next one, once."""
    low = low_watermark(options)
    database = options["table"].split(".")[0]
    server.run("INSERT INTO orders VALUES (5,'first',1,NULL,1)", db=database)
    assert ("insert", 5, "first") in _changes(spark, options, low, tmp_path / "checkpoint", ("insert", 5, "first"))
    server.run("INSERT INTO orders VALUES (6,'second',1,NULL,1)", db=database)
    # Spark repeats the last batch if it was stopped before it wrote down that it was done
    again = _changes(spark, options, low, tmp_path / "checkpoint", ("insert", 6, "second"))
    assert ("insert", 6, "second") in again
    assert again.count(("insert", 6, "second")) == 1


@each_on("mariadb1011", "mysql97_gtid")
def test_a_batch_is_read_again_by_offsets_that_name_no_binlog(server: Server, options: dict[str, str]) -> None:
    """The offsets are those of a checkpoint that an earlier version wrote."""
    source = MySqlBinlog(options)
    reader = source.simpleStreamReader(source.schema())
    start = reader.initialOffset()
    server.run("INSERT INTO orders VALUES (7,'again',1,NULL,1)", db=options["table"].split(".")[0])
    rows: list[dict[str, Any]] = []
    end, deadline = start, time.monotonic() + 120
    while not rows:
        assert time.monotonic() < deadline, "the row was not read in 120 s"
        batches, end = reader.read(end)
        rows = [row for batch in batches for row in batch.to_pylist()]
    assert reader._reader is not None
    reader._reader.stop()
    later = source.simpleStreamReader(source.schema()).readBetweenOffsets(_unnamed(start), _unnamed(end))
    assert [row for batch in later for row in batch.to_pylist()] == rows


def _unnamed(offset: dict[str, Any]) -> dict[str, Any]:
    position = dict(offset["position"])
    del position["binlog"]
    return offset | {"position": position}


def test_an_option_that_is_missing_is_named(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="option host: nothing"):
        spark.read.format("mysql_snapshot").options(table="a.b").load()
