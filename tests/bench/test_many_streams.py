"""What many streams on one source cost at rest: `make bench ARGS='-k many_streams'`.

CDCSYNC_BENCH_STREAMS syncs (default 20), each a `cdcsync run` of its own, follow a table of one row
each in the same server, first without a change, then with an insert a second into each. CPU seconds
are those of the control group that all their processes are in, for a minute; memory is their PSS.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.accounted import Group, make_group
from bench.measured import show
from support.fixtures import FreshDatabase
from support.servers import Server
from support.streams_at_rest import start_within
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

STREAMS = int(os.environ.get("CDCSYNC_BENCH_STREAMS", "20"))
_SECONDS = 60
#: as many start at once
_STARTING = 4


def test_many_streams(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    group = make_group()
    if group is None:
        pytest.skip("no control group can be made here")
    server = mariadb1011
    databases = [fresh_database(server) for _ in range(STREAMS)]
    with ExitStack() as running:
        syncs = [running.enter_context(_sync(server, name, tmp_path / str(n))) for n, name in enumerate(databases)]
        started = time.monotonic()
        for first in range(0, STREAMS, _STARTING):
            for sync in syncs[first : first + _STARTING]:
                start_within(sync, group)
            for sync in syncs[first : first + _STARTING]:
                sync.wait_for(lambda status: status.get("tables", {}).get("streaming") == 1, timeout=600)
        lines = [
            f"{STREAMS} streams on one source, {server.variant}, a minute; started in {time.monotonic() - started:.0f} s"
        ]
        lines.append(_measured("no change", group, syncs, lambda: time.sleep(_SECONDS)))
        lines.append(_measured("an insert a second in each", group, syncs, lambda: _insert(server, databases)))
        for sync, database in zip(syncs, databases, strict=True):
            _await_rows(sync, f"{database}.t")
    group.remove()
    show("\n".join(lines))


def _sync(server: Server, database: str, folder: Path) -> Sync:
    server.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)", "INSERT INTO t (v) VALUES (1)", db=database)
    spec = {"stream": {"interval": "1s"}, "source": {"heartbeatInterval": "30s"}}
    return Sync(server, [rf"{database}\..*"], folder, name=database, spec=spec)


def _await_rows(sync: Sync, table: str) -> None:
    sync.wait_until(lambda: sync.target(table).num_rows == 1 + _SECONDS, "all rows are there")


def _insert(server: Server, databases: list[str]) -> None:
    begun = time.monotonic()
    with server.connect() as connection, connection.cursor() as cursor:
        for second in range(_SECONDS):
            time.sleep(max(0.0, begun + second - time.monotonic()))
            for database in databases:
                cursor.execute(f"INSERT INTO `{database}`.t (v) VALUES (1)")
    time.sleep(max(0.0, begun + _SECONDS - time.monotonic()))


def _measured(name: str, group: Group, syncs: list[Sync], work: object) -> str:
    assert callable(work)
    before, begun = group.cpu(), time.monotonic()
    work()
    cpu = (group.cpu() - before) / ((time.monotonic() - begun) / 60)
    memory = sum(p.memory_full_info().pss for sync in syncs for p in sync.processes()) / (1 << 20)
    return f"{name:28} CPU s {cpu:6.2f} ({cpu / STREAMS:.2f} each)  PSS MiB {memory:8.0f} ({memory / STREAMS:.0f} each)"
