"""What `cdcsync run` costs as a whole, start and controller included:
`make bench ARGS='-k test_product'`.

CDCSYNC_BENCH_ROWS sets the rows of `customer` (default 200,000), CDCSYNC_BENCH_TABLES the number of
small tables (default 500). The same file run on another commit gives that one's figures.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import customers
from bench.flink_cdc import snapshot_to_parquet
from bench.measured import Figures, by_part, contender, measure, show, table
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync
from support.throughput import JDBC_DELTA, ROWS, account, jdbc_jar

pytestmark = [pytest.mark.timeout(3600), pytest.mark.spark]
__all__ = ["jdbc_jar"]

_TABLES, _SMALL = int(os.environ.get("CDCSYNC_BENCH_TABLES", "500")), 100


def _run(name: str, sync: Sync, until: str, rows: int) -> Figures:
    return measure(name, sync.run_command(until), rows)


def test_product_snapshot(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, jdbc_jar: str) -> None:
    """`customer` to Delta, compared with Spark's JDBC reader to Delta."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    ours = _snapshot(server, database, tmp_path)
    place = (server.port, account(server, tmp_path), f"{database}.customer")
    theirs = contender(JDBC_DELTA, *place, "c_customer_sk", jdbc_jar)
    show(table(f"whole program, {server.variant}, customer to Delta", [ours, theirs], JDBC_DELTA))
    assert theirs.rows == ROWS


def test_product_snapshot_beside_flink(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """The same compared with Flink CDC to Parquet files; the column `x floor` is how many times our
    CPU seconds a row it needs."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    ours = _snapshot(server, database, tmp_path)
    folder, name = account(server, tmp_path), f"{database}.customer"
    figures = [
        ours,
        snapshot_to_parquet(server, folder, name, "streaming"),
        snapshot_to_parquet(server, folder, name, "streaming", "G1"),
        snapshot_to_parquet(server, folder, name, "batch"),
    ]
    show(table(f"whole program, {server.variant}, customer beside Flink", figures, ours.name))
    assert [f.rows for f in figures] == [ROWS] * 4


def _snapshot(server: Server, database: str, folder: Path) -> Figures:
    """Fills `customer` and copies it to Delta."""
    customers.fill(server, database, ROWS)
    spec = {"snapshot": {"chunkSize": 50_000, "parallelism": 2}}
    sync = Sync(server, [rf"{database}\.customer"], folder / "sync", spec=spec)
    figures = _run("cdcsync run --until snapshot", sync, "snapshot", ROWS)
    assert sync.target(f"{database}.customer").num_rows == ROWS
    return figures


def test_product_many_small_tables(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """Many tables of 100 rows from nothing to caught up, then a run with nothing to do."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    numbers = "SELECT seq, REPEAT('x', 20) FROM seq_1_to_100"
    for n in range(_TABLES):
        server.run(
            f"CREATE TABLE t{n} (id INT PRIMARY KEY, v VARCHAR(40)) {numbers.replace('seq,', 'seq AS id,')}",
            db=database,
        )
    defaults = {"snapshot": {"chunkSize": 50_000, "parallelism": 8}}
    sync = Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=defaults)
    first = _run(f"{_TABLES} tables, to caught up", sync, "caught-up", _TABLES * _SMALL)
    again = _run(f"{_TABLES} tables, nothing to do", sync, "caught-up", _TABLES * _SMALL)
    lines = [table(f"whole program, {server.variant}, {_TABLES} tables of {_SMALL} rows", [first, again], first.name)]
    lines += [f"{f.name}: of it {by_part(f.parts)}" for f in (first, again)]
    show("\n".join(lines))
    assert sync.target(f"{database}.t{_TABLES - 1}").num_rows == _SMALL


def test_product_fixed_costs(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """A first run of one row to caught up, a run with nothing to do, a run with one change."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", db=database)
    sync = Sync(server, [rf"{database}\..*"], tmp_path / "sync")
    figures = [_run("first run, one row", sync, "caught-up", 1), _run("nothing to do", sync, "caught-up", 1)]
    server.run("INSERT INTO t VALUES (2)", db=database)
    figures.append(_run("one change", sync, "caught-up", 1))
    show(table(f"whole program, {server.variant}, fixed costs", figures, "nothing to do"))
    assert sync.target(f"{database}.t").num_rows == 2
