"""A history table as other programs read it, and the statements of the manual that users run on it:
DuckDB and Spark give the same versions as the source had."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyspark.sql import SparkSession

from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.history.target import HistorySink, HistoryTarget
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistorySink
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.iceberg_duckdb import duckdb_connection as iceberg_duckdb_connection
from contract.lives import duckdb_connection, read_by_delta_rs
from contract.sinkcase import ORDERS, SYNC
from support.event_source import END, HIGH, LOW, SMALL, EventSource, applier, follow, read_early, read_snapshot
from support.folder_catalog import LocalStores
from support.iceberg_catalog import IcebergCatalog
from support.iceberg_spark import IcebergSpark

MANUAL = Path(__file__).parents[2] / "docs" / "history.md"
#: the manual's current rows, then its view of versions, about a table with another column
CURRENT, VERSIONS = (
    block.replace("total", "note") for block in re.findall(r"^```sql\n(.*?)^```", MANUAL.read_text(), re.S | re.M)
)
Version = tuple[int, str, datetime | None, datetime | None, bool]


class Followed:
    """A history that is published as of HIGH, and followed to the `end` that is given."""

    def __init__(self, sink: Sink, folder: Path, seed: int) -> None:
        self.source, self.sink, self._folder = EventSource(random.Random(seed)), sink, folder
        read_snapshot(sink, self.source.snapshot())
        run = applier(sink, folder)
        run.apply(self.source.batch(LOW, HIGH, folder))
        run.checkpoint_idle(older_than=float("inf"))

    def follow(self, end: int = END) -> Followed:
        follow(self.sink, self.source, self._folder, end=end)
        return self

    @property
    def uri(self) -> str:
        """Where its Delta table is."""
        target = self.sink.target(ORDERS.id)
        assert isinstance(target, HistoryTarget)
        return target.uri

    def versions(self) -> list[Version]:
        """What was there from which transaction to which."""
        open_: dict[int, tuple[str, datetime | None]] = {k: (v, None) for k, v in self.source.at[HIGH].items()}
        found: list[Version] = []
        for end in range(HIGH + 100, END + 1, 100):
            before, after, at = self.source.at[end - 100], self.source.at[end], committed(end)
            for key in sorted(before.keys() | after.keys()):
                if before.get(key) != after.get(key):
                    if key in open_:
                        value, since = open_.pop(key)
                        found.append((key, value, since, at, False))
                    if key in after:
                        open_[key] = (after[key], at)
        return in_order([*found, *((k, v, since, None, True) for k, (v, since) in open_.items())])


def committed(end: int) -> datetime:
    return datetime.fromtimestamp(1700000000 + end, UTC)


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def utc(rows: list[Any]) -> list[Any]:
    """Instants as UTC, whatever zone a reader shows them in."""
    return [tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in rows]


def by_duckdb(uri: str, statements: list[str]) -> list[Any]:
    connection = duckdb_connection()
    connection.execute("CREATE OR REPLACE VIEW orders_history AS SELECT * FROM delta_scan('" + uri + "')")
    for statement in statements:
        result = connection.execute(statement)
    return result.fetchall()


@pytest.fixture(params=[0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Followed:
    sink = HistorySink(open_store(str(tmp_path / "lake")), SYNC, policy=SMALL)
    return Followed(sink, tmp_path, 100 + request.param).follow()


def test_duckdb_reads_the_versions_and_the_current_rows(followed: Followed) -> None:
    check_versions(followed, lambda statements: by_duckdb(followed.uri, statements))


@pytest.mark.spark
def test_spark_reads_the_versions_and_the_current_rows(followed: Followed, delta_spark: SparkSession) -> None:
    def run(statements: list[str]) -> list[Any]:
        view = f"CREATE OR REPLACE TEMP VIEW orders_history AS SELECT * FROM delta.`{followed.uri}`"
        for statement in [view, *statements]:
            result = delta_spark.sql(statement)
        return [tuple(row) for row in result.collect()]

    check_versions(followed, run)


def check_versions(followed: Followed, run: Callable[[list[str]], list[Any]]) -> None:
    """The manual's statements, which `run` runs on a view `orders_history`, return what the source
    had."""
    select = "SELECT id, note, valid_from, valid_to, is_current FROM orders_versions"
    assert in_order(utc(run([VERSIONS, select]))) == followed.versions()
    current = f"SELECT id, note FROM ({CURRENT}) AS c"
    assert in_order(run([current])) == in_order(list(followed.source.at[END].items()))


def test_delta_rs_reads_the_same_rows(followed: Followed) -> None:
    rows = read_by_delta_rs(followed.uri)
    found = by_duckdb(followed.uri, ["SELECT * FROM orders_history"])
    assert in_order(utc(list(rows))) == in_order(utc(found))


def iceberg_by_duckdb(metadata: str) -> Callable[[list[str]], list[Any]]:
    def run(statements: list[str]) -> list[Any]:
        view = f"CREATE OR REPLACE VIEW orders_history AS SELECT * FROM iceberg_scan('{metadata}')"
        for statement in [view, *statements]:
            result = iceberg_duckdb_connection().execute(statement)
        return result.fetchall()

    return run


@pytest.mark.spark
def test_a_history_is_read_whole_and_followed_by_its_appends(
    iceberg_catalog: IcebergCatalog, iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    """As the manual says: all rows as of a snapshot, then what is appended after it, through
    compactions; a resnapshot is no append."""
    namespace = f"n{uuid.uuid4().hex}"
    name, catalog = f"{namespace}.orders", RestCatalog(RestSettings(iceberg_catalog.uri))
    sink = IcebergHistorySink(IcebergSink(catalog, LocalStores(), SYNC, (namespace,), policy=SMALL))
    followed, stream = Followed(sink, tmp_path, 100), tmp_path / "stream"
    ((begun, at),) = iceberg_spark.sql(
        f"SELECT snapshot_id, unix_millis(committed_at) FROM lake.{name}.snapshots "
        f"WHERE snapshot_id = (SELECT snapshot_id FROM lake.{name}.refs WHERE name = 'main')"
    )
    first = iceberg_spark.sql(f"SELECT * FROM lake.{name} VERSION AS OF {begun}")
    options = {"stream-from-timestamp": str(at + 1)}
    followed.follow((HIGH + END) // 2)
    iceberg_spark.stream(name, stream, **options)
    followed.follow()
    appended = iceberg_spark.stream(name, stream, **options)
    table = PyIcebergCatalog("rest", uri=iceberg_catalog.uri).load_table((namespace, "orders"))
    assert {s.summary.operation.value for s in table.snapshots() if s.summary} >= {"append", "overwrite", "replace"}
    rows = in_order(utc(iceberg_spark.sql(f"SELECT * FROM lake.{name}")))
    assert in_order(utc([*first, *appended])) == rows
    added = table.incremental_append_scan(from_snapshot_id_exclusive=begun).to_arrow()
    assert in_order(utc(list(zip(*added.to_pydict().values(), strict=True)))) == in_order(utc(appended))
    duck = iceberg_by_duckdb(table.metadata_location)
    assert in_order(utc(duck(["SELECT * FROM orders_history"]))) == rows
    iceberg_spark.sql(f"CREATE OR REPLACE TEMP VIEW orders_history AS SELECT * FROM lake.{name}")
    for run in (duck, lambda statements: [iceberg_spark.sql(statement) for statement in statements][-1]):
        check_versions(followed, run)
    read_snapshot(sink, followed.source.snapshot(), nonce=1)
    followed.follow()
    with pytest.raises(RuntimeError, match="Cannot process overwrite snapshot"):
        iceberg_spark.stream(name, stream, **options)


@pytest.mark.spark
def test_a_column_that_spark_added_to_a_history_keeps_its_values_when_files_are_gathered(
    iceberg_catalog: IcebergCatalog, iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    namespace = f"n{uuid.uuid4().hex}"
    name, catalog = f"lake.{namespace}.orders", RestCatalog(RestSettings(iceberg_catalog.uri, seconds=120))
    sink = IcebergHistorySink(IcebergSink(catalog, LocalStores(), SYNC, (namespace,), policy=SMALL))
    followed = Followed(sink, tmp_path, 102)
    iceberg_spark.sql(f"ALTER TABLE {name} ADD COLUMN other string")
    iceberg_spark.sql(f"UPDATE {name} SET other = note || '!'")
    question = f"SELECT id, other FROM {name} WHERE other IS NOT NULL"
    before = in_order(iceberg_spark.sql(question))
    followed.follow()
    assert iceberg_spark.sql(f"SELECT 1 FROM {name}.files WHERE file_path LIKE '%/compacted-%'")
    assert in_order(iceberg_spark.sql(question)) == before


@pytest.mark.spark
def test_a_history_of_early_delivery_is_followed_from_its_beginning(
    iceberg_catalog: IcebergCatalog, iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    namespace = f"n{uuid.uuid4().hex}"
    name, catalog = f"{namespace}.orders", RestCatalog(RestSettings(iceberg_catalog.uri))
    sink = IcebergHistorySink(IcebergSink(catalog, LocalStores(), SYNC, (namespace,), policy=SMALL))
    source = EventSource(random.Random(101))
    read_early(sink, source.snapshot())
    follow(sink, source, tmp_path)
    rows = in_order(utc(iceberg_spark.sql(f"SELECT * FROM lake.{name}")))
    assert in_order(utc(iceberg_spark.stream(name, tmp_path / "stream"))) == rows
    assert len(rows) > len(source.at[END])
