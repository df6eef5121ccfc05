"""What one more transaction of one row costs: the reader into Arrow files, `cdcsync run` into
Delta, the server's own program that prints the same rows, and, on MySQL, Debezium's engine, whose
records go nowhere: `make bench ARGS='-k small_transactions'`.

The marginal cost is the difference of the CPU seconds of two backlogs by the difference of their
transactions, so that starts do not count. CDCSYNC_BENCH_TRANSACTIONS sets those of the larger one
(default 200,000); the smaller one has a quarter of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import customers
from bench.debezium import debezium
from bench.measured import Figures, contender, measure, show
from support.debezium import BinlogPlace
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync
from support.throughput import account, binlog_end, printed, server

pytestmark = [pytest.mark.timeout(3600), pytest.mark.spark]
__all__ = ["server"]

MANY = int(os.environ.get("CDCSYNC_BENCH_TRANSACTIONS", "200000"))
FEW = MANY // 4


def test_small_transactions(server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    database, folder = fresh_database(server), account(server, tmp_path)
    customers.fill(server, database, MANY)
    sync = Sync(server, [rf"{database}\.customer"], tmp_path / "sync", spec={"stream": {"interval": "1s"}})
    with sync:
        sync.run_to_completion()
        few, many = (_measured(server, database, folder, sync, count) for count in (FEW, MANY))
    lines = [
        f"{name:34}{1e6 * (many[name].cpu - few[name].cpu) / (MANY - FEW):>10.1f}"
        f"{few[name].cpu:>10.2f}{many[name].cpu:>10.2f}{MANY / many[name].cpu:>14,.0f}"
        for name in many
    ]
    title = f"transactions of one row, {server.variant}, {FEW:,} and {MANY:,}"
    head = f"{'':34}{'us CPU':>10}{'CPU s':>10}{'CPU s':>10}{'tx/CPU s':>14}"
    show("\n".join([title, head, *lines]))


def _measured(server: Server, database: str, folder: Path, sync: Sync, count: int) -> dict[str, Figures]:
    """The same backlog read by each."""
    start, (file, offset) = binlog_end(server, folder), server.binlog_status()
    place = BinlogPlace.end_of(server) if server.flavor == "mysql" else None
    images = customers.change_one_by_one(server, database, count)
    name = f"{database}.customer"
    figures = [
        contender("cdcsync_binlog_folded", server.port, folder, name, start),
        *printed(server, file, offset, images),
        *([debezium(server, folder, name, place, count, name="Debezium, no sink")] if place else []),
        measure("cdcsync run, to Delta", sync.run_command("caught-up"), count),
    ]
    assert figures[0].rows == images
    return {f.name: f for f in figures}
