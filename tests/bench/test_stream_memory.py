"""Whether a stream lives in the memory that its pod is given, and how much of it it uses:
`make bench ARGS='-k stream_memory'`.

A backlog is applied by `cdcsync run` in a control group with the limit of the pod; the process of
the controller is in it, too, which a pod does not have. The kernel ends what does not fit, so a run
that reaches its goal has lived in it. File pages fill what the processes leave, up to the limit.
CDCSYNC_BENCH_ROWS sets the rows of the table (default 200,000).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import customers
from bench.accounted import Group, account_fields, make_group
from bench.test_throughput import ROWS, show
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.timeout(1800), pytest.mark.spark]

_MIB = 1 << 20
#: the request and the limit of a stream's pod by default
LIMIT = 1024 * _MIB
_SAMPLE_SECONDS = 0.2


def _nothing(_: Server, __: str) -> None:
    pass


def _small(server: Server, database: str) -> None:
    """20,000 transactions of one row."""
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        for key in range(1, 20_001):
            cursor.execute(
                f"UPDATE customer SET c_birth_day = 1 + MOD({key}, 28), c_login = 'x' WHERE c_customer_sk = {key}"
            )


def _large(server: Server, database: str) -> None:
    """All rows, in transactions of 500 rows."""
    customers.change(server, database, ROWS, 1)


def _one(server: Server, database: str) -> None:
    """One transaction of all rows."""
    server.run("UPDATE customer SET c_birth_day = 1, c_login = 'changed', c_first_name = 'Ada'", db=database)


def _twice(server: Server, database: str) -> None:
    """One transaction that changes all rows, and half of them again."""
    with server.connect(db=database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE customer SET c_birth_day = 1, c_login = 'changed', c_first_name = 'Ada'")
        cursor.execute("UPDATE customer SET c_birth_day = 2 WHERE MOD(c_customer_sk, 2) = 0")
        connection.commit()


def _wide(server: Server, database: str) -> None:
    """200 MiB of texts of a megabyte."""
    server.run("CREATE TABLE texts (id INT PRIMARY KEY, body LONGTEXT NOT NULL)", db=database)
    for key in range(200):
        server.run(f"INSERT INTO texts VALUES ({key}, REPEAT('text ', 200000))", db=database)


@pytest.mark.parametrize("work", [_nothing, _small, _large, _one, _twice, _wide])
def test_stream_memory(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, work: Callable[[Server, str], None]
) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    customers.fill(server, database, ROWS)
    sync = Sync(server, [rf"{database}\..*"], tmp_path / "sync")
    subprocess.run(sync.run_command("snapshot"), check=True, capture_output=True)
    work(server, database)
    group = make_group()
    if group is None or group.memory_folder is None:
        pytest.skip("no control group can be made here")
    show(_limited(group, group.memory_folder, sync.run_command("caught-up"), work.__name__.strip("_")))


def _limited(group: Group, memory: Path, command: list[str], name: str) -> str:
    limit = next(p for p in (memory / "memory.limit_in_bytes", memory / "memory.max") if p.exists())
    limit.write_text(str(LIMIT))
    peak, ended = {"working set": 0, "of it the processes' own": 0}, threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            stat = account_fields(memory / "memory.stat")
            own = stat.get("total_rss", stat.get("anon", 0))
            for name, size in zip(peak, (group.working_set(), own), strict=True):
                peak[name] = max(peak[name], size)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        done = subprocess.run(command, capture_output=True, preexec_fn=group.enter, check=False)
    finally:
        ended.set()
        sampler.join()
        group.remove()
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    shown = ", ".join(f"{what} {size / _MIB:.0f}" for what, size in peak.items())
    return f"stream, table of {ROWS:,} rows, {name}, MiB of {LIMIT // _MIB} at the peak: {shown}"
