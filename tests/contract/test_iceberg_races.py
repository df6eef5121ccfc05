"""Spark and this sink write to one Iceberg table at the same time: the commit of one is held by the
catalog while the other one commits.

Afterwards the table has the rows of a model to which both were applied one after the other; or one
of the two was refused, and the table has the rows of the other. A `rewrite_data_files` that began
before rows were moved out of a file is refused because of how that commit is labelled
(`replica/summary.py`); in tables of format version 2 the moved rows were there twice without it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from contract.sinkcase import ORDERS, SYNC, Model, Row, batch, content, in_order, whole_snapshot
from support.folder_catalog import LocalStores
from support.iceberg_catalog import IcebergCatalog
from support.iceberg_spark import IcebergSpark
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.long]
Rows = dict[Row, Row]
#: of the first 100 rows every other one is deleted, so that their file is due for compaction
DELETED = [(n,) for n in range(0, 100, 2)]
#: what the sink's batch in a race changes
OURS, OURS_DELETED = [(1, "ours"), (3, "ours"), (201, "ours")], [(51,), (53,)]


@dataclass(frozen=True)
class Statement:
    """What Spark does to the table `{table}`, and to the model's rows; `modes` are the values of
    `write.*.mode`."""

    sql: str
    change: Callable[[Rows], Rows]
    mode: str = "copy-on-write"


def without(rows: Rows, keys: set[int]) -> Rows:
    return {key: row for key, row in rows.items() if key[0] not in keys}


def updated(rows: Rows, keys: set[int]) -> Rows:
    return {key: (row[0], "spark") if key[0] in keys else row for key, row in rows.items()}


def merged(rows: Rows) -> Rows:
    return updated(rows, {1, 51}) | {(n,): (n, "spark") for n in (301, 1, 51)}


DELETE = ("DELETE FROM {table} WHERE id IN (1, 51, 91)", lambda rows: without(rows, {1, 51, 91}))
UPDATE = ("UPDATE {table} SET note = 'spark' WHERE id IN (1, 51, 91)", lambda rows: updated(rows, {1, 51, 91}))
MERGE = (
    (
        "MERGE INTO {table} t USING (SELECT explode(array(1L, 51L, 301L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET note = 'spark' WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, 'spark')"
    ),
    merged,
)
REWRITE = "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
STATEMENTS = {
    "rewrite": Statement(REWRITE, lambda rows: rows),
    **{
        f"{name} {mode}": Statement(*statement, mode)
        for mode in ("copy-on-write", "merge-on-read")
        for name, statement in {"delete": DELETE, "update": UPDATE, "merge": MERGE}.items()
    },
}
#: what this sink commits: a batch, or one step of a compaction, with the policy that makes it due
PEEL = MaintenancePolicy(gathered_files=99, peeled_bytes=1, most_rows=20)
GATHER = MaintenancePolicy(gathered_files=2, peeled_bytes=2**30)
POLICIES = {"batch": MaintenancePolicy(), "peel": PEEL, "gather": GATHER}


class Race:
    """A table in which a compaction by the policy of `ours` is due, and the model of its rows."""

    def __init__(
        self, catalog: IcebergCatalog, spark: IcebergSpark, folder: Path, ours: str, version: int, mode: str
    ) -> None:
        self.catalog, self.spark = catalog, spark
        self.name = f"n{uuid.uuid4().hex}.orders"
        modes = tuple((f"write.{of}.mode", mode) for of in ("delete", "update", "merge"))
        sink = IcebergSink(
            RestCatalog(RestSettings(catalog.uri, seconds=600)),
            LocalStores(),
            SYNC,
            (self.name.partition(".")[0],),
            modes,
            POLICIES[ours],
            format_version=version,
        )
        self.target: IcebergTarget = sink.target(ORDERS.id)
        model = Model(ORDERS, {(n,): (n, "first") for n in range(100)})
        whole_snapshot(self.target, model.rows.values())
        self.writer: Writer = self.target.writer(folder)
        self.writer.commit(1, batch(1, model.apply([(200, "second")], DELETED)))
        self.rows = model.rows
        self.commit = self.commit_batch if ours == "batch" else self.compact

    def commit_batch(self) -> None:
        self.writer.commit(1, batch(2, Model(ORDERS).apply(OURS, OURS_DELETED)))

    def compact(self) -> None:
        """One step, or none where it lost the race."""
        while self.writer.maintain() not in ("compact", ""):
            pass

    def changed_by_us(self, rows: Rows) -> Rows:
        if self.commit == self.compact:
            return rows
        model = Model(ORDERS, dict(rows))
        model.apply(OURS, OURS_DELETED)
        return model.rows

    def run(self, statement: Statement) -> None:
        self.spark.sql(statement.sql.format(table=f"lake.{self.name}", name=self.name))

    def race(self, held: Callable[[], None], first: Callable[[], None]) -> Exception | None:
        """`held` comes to its commit, then `first` commits, then `held` goes on: what it raises."""
        with ThreadPoolExecutor(1) as pool:
            self.catalog.fault("hold")
            try:
                going = pool.submit(held)
                eventually(lambda: self.catalog.holds() or going.done())
                assert self.catalog.holds(), going.exception()
                first()
            finally:
                self.catalog.fault("release")
            error = going.exception()
        assert error is None or isinstance(error, Exception)
        return error

    def assert_rows(self, *allowed: Rows) -> Rows:
        """This sink and Spark read the rows of one of them: which."""
        rows_of_target = content(self.target)
        assert in_order(self.spark.sql(f"SELECT id, note FROM lake.{self.name}")) == rows_of_target
        return next(rows for rows in allowed if in_order(rows.values()) == rows_of_target)

    def go_on(self, rows: Rows) -> None:
        """A batch and all compactions are right after what happened."""
        model = Model(ORDERS, dict(rows))
        self.writer.commit(1, batch(3, model.apply([(1, "after"), (51, "after"), (99, "after")], [(91,)])))
        while self.writer.maintain():
            pass
        self.assert_rows(model.rows)


@pytest.fixture
def race(
    request: pytest.FixtureRequest, iceberg_catalog: IcebergCatalog, iceberg_spark: IcebergSpark, tmp_path: Path
) -> Race:
    ours, version, mode = request.param
    return Race(iceberg_catalog, iceberg_spark, tmp_path, ours, version, mode)


#: by the format version
OF_VERSION = {3: tuple(STATEMENTS), 2: ("rewrite", "merge copy-on-write", "delete merge-on-read")}
CASES = [
    pytest.param((ours, version, STATEMENTS[name].mode), STATEMENTS[name], id=f"{ours}-{name}-v{version}")
    for version, names in OF_VERSION.items()
    for ours in POLICIES
    for name in names
]


@pytest.mark.parametrize(("race", "statement"), CASES, indirect=["race"])
def test_spark_began_before_our_commit_and_commits_after_it(race: Race, statement: Statement) -> None:
    before = race.rows
    refused = race.race(lambda: race.run(statement), race.commit)
    ours = race.changed_by_us(before)
    if refused is not None:
        assert "ValidationException" in str(refused), refused
        race.go_on(race.assert_rows(ours))
        return
    race.go_on(race.assert_rows(statement.change(ours), race.changed_by_us(statement.change(before))))


@pytest.mark.parametrize(("race", "statement"), CASES, indirect=["race"])
def test_our_commit_began_before_sparks_and_comes_after_it(race: Race, statement: Statement) -> None:
    before = race.rows
    assert race.race(race.commit, lambda: race.run(statement)) is None
    race.go_on(race.assert_rows(race.changed_by_us(statement.change(before))))
