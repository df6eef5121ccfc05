"""A driver whose machine is gone: its dump stays on the server, and its successor goes on within a
minute."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.resource.spec import Spec, replica_ids
from cdcsync_mysql.readiness.preflight import preflight
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from support.dump import log_end
from support.fixtures import FreshServer, variants
from support.netns import RemoteMachine, clients
from support.semisync import until
from support.servers import Server
from support.source import connected, source_of

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
]
_IDS = replica_ids("shops", "shop")
#: a driver's end of a dump: it receives what comes until its machine is gone
_DRIVER = """
import sys, pymysql
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_spark.binlog.dump.client import BinlogClient
host, port, flavor, file, offset, replica_id = sys.argv[1:]
connection = pymysql.connect(host=host, port=int(port), user="driver", password="pw", autocommit=True)
connection.cursor().execute("SET SESSION net_write_timeout = 3600")  # as the product's sessions have it
start = FilePosition(LogOffset(file, int(offset)))
client = BinlogClient(
    connection, flavor=flavor, start=start, replica_id=int(replica_id), heartbeat_seconds=1, silence_seconds=600
)
for event in client.events():
    print(len(event), flush=True)
"""


@pytest.fixture
def machines() -> Iterator[list[RemoteMachine]]:
    with clients(1) as made:
        yield made


def _lose_a_driver(server: Server, machine: RemoteMachine, replica_id: int) -> None:
    """Its connection is full when the wire is cut and all that knew of it is gone: the server
    sends, and nothing answers."""
    end = log_end(server).at
    arguments = [machine.server_address, server.port, server.flavor, end.file, end.offset, replica_id]
    driver = subprocess.Popen(
        [*machine.command, sys.executable, "-c", _DRIVER, *map(str, arguments)], stdout=subprocess.PIPE
    )
    assert driver.stdout is not None
    assert driver.stdout.readline()
    machine.cut()
    driver.kill()
    driver.wait()
    driver.stdout.close()
    machine.remove()
    server.run(*["INSERT INTO d.t (v) VALUES (REPEAT('x', 1000000))"] * 8)
    sending = "SELECT 1 FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' AND state IN (%s, %s)"
    until(
        lambda: bool(server.query(sending.replace("%'", "%%'"), "Writing to net", "Sending to client")), "a full wire"
    )


def _settings(server: Server, start: Position, folder: Path) -> ReaderSettings:
    with connected(server) as (_, facts):
        lineage = facts.lineage
    return ReaderSettings(
        source=source_of(server, "driver", "pw"),
        lineage=lineage,
        replica_id=_IDS[0],
        tables={},
        start=start,
        ahead={},
        heartbeat_seconds=30.0,
        max_batch_bytes=1 << 20,
        folder=folder,
        spare_ids=_IDS[1:],
    )


def _warnings(server: Server) -> list[str]:
    include = {"include": [r"d\..*"]}
    source = {"host": server.host, "credentialsSecretRef": {"name": "unused"}}
    spec = Spec.model_validate({"source": source, "tables": include, "sink": {"delta": {"path": "/lake"}}})
    found = preflight(source_of(server, "driver", "pw"), spec, replica_id=_IDS[0])
    assert found.failures == (), "the ids of a lost driver are no other replica's"
    return [w for w in found.warnings if "lost driver" in w]


@variants("mariadb1011", also=("mysql97_gtid",))
def test_a_successor_goes_on_within_a_minute(
    variant: str, machines: list[RemoteMachine], fresh_server: FreshServer, tmp_path: Path
) -> None:
    server = fresh_server(variant, bind_address=f"127.0.0.1,{machines[0].server_address}")
    server.create_user("driver", "pw")
    server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)")
    start = log_end(server)
    _lose_a_driver(server, machines[0], _IDS[0])
    goal = log_end(server).at
    reader = BinlogReader(_settings(server, start, tmp_path))
    with structlog.testing.capture_logs() as lines:
        reader.start()
        try:
            _read_to(reader, goal)
        finally:
            reader.stop()
    if server.flavor == "mysql":
        assert (lines, _warnings(server)) == ([], [])
        return
    assert [line["replica_id"] for line in lines] == [_IDS[1]]
    assert f"replica id {_IDS[0]} did not begin" in lines[0]["error"]
    assert len(_warnings(server)) == 1


def _read_to(reader: BinlogReader, goal: LogOffset) -> None:
    begun = time.monotonic()
    while True:
        batch = reader.next_batch()
        assert batch is None or batch.fatal is None, batch
        if batch is not None and batch.end.has_reached(goal):
            return
        assert time.monotonic() - begun < 240, "the successor waits for the dump of the lost driver"
        time.sleep(0.05)
