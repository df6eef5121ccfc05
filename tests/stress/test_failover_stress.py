"""Failover under fire: sixteen writers, a primary that is killed again and again while its replica
is promoted, and a sync whose processes are killed at random. At the end each table equals the last
primary, and one that was resnapshotted has a reason (rule R6)."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from support.fixtures import variants
from support.kills import PARTS
from support.relay import relay_to
from support.replicas import OPTIONS, await_replica, promote, replicate
from support.servers import VARIANTS, Server
from support.sync_process import ACCOUNT, GRANTS, PASSWORD, Sync
from support.table_status import entry

_WRITERS, _TABLES, _KEYS = 16, 4, 500
_ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "3"))
#: between two kills of a primary, and the most between two of ours
_ROUND_SECONDS, _OURS_SECONDS = 60.0, 20.0
_REASONS = {"HistoryDiverged", "PositionLost"}

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(7200)]


@dataclass
class Primary:
    """The server that writers write to; they stop meanwhile where there is none."""

    server: Server | None
    stopping: threading.Event = field(default_factory=threading.Event)
    written: int = 0

    def write(self, number: int) -> None:
        """Rows of one key in the order in which they are committed, by one writer a key."""
        rng = random.Random(number)
        while not self.stopping.is_set():
            server = self.server
            with suppress(pymysql.MySQLError, OSError):
                if server is not None:
                    self._write_to(server, number, rng)
            time.sleep(0.05)

    def _write_to(self, server: Server, number: int, rng: random.Random) -> None:
        with server.connect(db="h") as connection, connection.cursor() as cursor:
            while server is self.server and not self.stopping.is_set():
                table, key = rng.randrange(_TABLES), number * _KEYS + rng.randrange(_KEYS)
                if rng.random() < 0.1:
                    cursor.execute(f"DELETE FROM t{table} WHERE id = {key}")
                else:
                    cursor.execute(f"REPLACE INTO t{table} VALUES ({key}, {rng.randrange(10**9)})")
                self.written += 1
                time.sleep(0.01)


@contextmanager
def _writers(primary: Primary) -> Iterator[None]:
    threads = [threading.Thread(target=primary.write, args=(number,)) for number in range(_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        primary.stopping.set()
        for thread in threads:
            thread.join()


class Servers:
    """A primary and its replica; each promotion brings a new replica."""

    def __init__(self, variant: str, folder: Path, stack: ExitStack) -> None:
        self._variant, self._folder, self._stack, self._started = variant, folder, stack, 0
        self.primary, self.replica = self._start(), self._start()
        replicate(self.primary, self.replica)

    def _start(self) -> Server:
        self._started += 1
        options = OPTIONS[self._variant] | {"server_id": 100 + self._started}
        server = VARIANTS[self._variant].start(self._folder / f"server-{self._started}", **options)
        self._stack.callback(server.remove)
        server.create_user(ACCOUNT, PASSWORD, GRANTS[server.flavor])
        return server

    def fail_over(self) -> None:
        self.primary.kill()
        promote(self.replica)
        self.primary, self.replica = self.replica, self._start()
        replicate(self.primary, self.replica)


def _kill_ours(sync: Sync, rng: random.Random) -> str:
    """One part of the sync, or all of it; a controller that is gone is started again."""
    part = rng.choice([*PARTS, None])
    if part is None:
        sync.kill_all()
    else:
        sync.kill(part)
    if not sync.running:
        sync.start("forever")
    return part or "all"


def _rows(sync: Sync, table: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in sync.target(f"h.{table}").select(["id", "v"]).to_pylist())


def _all_stream(status: dict[str, Any]) -> bool:
    return int(status.get("tables", {}).get("streaming", 0)) == _TABLES


@variants("mysql97_gtid", "mariadb1011_loose")
def test_each_table_is_the_last_primarys(variant: str, tmp_path: Path) -> None:
    rng, tables = random.Random(36), [f"t{number}" for number in range(_TABLES)]
    with ExitStack() as stack:
        servers = Servers(variant, tmp_path, stack)
        servers.primary.run("CREATE DATABASE h", *(f"CREATE TABLE h.{t} (id INT PRIMARY KEY, v INT)" for t in tables))
        relay = stack.enter_context(relay_to(servers.primary.host, servers.primary.port))
        restarts = {"backoff": {"initial": "2s", "max": "10s"}}
        spec = {"source": {"port": relay.port}, "onPositionLost": "resnapshot", "autoRestart": restarts}
        account = (ACCOUNT, PASSWORD)
        sync = stack.enter_context(Sync(servers.primary, [r"h\..*"], tmp_path / "sync", spec=spec, account=account))
        primary, kills = Primary(servers.primary), list[str]()
        with _writers(primary):
            sync.start("forever")
            sync.wait_for(_all_stream)
            for _ in range(_ROUNDS):
                until = time.monotonic() + _ROUND_SECONDS
                while (left := until - time.monotonic()) > 0:
                    time.sleep(min(left, rng.uniform(1, _OURS_SECONDS)))
                    kills.append(_kill_ours(sync, rng))
                primary.server = None
                servers.fail_over()
                relay.lead_to(servers.primary.host, servers.primary.port)
                primary.server = servers.primary
            await_replica(servers.primary, servers.replica)
        last = {t: sorted(servers.primary.query(f"SELECT id, v FROM h.{t}")) for t in tables}
        if not sync.running:
            sync.start("forever")
        status = sync.wait_for(lambda s: _all_stream(s) and all(_rows(sync, t) == last[t] for t in tables), timeout=900)
        shown = {t: entry(status, f"h.{t}") for t in tables}
        resnapshots = {t: (e["resnapshot"] or {}).get("reason", "") for t, e in shown.items() if e["generation"]}
        print(f"{variant}: {_ROUNDS} failovers, kills {kills}, {primary.written} writes, rows "
              f"{ {t: len(rows) for t, rows in last.items()} }, resnapshots {resnapshots}")  # fmt: skip
        assert set(resnapshots.values()) <= _REASONS
        assert all(e["position"]["binlog"] == servers.primary.binlog_end().binlog for e in shown.values())
