"""Whether a stream lives in the memory that its pod is given, and how much of it it uses:
`make bench ARGS='-k stream_memory'`.

A backlog is applied by `cdcsync run` in a control group with the limit of the pod; the process of
the controller is in it, too, which a pod does not have. The kernel ends what does not fit, so a run
that reaches its goal has lived in it. File pages fill what the processes leave, up to the limit.
CDCSYNC_BENCH_ROWS sets the rows of the table (default 200,000).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

from bench import customers, large_table
from bench.accounted import account_fields, make_group
from bench.large_table import KEYS
from bench.measured import show
from support.fixtures import FreshDatabase
from support.lake import query
from support.servers import Server
from support.sync_process import Sync
from support.throughput import ROWS

pytestmark = [pytest.mark.timeout(max(1800, ROWS // 10_000)), pytest.mark.spark]

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
    peaks = run_limited(sync.run_command("caught-up"))
    show(f"stream, table of {ROWS:,} rows, {work.__name__.strip('_')}, {peaks}")


def _sequence(server: Server, database: str, rows: int) -> None:
    server.run(
        "SET sql_log_bin = 0",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b VARCHAR(24), c DECIMAL(10,2), d DATETIME(3)) "
        "SELECT seq AS id, seq % 1000 AS a, CONCAT('row ', seq) AS b, seq / 100 AS c, "
        f"FROM_UNIXTIME(1.6e9 + seq) AS d FROM seq_1_to_{rows}",
        db=database,
    )


def _uniform(server: Server, database: str, rows: int) -> None:
    """20,000 changes in transactions of 500, of keys all over the table."""
    random = Random(1)
    with server.connect(db=database, autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(40):
            keys = ", ".join(str(random.randint(1, rows)) for _ in range(500))
            cursor.execute(f"UPDATE t SET a = a + 1 WHERE id IN ({keys})")
            connection.commit()


def test_start_on_a_large_table(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """A table that the server makes by a sequence, so that it may have tens of millions of rows."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    _sequence(server, database, ROWS)
    snapshot = {"snapshot": {"chunkSize": 200_000}}
    sync = Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=snapshot)
    subprocess.run(sync.run_command("snapshot"), check=True, capture_output=True)
    _uniform(server, database, ROWS)
    begun = time.monotonic()
    peaks = run_limited(sync.run_command("caught-up"))
    seconds = time.monotonic() - begun
    logs = "\n".join(path.read_text() for path in (tmp_path / "sync").rglob("*.log"))
    index = re.findall(r"read keys into the index.* seconds=([\d.]+)", logs)
    show(f"start on a table of {ROWS:,} rows, {seconds:.0f} s, index {', '.join(index)} s, {peaks}")
    assert server.query("SELECT COUNT(*), SUM(a) FROM t", db=database)[0] == tuple(
        column[0].as_py() for column in query(sync.delta(f"{database}.t"), "SELECT count(*), sum(a) FROM t").columns
    )


@pytest.mark.parametrize("again", ["id < 0", "id % 2 = 0"], ids=["once", "half-twice"])
def test_one_transaction_of_all_rows_of_a_large_table(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, again: str
) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    _sequence(server, database, ROWS)
    sync = Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec={"snapshot": {"chunkSize": 200_000}})
    subprocess.run(sync.run_command("snapshot"), check=True, capture_output=True)
    with server.connect(db=database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE t SET a = a + 1")
        cursor.execute(f"UPDATE t SET a = a + 1 WHERE {again}")
        connection.commit()
    peaks = run_limited(sync.run_command("caught-up"))
    show(f"one transaction of {ROWS:,} rows, and of those with {again} once more, {peaks}")
    assert server.query("SELECT COUNT(*), SUM(a) FROM t", db=database)[0] == tuple(
        column[0].as_py() for column in query(sync.delta(f"{database}.t"), "SELECT count(*), sum(a) FROM t").columns
    )


@pytest.mark.parametrize("kind", KEYS)
def test_key_index_of_a_large_table(tmp_path: Path, kind: str) -> None:
    """The writer of a stream alone, on a table that is written here: the index, then 30 batches of
    10,000 changes of keys all over the table."""
    program = [sys.executable, str(Path(large_table.__file__))]
    environment = os.environ | {"PYTHONPATH": str(Path(large_table.__file__).parents[1])}
    subprocess.run([*program, "fill", str(tmp_path), kind, str(ROWS)], env=environment, check=True)
    result = tmp_path / "figures"
    peaks = run_limited([*program, "stream", str(tmp_path), kind, str(ROWS), str(result)], environment)
    seconds = json.loads(result.read_text())
    rate = 1 / (seconds["commit"] + seconds["maintenance"])
    shown = ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())
    show(f"{kind} keys, {ROWS:,} rows, seconds: {shown}, commits a second {rate:.1f}, {peaks}")


def run_limited(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """Runs `command` to its end in a group with the limit of the pod: the peaks."""
    group = make_group()
    if group is None or group.memory_folder is None:
        pytest.skip("no control group can be made here")
    memory = group.memory_folder
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
        done = subprocess.run(command, env=environment, capture_output=True, preexec_fn=group.enter, check=False)
    finally:
        ended.set()
        sampler.join()
        group.remove()
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    shown = ", ".join(f"{what} {size / _MIB:.0f}" for what, size in peak.items())
    return f"MiB of {LIMIT // _MIB} at the peak: {shown}"
