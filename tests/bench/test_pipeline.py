"""A backlog of changes from a real server's log into a Delta table, end to end: read, decode, fold,
commit, maintenance.

    CDCSYNC_BENCH_CHANGES=5000000 make bench ARGS='-k pipeline'

The default is 200,000 changes. The table is TPC-DS `customer` (18 columns); a change is a row that
was updated (8 columns of it) or deleted. The target must end with the source's rows.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench import customers
from bench.measured import contender
from bench.pipeline import snapshot, target_in
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Source, Tls
from support.fixtures import FreshDatabase
from support.lake import query
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

CHANGES = int(os.environ.get("CDCSYNC_BENCH_CHANGES", "200000"))
TURNS = 5
ROWS = max(1, CHANGES // TURNS // 10_000) * 10_000
_SUMS = "count(*), sum(c_customer_sk), sum(c_birth_day), sum(c_current_addr_sk), sum(c_last_review_date_sk)"


def test_pipeline(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    server.create_user("bench", "bench", ["ALL"])
    (tmp_path / "username").write_text("bench")
    (tmp_path / "password").write_text("bench")
    source = Source(
        server.host, server.port, tmp_path / "username", tmp_path / "password", Tls("disabled", allow_unverified=True)
    )
    table = TableId(database, "customer")
    customers.fill(server, database, ROWS)
    snapshot(source, tmp_path, table)
    changes, images = backlog(server, database)

    figures = contender("cdcsync_pipeline", server.port, tmp_path, table)
    parts = json.loads((tmp_path / "parts.json").read_text())
    print(
        f"\n| changes | row images | wall s | CPU s | changes a second | a CPU second | batches | waiting s | applying s "
        f"| maintenance s | slowest batch s | peak MiB |\n|{'---|' * 12}\n"
        f"| {changes:,} | {figures.rows:,} | {figures.wall:.1f} | {figures.cpu:.1f} | {changes / figures.wall:,.0f} "
        f"| {changes / figures.cpu:,.0f} | {parts['batches']} | {parts['waiting']:.1f} | {parts['applying']:.1f} "
        f"| {parts['tending']:.1f} | {parts['slowest']:.2f} | {figures.memory:.0f} |"
    )
    assert figures.rows == images
    check(server, table, target_in(tmp_path, table).uri)


def test_pipeline_of_the_product(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """The same backlog through `cdcsync run`: reader and driver are two processes there, and a JVM
    between them. The rate is that of the commits after the first: rows in their data files, which
    deletes are not, over the time from the first to the last."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    customers.fill(server, database, ROWS)
    table = TableId(database, "customer")
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec={"stream": {"interval": "1s"}}) as sync:
        sync.run_to_completion()
        log = sync.path(str(table)) / "_delta_log"
        known = set(log.glob("*.json"))
        changes = backlog(server, database)[0]
        begun = time.monotonic()
        sync.run_to_completion()
        wall = time.monotonic() - begun
        commits = sorted(
            (p.stat().st_mtime, rows) for p in set(log.glob("*.json")) - known if (rows := _merged_rows(p))
        )
        seconds, merged = commits[-1][0] - commits[0][0], sum(rows for _, rows in commits[1:])
        print(
            f"\n| changes | commits | from the first to the last, s | rows a second | whole run, s |\n|{'---|' * 5}\n"
            f"| {changes:,} | {len(commits)} | {seconds:.1f} | {merged / max(seconds, 0.001):,.0f} | {wall:.1f} |"
        )
        check(server, table, str(sync.path(str(table))))


def backlog(server: Server, database: str) -> tuple[int, int]:
    """Changes all rows `TURNS` times; changes and their row images."""
    images = sum(customers.change(server, database, ROWS, turn) for turn in range(TURNS))
    deleted = ROWS * TURNS // 100
    return images - (images - deleted) // 2, images


def check(server: Server, table: TableId, uri: str) -> None:
    found = query(DeltaTable(uri), f"SELECT {_SUMS} FROM t")
    expected = server.query(f"SELECT {_SUMS} FROM {table}")[0]
    assert tuple(column[0].as_py() for column in found.columns) == tuple(int(value) for value in expected)


def _merged_rows(entry: Path) -> int:
    """Rows of the data file of a MERGE; 0 for other entries."""
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    if not any(action.get("commitInfo", {}).get("operation") == "MERGE" for action in actions):
        return 0
    added = [a["add"] for a in actions if "add" in a and "deletionVector" not in a["add"]]
    return sum(json.loads(add["stats"])["numRecords"] for add in added)
