"""A backlog of changes from a real server's log into a Delta table, end to end in one process: read, decode, fold, commit, upkeep.

    CDCSYNC_BENCH_CHANGES=5000000 make bench ARGS='-k pipeline'

The default is 200,000 changes. The table is TPC-DS `customer` (18 columns); a change is a row that was updated (8 columns of it)
or deleted. The target must end with the source's rows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench import customers
from bench.measured import contender
from bench.pipeline import snapshot, target_in
from cdcsync_core.table import TableId
from cdcsync_mysql.connection import Source, Tls
from support.fixtures import FreshDatabase
from support.lake import query
from support.servers import Server

pytestmark = [pytest.mark.timeout(3600)]

CHANGES = int(os.environ.get("CDCSYNC_BENCH_CHANGES", "200000"))
TURNS = 5
_SUMS = "count(*), sum(c_customer_sk), sum(c_birth_day), sum(c_current_addr_sk), sum(c_last_review_date_sk)"


def test_pipeline(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    server.create_user("bench", "bench", ["ALL"])
    (tmp_path / "username").write_text("bench")
    (tmp_path / "password").write_text("bench")
    source = Source(server.host, server.port, tmp_path / "username", tmp_path / "password", Tls("disabled"))
    table, rows = TableId(database, "customer"), max(1, CHANGES // TURNS // 10_000) * 10_000
    customers.fill(server, database, rows)
    snapshot(source, tmp_path, table)
    images = sum(customers.change(server, database, rows, turn) for turn in range(TURNS))
    deleted = rows * TURNS // 100
    changes = images - (images - deleted) // 2

    figures = contender("cdcsync_pipeline", server.port, tmp_path, table)
    parts = json.loads((tmp_path / "parts.json").read_text())
    print(
        f"\n| changes | row images | wall s | CPU s | changes a second | a CPU second | batches | waiting s | applying s "
        f"| upkeep s | slowest batch s | peak MiB |\n|{'---|' * 12}\n"
        f"| {changes:,} | {figures.rows:,} | {figures.wall:.1f} | {figures.cpu:.1f} | {changes / figures.wall:,.0f} "
        f"| {changes / figures.cpu:,.0f} | {parts['batches']} | {parts['waiting']:.1f} | {parts['applying']:.1f} "
        f"| {parts['tending']:.1f} | {parts['slowest']:.2f} | {figures.memory:.0f} |"
    )
    assert figures.rows == images
    found = query(DeltaTable(target_in(tmp_path, table).uri), f"SELECT {_SUMS} FROM t")
    expected = server.query(f"SELECT {_SUMS} FROM {table}")[0]
    assert tuple(column[0].as_py() for column in found.columns) == tuple(int(value) for value in expected)
