"""A history table as other programs read it, and the statements of the manual that users run on it:
DuckDB and Spark give the same versions as the source had."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdcsync_spark.sinks.delta.history.target import HistorySink, HistoryTarget
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import duckdb_connection, read_by_delta_rs
from contract.sinkcase import ORDERS, SYNC
from contract.test_event_sinks import END, HIGH, LOW, SMALL, Source, applier, follow, read_snapshot

MANUAL = Path(__file__).parents[2] / "docs" / "history.md"
#: the manual's current rows, then its view of versions, about a table with another column
CURRENT, VERSIONS = (
    block.replace("total", "note") for block in re.findall(r"^```sql\n(.*?)^```", MANUAL.read_text(), re.S | re.M)
)
Version = tuple[int, str, datetime | None, datetime | None, bool]


class Followed:
    """A history that was published as of HIGH and followed to the end."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.source = Source(random.Random(seed))
        sink = HistorySink(open_store(str(folder / "lake")), SYNC, policy=SMALL)
        read_snapshot(sink, self.source.snapshot())
        run = applier(sink, folder)
        run.apply(self.source.batch(LOW, HIGH, folder))
        run.checkpoint_idle(older_than=float("inf"))
        follow(sink, self.source, folder)
        target = sink.target(ORDERS.id)
        assert isinstance(target, HistoryTarget)
        self.target = target

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


@pytest.fixture(params=range(3))
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Followed:
    return Followed(tmp_path, 100 + request.param)


def test_duckdb_reads_the_versions_and_the_current_rows(followed: Followed) -> None:
    _check(followed, lambda statements: by_duckdb(followed.target.uri, statements))


@pytest.mark.spark
def test_spark_reads_the_versions_and_the_current_rows(followed: Followed, delta_spark: SparkSession) -> None:
    def run(statements: list[str]) -> list[Any]:
        view = f"CREATE OR REPLACE TEMP VIEW orders_history AS SELECT * FROM delta.`{followed.target.uri}`"
        for statement in [view, *statements]:
            result = delta_spark.sql(statement)
        return [tuple(row) for row in result.collect()]

    _check(followed, run)


def _check(followed: Followed, run: Callable[[list[str]], list[Any]]) -> None:
    select = "SELECT id, note, valid_from, valid_to, is_current FROM orders_versions"
    assert in_order(utc(run([VERSIONS, select]))) == followed.versions()
    current = f"SELECT id, note FROM ({CURRENT}) AS c"
    assert in_order(run([current])) == in_order(list(followed.source.at[END].items()))


def test_delta_rs_reads_the_same_rows(followed: Followed) -> None:
    rows = read_by_delta_rs(followed.target.uri)
    found = by_duckdb(followed.target.uri, ["SELECT * FROM orders_history"])
    assert in_order(utc(list(rows))) == in_order(utc(found))
