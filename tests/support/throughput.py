"""The server, the account and the figures of benchmarks of a throughput."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.measured import Figures, measure
from cdcsync_mysql.positions.watermark import low
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions.connection import Source, Tls, connect
from support import mysql97
from support.servers import Server

ROWS = int(os.environ.get("CDCSYNC_BENCH_ROWS", "200000"))
#: a contender that is the floor of a table
JDBC_DELTA = "spark_jdbc_delta"
JDBC = "org.mariadb.jdbc:mariadb-java-client:3.5.11"


@pytest.fixture(params=["mariadb1011", "mysql97_gtid"])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


def account(server: Server, folder: Path) -> Path:
    server.create_user("bench", "bench", ["ALL"])
    (folder / "username").write_text("bench")
    (folder / "password").write_text("bench")
    return folder


@pytest.fixture(scope="session")
def jdbc_jar(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("jdbc")
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    subprocess.run(["mvn", "-q", "-B", plugin, f"-Dartifact={JDBC}", f"-DoutputDirectory={target}"], check=True)
    return str(next(target.glob("*.jar")))


def printed(server: Server, file: str, offset: int, images: int) -> list[Figures]:
    """The rows as text by the server's own program, where it is installed."""
    if server.flavor == "mysql":
        program = f"chroot {mysql97.ROOT} /usr/bin/mysqlbinlog --no-defaults --get-server-public-key"
    elif shutil.which("mariadb-binlog"):
        program = "mariadb-binlog --no-defaults --skip-ssl"
    else:
        return []
    place = f"--read-from-remote-server --to-last-log --start-position={offset} {file}"
    command = f"exec {program} -v -h 127.0.0.1 -P {server.port} -u bench -pbench {place} >/dev/null"
    return [measure(f"{server.flavor} binlog -v", ["sh", "-c", command], images)]


def binlog_end(server: Server, folder: Path) -> str:
    """The position of the binlog's end, as JSON."""
    source = Source(
        server.host, server.port, folder / "username", folder / "password", Tls("disabled", allow_unverified=True)
    )
    with connect(source) as connection:
        return json.dumps(low(source, read_facts(connection)).to_dict())
