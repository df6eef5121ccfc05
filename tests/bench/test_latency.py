"""From a commit on the source until a version of the target has its rows, of the whole product:
`cdcsync run` with a real server.

    CDCSYNC_BENCH_SECONDS=60 make bench ARGS='-k latency'

1,000 rows a second are inserted (default: for 20 seconds), each with the server's clock at its
insert, the moment before its commit; a thread polls every few milliseconds whether the binlog's
next entry is there. Both clocks are one machine's.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("CDCSYNC_BENCH_SECONDS", "20"))
#: rows a transaction and transactions a second
ROWS, RATE = 20, 50
#: while the stream's first batches compile and warm; not counted
WARM_UP = 8.0
_LOOK_SECONDS = 0.004
_DDL = "CREATE TABLE ticks (id BIGINT AUTO_INCREMENT PRIMARY KEY, made DATETIME(6) NOT NULL, word VARCHAR(40) NOT NULL)"


class Watcher(threading.Thread):
    """When each entry of a table's log was first seen (unix seconds), by version."""

    def __init__(self, log: Path) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._ending = threading.Event()
        self.next = max(int(p.stem) for p in log.glob("*.json")) + 1
        self.seen: dict[int, float] = {}

    def run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            while (self._log / f"{self.next:020d}.json").exists():
                self.seen[self.next] = time.time()
                self.next += 1

    def stop(self) -> None:
        self._ending.set()
        self.join()


def insert(server: Server, database: str, seconds: float) -> int:
    """1,000 rows a second; the number of rows."""
    values = ", ".join(["(SYSDATE(6), 'a word that is as long as others')"] * ROWS)
    count, begun = 0, time.monotonic()
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        while (due := begun + count / RATE) < begun + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            cursor.execute(f"INSERT INTO ticks (made, word) VALUES {values}")
            count += 1
    return count * ROWS


def latencies(table: Path, seen: dict[int, float], after: float) -> npt.NDArray[np.float64]:
    """Seconds from insert to visibility of each row that was made after `after` (unix seconds)."""
    parts = []
    for version, when in seen.items():
        for line in (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines():
            add = json.loads(line).get("add")
            if add and add["dataChange"] and "deletionVector" not in add:
                made = pq.read_table(table / add["path"], columns=["made"])["made"].cast(pa.int64()).to_numpy() / 1e6
                parts.append(when - made[made >= after])
    return np.concatenate(parts)


@pytest.mark.parametrize("interval", ["1s", "100ms"])
def test_latency(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, interval: str) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    server.run(_DDL, "INSERT INTO ticks (made, word) VALUES (SYSDATE(6), 'first')", db=database)
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec={"stream": {"interval": interval}}) as sync:
        sync.start("forever")
        sync.wait_for(lambda status: status.get("tables", {}).get("streaming") == 1)
        table = sync.path(f"{database}.ticks")
        server.run("INSERT INTO ticks (made, word) VALUES (SYSDATE(6), 'second')", db=database)
        sync.wait_until(lambda: sync.target(f"{database}.ticks").num_rows == 2, "the stream's first commit")
        warmed = insert(server, database, WARM_UP)
        watcher, after = Watcher(table / "_delta_log"), time.time()
        watcher.start()
        before = _cpu(sync)
        rows = insert(server, database, SECONDS)
        spent = _cpu(sync) - before
        sync.wait_until(lambda: sync.target(f"{database}.ticks").num_rows == 2 + warmed + rows, "all rows are there")
        watcher.stop()
        found = latencies(table, watcher.seen, after)
        at = np.percentile(found, [50, 95, 100])
        print(
            f"\n| interval | rows | commits | median s | 95 % s | slowest s | CPU of the product, s a second |\n|{'---|' * 7}\n"
            f"| {interval} | {len(found):,} | {len(watcher.seen)} | {at[0]:.3f} | {at[1]:.3f} | {at[2]:.3f} | {spent / SECONDS:.2f} |"
        )
        assert len(found) == rows


def _cpu(sync: Sync) -> float:
    """CPU seconds of all that is alive of the sync."""
    return sum(sum(p.cpu_times()[:2]) for p in sync.processes() if p.status() != psutil.STATUS_ZOMBIE)
