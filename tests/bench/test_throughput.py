"""Throughput beside the floor (the server's own client) and peers, in one run: `make bench`.

Nothing here passes or fails by a time; the tables are printed and added to `.cache/bench.txt`. CDCSYNC_BENCH_ROWS sets the
number of rows (default 200,000).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench import customers
from bench.measured import Figures, contender, measure, table
from cdcsync_mysql.connection import Source, Tls, connect
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.watermark import low
from support.fixtures import FreshDatabase
from support.servers import Server

ROWS = int(os.environ.get("CDCSYNC_BENCH_ROWS", "200000"))
#: mysql-replication is slow: it gets a part of the changes
REPLICATION_ROWS = 10_000
JDBC = "org.mariadb.jdbc:mariadb-java-client:3.5.11"
RESULTS = Path(__file__).parents[2] / ".cache" / "bench.txt"

pytestmark = [pytest.mark.timeout(3600), pytest.mark.spark]


@pytest.fixture(params=["mariadb1011", "mysql97_gtid"])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def folder(server: Server, tmp_path: Path) -> Path:
    server.create_user("bench", "bench", ["ALL"])
    (tmp_path / "username").write_text("bench")
    (tmp_path / "password").write_text("bench")
    return tmp_path


@pytest.fixture(scope="session")
def jdbc_jar(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("jdbc")
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    subprocess.run(["mvn", "-q", "-B", plugin, f"-Dartifact={JDBC}", f"-DoutputDirectory={target}"], check=True)
    return str(next(target.glob("*.jar")))


def test_snapshot(server: Server, fresh_database: FreshDatabase, folder: Path, jdbc_jar: str) -> None:
    database = fresh_database(server)
    customers.fill(server, database, ROWS)
    name, place = f"{database}.customer", (server.port, folder)
    figures = [
        _client(server, database),
        contender("cdcsync_snapshot_arrow", *place, name),
        contender("pymysql_arrow", *place, name),
        contender("cdcsync_snapshot_parquet", *place, name),
        contender("spark_jdbc_parquet", *place, name, jdbc_jar),
    ]
    _show(table(f"snapshot, {server.variant}, customer (18 columns)", figures, "client --quick"))
    assert {f.rows for f in figures} == {ROWS}


def test_stream(server: Server, fresh_database: FreshDatabase, folder: Path) -> None:
    database = fresh_database(server)
    customers.fill(server, database, ROWS)
    source = Source(server.host, server.port, folder / "username", folder / "password", Tls("disabled"))
    with connect(source) as connection:
        start = low(source, read_facts(connection))
    images = customers.change(server, database, ROWS, turn=1)
    name = f"{database}.customer"
    ours = contender("cdcsync_binlog_arrow", server.port, folder, name, json.dumps(start.to_dict()))
    file, offset = server.binlog_status()
    part = customers.change(server, database, REPLICATION_ROWS, turn=2)
    theirs = contender("mysql_replication", server.port, folder, name, file, offset)
    _show(table(f"stream, {server.variant}, row images into Arrow", [ours, theirs], "mysql_replication"))
    assert (ours.rows, theirs.rows) == (images, part)


def _client(server: Server, database: str) -> Figures:
    """The floor: rows are fetched and printed as text, nothing is made of them."""
    client = shutil.which("mariadb")
    assert client
    command = f"exec {client} --no-defaults --quick -h 127.0.0.1 -P {server.port} -u bench -pbench --skip-ssl "
    query = f"-e 'SELECT * FROM {database}.customer' >/dev/null"
    return measure("client --quick", ["sh", "-c", command + query], ROWS)


def _show(text: str) -> None:
    print(f"\n{text}\n")
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as results:
        results.write(text + "\n\n")
