"""What a commit costs in an Iceberg table of N rows, by a REST catalog on this machine, with files
in a folder.

    ICEBERG_ROWS=1000000,10000000,50000000 make bench ARGS='-k iceberg_'

Deletion vectors (format version 3) and position deletes (2). Beside it Spark's MERGE by deletion
vectors, and Flink's upserts by equality deletes, into a table that was filled in the same way. Keys
and batches are those of the Delta benchmark; after each commit of ours comes a step of maintenance,
as in the stream, which is timed for itself. CPU is that of the process, of Spark's JVM, and of
Flink's, without the catalog's server. Every table ends in a count and sums that must be the
model's.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench.commit_times import HEAD, Show, measured
from bench.delta_tables import TABLE, KeyBatches, fill
from bench.flink_iceberg import FlinkUpserts
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from contract.sinkcase import SYNC, batch
from support.folder_catalog import LocalStores
from support.iceberg_catalog import ICEBERG, IcebergCatalog
from support.iceberg_spark import IcebergSpark

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SIZES = [int(n) for n in os.environ.get("ICEBERG_ROWS", "1000000").split(",")]
COMMITS, MERGES, READS, CHANGES = 30, 5, 3, 10_000


class OwnSnapshot:
    """The product, with its maintenance."""

    def __init__(self, target: IcebergTarget, scratch: Path) -> None:
        self._writer = target.writer(scratch)
        self._writer.warm()

    def commit(self, number: int, change: Upsert) -> None:
        self._writer.commit(1, batch(number, change))

    def maintain(self) -> None:
        """As the stream does it: one step after each batch."""
        self._writer.maintain()

    def cpu(self) -> float:
        return time.process_time()


class IcebergSparkMerge:
    """Spark's MERGE, without maintenance; the changes are in a Parquet file before it begins."""

    def __init__(self, spark: IcebergSpark, table: str, folder: Path) -> None:
        self._spark, self._table, self._folder = spark, table, folder

    def commit(self, number: int, change: Upsert) -> None:
        gone = change.deletes.append_column("gone", pa.array([True] * change.deletes.num_rows))
        new = change.upserts.append_column("gone", pa.array([False] * change.upserts.num_rows))
        file = self._folder / f"changes-{number}.parquet"
        pq.write_table(pa.concat_tables([new, gone], promote_options="default"), file)
        self._spark.sql(
            f"MERGE INTO {self._table} t USING parquet.`{file}` s ON t.id = s.id "
            "WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *"
        )

    def maintain(self) -> None:
        """Nothing."""

    def cpu(self) -> float:
        session = psutil.Process(self._spark.pid)
        spent = [process.cpu_times() for process in (session, *session.children(recursive=True))]
        return sum(times.user + times.system for times in spent)


@pytest.fixture(scope="module")
def spark(catalog: IcebergCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergSpark]:
    with IcebergSpark(catalog.uri, ICEBERG / "jars", tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergCatalog]:
    server = IcebergCatalog(tmp_path_factory.mktemp("catalog")).start()
    yield server
    server.kill()


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize("kind", ["uniform", "newest", "mixed"])
@pytest.mark.parametrize("rows", SIZES)
def test_iceberg_commits(
    catalog: IcebergCatalog, rows: int, kind: str, version: int, tmp_path: Path, show: Show
) -> None:
    namespace = (f"n{uuid.uuid4().hex}",)
    rest = RestCatalog(RestSettings(catalog.uri, seconds=600))
    target = IcebergSink(rest, LocalStores(), SYNC, namespace, format_version=version).target(TABLE.id)
    fill(target, rows)
    os.sync()  # or the first commits wait for the disk to take what came before them
    stream, folder = KeyBatches(rows, kind, CHANGES), Path(catalog.warehouse, *namespace)
    times = measured(OwnSnapshot(target, tmp_path), stream, folder, COMMITS, warm_up=1)
    show(HEAD, times.row(rows, kind, CHANGES, f"own snapshot, v{version}"))
    assert sums(target) == stream.expected


@pytest.mark.parametrize("kind", ["uniform", "newest"])
@pytest.mark.parametrize("rows", SIZES)
def test_iceberg_merges(
    catalog: IcebergCatalog, spark: IcebergSpark, rows: int, kind: str, tmp_path: Path, show: Show
) -> None:
    namespace = (f"n{uuid.uuid4().hex}",)
    rest = RestCatalog(RestSettings(catalog.uri, seconds=600))
    by_vectors = (("write.merge.mode", "merge-on-read"),)
    target = IcebergSink(rest, LocalStores(), SYNC, namespace, by_vectors).target(TABLE.id)
    fill(target, rows)
    os.sync()
    stream, folder = KeyBatches(rows, kind, CHANGES), Path(catalog.warehouse, *namespace)
    table = f"lake.{namespace[0]}.{TABLE.id.name}"
    times = measured(IcebergSparkMerge(spark, table, tmp_path), stream, folder, MERGES, warm_up=1)
    show(HEAD, times.row(rows, kind, CHANGES, "Spark's MERGE"))
    assert sums(target) == stream.expected


READ_HEAD = "rows | keys | commits of 10,000 changes | by | Spark reads the table, ms"


@pytest.mark.parametrize("by", ["own snapshot, v3", "own snapshot, v2", "Flink's equality deletes"])
@pytest.mark.parametrize("rows", SIZES)
def test_iceberg_equality_deletes(
    catalog: IcebergCatalog, spark: IcebergSpark, rows: int, by: str, tmp_path: Path, show: Show
) -> None:
    """What the same commits cost who writes, and who reads after them."""
    namespace = (f"n{uuid.uuid4().hex}",)
    rest = RestCatalog(RestSettings(catalog.uri, seconds=600))
    version = 3 if by.endswith("v3") else 2
    target = IcebergSink(rest, LocalStores(), SYNC, namespace, format_version=version).target(TABLE.id)
    fill(target, rows)
    os.sync()
    stream, folder = KeyBatches(rows, "uniform", CHANGES), Path(catalog.warehouse, *namespace)
    if by.startswith("Flink"):
        with FlinkUpserts(catalog.uri, namespace[0], tmp_path) as flink:
            times = measured(flink, stream, folder, MERGES, warm_up=1)
    else:
        times = measured(OwnSnapshot(target, tmp_path), stream, folder, MERGES, warm_up=1)
    show(HEAD, times.row(rows, "uniform", CHANGES, by))
    question = f"SELECT count(*), sum(id), sum(v) FROM lake.{namespace[0]}.{TABLE.id.name}"
    seconds = [_timed_read(spark, question, stream.expected) for _ in range(READS)]
    show(READ_HEAD, f"| {rows:,} | uniform | {MERGES + 1} | {by} | {1000 * min(seconds):,.0f} |")


def _timed_read(spark: IcebergSpark, question: str, expected: tuple[int, int, int]) -> float:
    begun = time.perf_counter()
    assert spark.sql(question) == [expected]
    return time.perf_counter() - begun


def sums(target: IcebergTarget) -> tuple[int, int, int]:
    """Count, and the sums of `id` and `v`."""
    count = ids = versions = 0
    for part in target.open_snapshot().scan(["id", "v"]):
        count += part.num_rows
        ids += _sum(part.column("id"))
        versions += _sum(part.column("v"))
    return count, ids, versions


def _sum(values: pa.Array) -> int:
    return pc.sum(values).as_py() or 0
