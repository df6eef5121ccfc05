"""What a stream costs while little happens: `make bench ARGS='-k stream_at_rest'`.

`cdcsync run` follows a table of one row: a minute without a change, then a minute with ten inserts
a second (`stream.interval: 1s`). CDCSYNC_BENCH_TABLES is how many tables it follows, default 1; one
of them gets the inserts. CPU seconds are those of the control group that all its processes are in,
memory is their PSS. CDCSYNC_BENCH_SECONDS is how long each is measured, default 60; figures are for
a minute.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bench.accounted import Group, make_group, part_of
from bench.measured import by_part, show
from support.fixtures import FreshDatabase
from support.servers import Server
from support.streams_at_rest import start_within
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("CDCSYNC_BENCH_SECONDS", "60"))
RATE = 10
TABLES = int(os.environ.get("CDCSYNC_BENCH_TABLES", "1"))
#: while the stream's first batches are compiled; not counted
_WARM_UP_SECONDS = 20.0


@dataclass(frozen=True)
class Rest:
    """`memory` is the PSS at the end, in MiB; `parts` the CPU seconds of each process."""

    name: str
    cpu: float
    memory: float
    parts: dict[str, float]


@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_stream_at_rest(
    request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path, variant: str
) -> None:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40))", db=database)
    for n in range(1, TABLES):
        server.run(f"CREATE TABLE t{n} LIKE t", f"INSERT INTO t{n} VALUES (1, 'a word')", db=database)
    spec = {"stream": {"interval": "1s"}, "source": {"heartbeatInterval": "30s"}}
    group = make_group()
    if group is None:
        pytest.skip("no control group can be made here")
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=spec) as sync:
        start_within(sync, group)
        sync.wait_for(lambda status: status.get("tables", {}).get("streaming") == TABLES, timeout=600)
        written = _insert(server, database, _WARM_UP_SECONDS)
        idle = _measured("idle", sync, group, lambda: time.sleep(SECONDS))
        trickle = _measured(f"{RATE} inserts a second", sync, group, lambda: _insert(server, database, SECONDS))
        written += int(SECONDS * RATE)
        sync.wait_until(lambda: sync.target(f"{database}.t").num_rows == written, "all rows are there")
    group.remove()
    show(_table(server.variant, [idle, trickle]))


def _insert(server: Server, database: str, seconds: float) -> int:
    begun, count = time.monotonic(), int(seconds * RATE)
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        for number in range(count):
            time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            cursor.execute("INSERT INTO t (v) VALUES ('a word that is as long as others')")
    return count


def _measured(name: str, sync: Sync, group: Group, work: object) -> Rest:
    assert callable(work)
    before, begun, parts = group.cpu(), time.monotonic(), _parts(sync)
    work()
    minutes = (time.monotonic() - begun) / 60
    spent = {part: (cpu - parts.get(part, 0.0)) / minutes for part, cpu in _parts(sync).items()}
    memory = sum(p.memory_full_info().pss for p in sync.processes()) / (1 << 20)
    return Rest(name, (group.cpu() - before) / minutes, memory, spent)


def _parts(sync: Sync) -> dict[str, float]:
    """CPU seconds so far, by kind of process."""
    found: dict[str, float] = {}
    for process in sync.processes():
        try:
            name, times = part_of(process.pid), process.cpu_times()
        except (psutil.Error, OSError):
            continue
        found[name] = found.get(name, 0.0) + times.user + times.system
    return found


def _table(variant: str, figures: list[Rest]) -> str:
    lines = [f"a stream at rest, {variant}, {TABLES} tables, a minute", f"{'':24}{'CPU s':>8}{'PSS MiB':>10}"]
    lines += [f"{f.name:24}{f.cpu:>8.2f}{f.memory:>10.0f}   of it {by_part(f.parts)}" for f in figures]
    return "\n".join(lines)
