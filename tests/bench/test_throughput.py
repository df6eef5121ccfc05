"""Throughput compared with the floor (the server's own client) and peers, in one run: `make bench`.

Nothing here passes or fails by a time; the tables are printed and added to `.cache/bench.txt`.
CDCSYNC_BENCH_ROWS sets the number of rows (default 200,000).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import alltypes, customers
from bench.measured import Figures, contender, measure, show, table
from support.fixtures import FreshDatabase
from support.servers import Server
from support.throughput import ROWS, account, binlog_end, jdbc_jar, printed, server

#: mysql-replication is slow: it gets a part of the changes
REPLICATION_ROWS = 30_000
#: how often all rows are changed: two images each time
TURNS = 5
#: what a reader may take, whatever it reads
MEMORY_MIB = 300
CLIENT = "client --quick"

__all__ = ["jdbc_jar", "server"]

pytestmark = [pytest.mark.timeout(3600), pytest.mark.spark]


@pytest.fixture
def folder(server: Server, tmp_path: Path) -> Path:
    return account(server, tmp_path)


def test_snapshot(server: Server, fresh_database: FreshDatabase, folder: Path, jdbc_jar: str) -> None:
    database = fresh_database(server)
    customers.fill(server, database, ROWS)
    name, place = f"{database}.customer", (server.port, folder)
    figures = [
        _client(server, name, ROWS),
        contender("cdcsync_snapshot_arrow", *place, name),
        contender("pymysql_arrow", *place, name),
        contender("cdcsync_snapshot_parquet", *place, name),
        contender("spark_jdbc_parquet", *place, name, "c_customer_sk", jdbc_jar),
        contender("spark_session"),
    ]
    show(table(f"snapshot, {server.variant}, customer (18 columns)", figures, CLIENT))
    assert [f.rows for f in figures] == [ROWS] * 5 + [1]


def test_snapshot_of_all_types(server: Server, fresh_database: FreshDatabase, folder: Path, jdbc_jar: str) -> None:
    database, rows = fresh_database(server), ROWS // 5
    alltypes.create(server, database)
    alltypes.insert(server, database, 1, rows)
    name, place = f"{database}.alltypes", (server.port, folder)
    figures = [
        _client(server, name, rows),
        contender("cdcsync_snapshot_arrow", *place, name),
        contender("pymysql_arrow", *place, name),
        contender("cdcsync_snapshot_parquet", *place, name),
        contender("spark_jdbc_parquet", *place, name, "id", jdbc_jar, alltypes.known_to_jdbc(server)),
    ]
    title = f"snapshot, {server.variant}, all types ({alltypes.columns(server)} columns)"
    show(table(title, figures, CLIENT))
    assert {f.rows for f in figures} == {rows}


def test_memory_of_long_rows(mysql97_gtid: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """A reader's memory is a few buffers, and twice a row that is longer than those: here rows of
    50 MB."""
    server, folder = mysql97_gtid, account(mysql97_gtid, tmp_path)
    database = fresh_database(server)
    server.run("CREATE TABLE long_rows (id INT PRIMARY KEY, b LONGBLOB)", db=database)
    for i in range(4):
        server.run(f"INSERT INTO long_rows VALUES ({i}, REPEAT('x', 50000000))", db=database)
    figures = contender("cdcsync_snapshot_arrow", server.port, folder, f"{database}.long_rows")
    show(table(f"snapshot, {server.variant}, rows of 50 MB", [figures], figures.name))
    assert figures.rows == 4
    assert figures.memory < MEMORY_MIB


def test_stream(server: Server, fresh_database: FreshDatabase, folder: Path) -> None:
    database = fresh_database(server)
    customers.fill(server, database, ROWS)
    start = binlog_end(server, folder)
    images = sum(customers.change(server, database, ROWS, turn) for turn in range(TURNS))
    name = f"{database}.customer"
    every = contender("cdcsync_binlog_arrow", server.port, folder, name, start)
    folded = contender("cdcsync_binlog_folded", server.port, folder, name, start)
    file, offset = server.binlog_status()
    part = customers.change(server, database, REPLICATION_ROWS, TURNS)
    theirs = contender("mysql_replication", server.port, folder, name, file, offset)
    show(table(f"stream, {server.variant}, row images into Arrow", [every, folded, theirs], "mysql_replication"))
    assert (every.rows, folded.rows, theirs.rows) == (images, images, part)


def test_stream_of_all_types(server: Server, fresh_database: FreshDatabase, folder: Path) -> None:
    database = fresh_database(server)
    alltypes.create(server, database)
    start, (file, offset) = binlog_end(server, folder), server.binlog_status()
    alltypes.insert(server, database, 1, REPLICATION_ROWS)
    name = f"{database}.alltypes"
    theirs = contender("mysql_replication", server.port, folder, name, file, offset)
    alltypes.insert(server, database, REPLICATION_ROWS + 1, ROWS)
    ours = contender("cdcsync_binlog_arrow", server.port, folder, name, start)
    title = f"stream, {server.variant}, rows of all types ({alltypes.columns(server)} columns) into Arrow"
    show(table(title, [ours, theirs], "mysql_replication"))
    assert (ours.rows, theirs.rows) == (REPLICATION_ROWS + ROWS, REPLICATION_ROWS)


def test_stream_of_single_rows(server: Server, fresh_database: FreshDatabase, folder: Path) -> None:
    """Each row in a transaction of its own: the cost of an event, four or five of them a row."""
    _small_transactions(server, fresh_database(server), folder, customers.change_one_by_one, "one row")


def test_stream_of_twelve_changes(server: Server, fresh_database: FreshDatabase, folder: Path) -> None:
    """Twelve changes in a transaction, by five statements; they have seventeen images."""
    _small_transactions(server, fresh_database(server), folder, customers.change_in_twelves, "twelve changes")


def _small_transactions(
    server: Server, database: str, folder: Path, change: Callable[[Server, str, int], int], title: str
) -> None:
    customers.fill(server, database, ROWS)
    start, (file, offset) = binlog_end(server, folder), server.binlog_status()
    images = change(server, database, ROWS)
    name = f"{database}.customer"
    ours = contender("cdcsync_binlog_folded", server.port, folder, name, start)
    single = contender("cdcsync_binlog_single_events", server.port, folder, name, start)
    contenders = [ours, single, *printed(server, file, offset, images)]
    show(table(f"stream, {server.variant}, transactions of {title}", contenders, contenders[-1].name))
    assert (ours.rows, single.rows) == (images, images)


def test_memory_of_a_large_transaction(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """A reader's memory does not grow with a transaction: here one of 25 times ROWS rows."""
    server = mariadb1011
    folder = account(server, tmp_path)
    database = fresh_database(server)
    server.run("CREATE TABLE wide (id INT PRIMARY KEY, a INT, b INT, c VARCHAR(40))", db=database)
    start = binlog_end(server, folder)
    rows = 25 * ROWS
    filled = f"INSERT INTO wide SELECT seq, seq * 2, NULL, CONCAT('number ', seq) FROM seq_1_to_{rows}"
    server.run(filled, db=database)
    figures = contender("cdcsync_binlog_arrow", server.port, folder, f"{database}.wide", start)
    show(table(f"stream, {server.variant}, one transaction", [figures], figures.name))
    assert figures.rows == rows
    assert figures.memory < MEMORY_MIB


def _client(server: Server, name: str, rows: int) -> Figures:
    """The floor: rows are fetched and printed as text, nothing is made of them."""
    client = shutil.which("mariadb")
    assert client
    command = f"exec {client} --no-defaults --quick -h 127.0.0.1 -P {server.port} -u bench -pbench --skip-ssl "
    query = f"-e 'SELECT * FROM {name}' >/dev/null"
    return measure(CLIENT, ["sh", "-c", command + query], rows)
