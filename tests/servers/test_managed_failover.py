"""What providers do with the server behind a name, imitated: a failover on the same storage (Amazon
RDS Multi-AZ, the regional disk of Cloud SQL) and a Blue/Green deployment (RDS, Aurora)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from support.replicas import OPTIONS, await_replica, promote, replicate
from support.semisync import next_second
from support.servers import VARIANTS, Server
from support.stepwise import Stepwise

StartServer = Callable[..., Server]

_TABLES = ("plain", "idle", "behind", "changed")


@pytest.fixture(params=OPTIONS)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartServer]:
    """Starts a server with this name and number."""
    started: list[Server] = []

    def start(name: str, number: int) -> Server:
        server = VARIANTS[request.param].start(tmp_path / name, server_id=number, **OPTIONS[request.param])
        started.append(server)
        return server

    yield start
    for server in started:
        server.remove()


def _make(server: Server, *tables: str) -> None:
    server.run("CREATE DATABASE h")
    for name in tables:
        server.run(f"CREATE TABLE h.{name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO h.{name} VALUES (1, 1), (2, 2)")


def _copied(server: Server, folder: Path, *tables: str) -> Stepwise:
    step = Stepwise(server, "h", folder)
    for name in tables:
        step.snapshot(name)
    server.run("INSERT INTO h.plain VALUES (3, 3)")
    step.follow()
    return step


def _refused(step: Stepwise, name: str) -> CdcError:
    with pytest.raises(CdcError) as refused:
        step.move(name)
    return refused.value


def test_a_failover_on_the_same_storage(start: StartServer, tmp_path: Path) -> None:
    """The server dies and is started at another address, on what the one before wrote: the same
    server, so nothing has to be moved. A transaction that was open is not there."""
    server = start("source", 101)
    _make(server, "plain", "idle")
    step = _copied(server, tmp_path, "plain", "idle")
    before, binlog = server.port, step.facts.log
    server.run("INSERT INTO h.plain VALUES (4, 4)")
    with server.connect(db="h") as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM plain")
        server.kill()
    server.start_elsewhere()
    assert server.port != before
    server.run("UPDATE h.plain SET v = 40 WHERE id = 4", "INSERT INTO h.idle VALUES (3, 3)")
    step.reach(server)
    assert step.facts.log == binlog
    assert [table.error for table in step.follow().values()] == [None, None]
    for name in ("plain", "idle"):
        assert not step.difference(name)
        assert step.state(name).identity.lineage.binlogs == (binlog,)


def test_a_blue_green_deployment(start: StartServer, tmp_path: Path) -> None:
    """Green is restored from a copy of blue, whose binlog it does not have, and replicates from it;
    it gets an account, a table and an index of its own meanwhile (on MariaDB each of these refuses
    every table). Then blue is read-only, green is no replica any more and is written to."""
    blue = start("blue", 101)
    mysql = blue.flavor == "mysql"
    _make(blue, *_TABLES)
    step = _copied(blue, tmp_path, *_TABLES)
    behind = {"behind": step.targets.pop("behind")}

    blue.run("INSERT INTO h.plain VALUES (4, 4)")
    green = start("green", 102)
    _restore(blue, green)
    replicate(blue, green)
    blue.run("UPDATE h.plain SET v = 5 WHERE id = 1", "INSERT INTO h.behind VALUES (3, 3)")
    await_replica(blue, green)
    if mysql:
        green.run("CREATE USER provider", "CREATE TABLE h.of_green (id INT)", "ALTER TABLE h.changed ADD INDEX (v)")
    next_second()
    blue.run("INSERT INTO h.plain VALUES (5, 5)", "INSERT INTO h.plain VALUES (6, 6)")
    step.follow()
    await_replica(blue, green)

    blue.run("SET GLOBAL read_only = ON")
    promote(green)
    green.run(
        "INSERT INTO h.plain VALUES (7, 7)", "DELETE FROM h.idle WHERE id = 1", "INSERT INTO h.behind VALUES (4, 4)"
    )
    step.reach(green)
    if mysql:
        refused = _refused(step, "changed")
        assert refused.reason is Reason.POSITION_LOST
        assert "change the table before the last one of ours" in refused.found
        del step.targets["changed"]
    step.targets |= behind
    refused = _refused(step, "behind")
    assert refused.reason is Reason.POSITION_LOST
    assert ("gtid_purged" if mysql else "none of the transactions whose commit times are recorded") in refused.found
    del step.targets["behind"]

    step.move(*step.targets)
    green.run("UPDATE h.idle SET v = 8")
    assert {table.error for table in step.follow().values()} == {None}
    for name in step.targets:
        assert not step.difference(name)
        assert step.state(name).identity.lineage.newest == step.facts.log


def _restore(blue: Server, green: Server) -> None:
    """As a snapshot of the storage and the parameters that begin replication from its end."""
    green.run("SET SQL_LOG_BIN = 0", "CREATE DATABASE h")
    for name in _TABLES:
        green.run("SET SQL_LOG_BIN = 0", f"CREATE TABLE h.{name} (id INT PRIMARY KEY, v INT)")
        rows = ", ".join(str(row) for row in blue.query(f"SELECT id, v FROM h.{name}"))
        green.run("SET SQL_LOG_BIN = 0", f"INSERT INTO h.{name} VALUES {rows}")
    if green.flavor == "mysql":
        executed = blue.query("SELECT @@GLOBAL.gtid_executed")[0][0]
        green.run("RESET BINARY LOGS AND GTIDS", f"SET GLOBAL gtid_purged = '{executed}'")
    else:
        end = blue.query("SELECT @@GLOBAL.gtid_binlog_pos")[0][0]
        green.run("RESET MASTER", f"SET GLOBAL gtid_slave_pos = '{end}'")
