"""`cdcsync run` as a user runs it: real server, real drivers, one state folder (R4, R5, R8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pymysql
import pytest
from click.testing import CliRunner

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.main import cli
from support.fixtures import FreshDatabase, FreshServer
from support.servers import Server
from support.sync_process import GRANTS, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
ROWS = 3000
PASSWORD = "only for tests"
#: the oracle
REFERENCE = ("--decoder", "reference")


def fill(server: Server, database: str, table: str, rows: int = ROWS) -> None:
    server.run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(20) NOT NULL)",
        f"INSERT INTO {table} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
        " SELECT i, CONCAT('w', i) FROM n",
        f"INSERT INTO {table} SELECT id + 900, CONCAT('x', id) FROM {table}",
        f"INSERT INTO {table} SELECT id + 1800, CONCAT('y', id) FROM {table} WHERE id <= {rows - 1800}",
        db=database,
    )


@pytest.fixture
def sync(request: pytest.FixtureRequest, tmp_path: Path, fresh_database: FreshDatabase) -> Iterator[Sync]:
    """A sync of two tables `a` and `b`; the server is the test's parameter."""
    server: Server = request.getfixturevalue(request.param)
    database = fresh_database(server)
    fill(server, database, "a")
    fill(server, database, "b")
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync") as found:
        found.database = database  # type: ignore[attr-defined]
        yield found


on_mysql = pytest.mark.parametrize("sync", ["mysql97_gtid"], indirect=True)
on_mariadb = pytest.mark.parametrize("sync", ["mariadb1011"], indirect=True)


def database_of(sync: Sync) -> str:
    return str(sync.database)  # type: ignore[attr-defined]


def assert_equal(sync: Sync, table: str) -> None:
    """Source and target, row for row."""
    name = f"{database_of(sync)}.{table}"
    target = sync.target(name).select(["id", "word"]).sort_by("id").to_pylist()
    source = sync.server.query(f"SELECT id, word FROM {name} ORDER BY id")
    assert [(row["id"], row["word"]) for row in target] == list(source)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}


def is_streaming(status: dict[str, Any]) -> bool:
    return conditions(status).get("Ready") == ("True", "Streaming") and status["tables"]["streaming"] == 2


@on_mysql
def test_caught_up_then_again_then_without_its_state(sync: Sync) -> None:
    """R4: a restart needs only the resource and the targets. Whichever decoder goes on. A source
    that is away is waited for."""
    database = database_of(sync)
    sync.run_to_completion()
    assert_equal(sync, "a")
    status = sync.status()
    assert status["tables"] == {
        "total": 2, "pending": 0, "snapshotting": 0, "catchingUp": 0, "streaming": 2, "failed": 0, "unassigned": 0, "ready": "2/2",
    }  # fmt: skip
    assert conditions(status)["Consistent"][0] == "True"
    assert status["snapshot"]["rows"] == 2 * ROWS

    sync.server.run("INSERT INTO a VALUES (9001, 'later')", "DELETE FROM a WHERE id = 1", db=database)
    sync.options = REFERENCE
    start_without_the_source(sync)
    assert sync.wait() == ExitCode.DONE
    sync.options = ()
    assert_equal(sync, "a")
    assert sync.status()["runs"] == {"snapshot": None, "stream": None, "catchUp": None, "verify": None}

    sync.state_file.unlink()
    sync.server.run("UPDATE b SET word = 'changed' WHERE id = 7", db=database)
    sync.run_to_completion()
    assert_equal(sync, "a")
    assert_equal(sync, "b")
    assert conditions(sync.status())["Consistent"][0] == "True"
    assert sync.status()["snapshot"]["percent"] == "100 %", "the new status knows what the tables have"


def start_without_the_source(sync: Sync) -> None:
    """Starts the command while nothing answers at the source's address, and brings it back once two
    attempts have failed."""
    sync.write_manifest(source={"port": 1})
    sync.start("caught-up")
    status = sync.wait_for(lambda s: s.get("restarts", {}).get("consecutive", 0) >= 2)
    assert status["restarts"]["reason"] == "SourceUnreachable"
    sync.write_manifest(source={"port": sync.server.port})


@on_mariadb
def test_pause_resnapshot_and_a_new_table_while_it_runs(sync: Sync) -> None:
    """R5: a resnapshot or a new table never stops the others; the manifest is edited under the
    running command."""
    database = database_of(sync)
    sync.start("forever")
    sync.wait_for(is_streaming, timeout=400)

    sync.write_manifest(state="paused")
    sync.wait_phase("Paused", timeout=400)
    assert not sync.processes("driver")
    sync.server.run("INSERT INTO a VALUES (9001, 'while paused')", db=database)

    sync.write_manifest(state="running", resnapshot=[{"table": f"{database}.b", "nonce": 1}])
    fill(sync.server, database, "c")
    seen = sync.wait_for(
        lambda s: _streams(s, f"{database}.b", nonce=1) and conditions(s)["Ready"][0] == "True", timeout=400
    )
    assert seen["restarts"]["consecutive"] == 0

    sync.write_manifest(restartNonce=1)
    done = sync.wait_for(lambda s: s["tables"]["streaming"] == 3 and conditions(s)["Ready"][0] == "True", timeout=400)
    assert done["restarts"]["consecutive"] == 0
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    for table in ("a", "b", "c"):
        assert_equal(sync, table)


@pytest.mark.long
def test_another_server_behind_the_address(fresh_server: FreshServer, tmp_path: Path) -> None:
    """R6: a resnapshot from it is published, and goes on from its binlog."""
    server = fresh_server("mariadb1011", server_id=71)
    database = server.create_database()
    fill(server, database, "a")
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync") as sync:
        sync.database = database  # type: ignore[attr-defined]
        sync.run_to_completion()
        server.restart(server_id=72)
        server.run("RESET MASTER", "UPDATE a SET word = 'of the new log' WHERE id = 5", db=database)
        sync.start("caught-up")
        assert sync.wait() == ExitCode.USER_MUST_ACT
        assert conditions(sync.status())["Stalled"] == ("True", "PositionLost")
        sync.write_manifest(resnapshot=[{"table": f"{database}.a", "nonce": 1}])
        sync.run_to_completion()
        assert_equal(sync, "a")
        server.run("DELETE FROM a WHERE id = 6", "INSERT INTO a VALUES (9001, 'streamed')", db=database)
        sync.run_to_completion()
        assert_equal(sync, "a")
        assert conditions(sync.status())["Consistent"][0] == "True"


def _streams(status: dict[str, Any], table: str, nonce: int) -> bool:
    entry = next((t for t in status["tableStatus"] if t["name"] == table), {})
    return (entry.get("nonce"), entry.get("phase")) == (nonce, "Streaming")


@on_mariadb
def test_a_second_run_is_refused_and_no_secret_is_seen(sync: Sync) -> None:
    """R8, and the message names who holds it. The first one ends in order, however long its
    interval is."""
    sync.account = ("cdc", PASSWORD)
    sync.write_manifest(stream={"interval": "3600s"})
    sync.start("forever")
    sync.wait_part("jvm", timeout=120)
    assert_secret(sync)
    second = sync.command("run")
    assert second.returncode == ExitCode.USER_MUST_ACT
    (controller,) = sync.processes("controller")
    assert f"pid {controller.pid}" in second.stderr
    sync.wait_for(is_streaming)
    assert_secret(sync)
    assert sync.terminate(timeout=400) == ExitCode.DONE
    for path in [*sync.state_dir.rglob("*"), sync.output(1)]:
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def assert_secret(sync: Sync) -> None:
    """No process of it has the password among its arguments, which everybody on the machine may
    read."""
    for process in sync.processes():
        try:
            assert PASSWORD not in " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue


@on_mariadb
def test_a_wrong_password_is_the_users(sync: Sync) -> None:
    sync.account = ("cdc", "wrong")
    sync.write_manifest()
    result = sync.command("run", "--until", "snapshot")
    assert result.returncode == ExitCode.USER_MUST_ACT
    assert "AuthenticationFailed" in result.stderr
    assert "remedy" in result.stderr
    assert "wrong" not in result.stderr + result.stdout
    assert conditions(sync.status())["Stalled"] == ("True", "AuthenticationFailed")


@on_mariadb
def test_missing_grants_are_all_named(sync: Sync) -> None:
    sync.server.create_user("poor", "pw", ["SELECT"])
    sync.account = ("poor", "pw")
    sync.write_manifest()
    result = sync.command("run", "--until", "snapshot")
    assert result.returncode == ExitCode.USER_MUST_ACT
    assert "PrivilegeMissing" in result.stderr
    assert "GRANT" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("sync", ["mariadb1011", "mysql97_gtid"], indirect=True)
def test_rights_that_are_revoked_for_a_moment_end_no_run(sync: Sync) -> None:
    """An account is granted again while its stream reconnects: the run waits for it as for a
    source that is away."""
    server, database = sync.server, database_of(sync)
    sync.start("forever")
    sync.wait_for(is_streaming, timeout=400)
    server.run("SET sql_log_bin = 0", "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'cdc'@'%'")
    for (connection,) in server.query("SELECT id FROM information_schema.processlist WHERE user = 'cdc'"):
        with suppress(pymysql.err.OperationalError):  # it has ended by itself
            server.run(f"KILL {connection}")
    status = sync.wait_for(lambda s: s.get("restarts", {}).get("consecutive", 0) >= 1, timeout=400)
    assert status["restarts"]["reason"] == "PrivilegeMissing"
    server.run("SET sql_log_bin = 0", f"GRANT {', '.join(GRANTS[server.flavor])} ON *.* TO 'cdc'@'%'")
    server.run("INSERT INTO a VALUES (100000, 'again')", db=database)
    sync.wait_for(is_streaming, timeout=400)
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    assert_equal(sync, "a")


@on_mariadb
def test_check_and_plan_say_what_a_run_would_do(sync: Sync) -> None:
    checked = output_of(sync, "check")
    tables = {t["name"]: t for t in checked["tables"]}
    assert tables[f"{database_of(sync)}.a"]["columns"][1]["target"] == "string"
    failover = tables[f"{database_of(sync)}.a"]["failover"]
    assert failover == "stops (PositionLost): a server with log_slave_updates=OFF, as here"
    splits = output_of(sync, "plan")["tables"][0]["splits"]
    assert splits[0]["start"] is None
    assert splits[-1]["end"] is None


def output_of(sync: Sync, command: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, [command, "-f", str(sync.manifest), "-o", "json"])
    assert result.exit_code == ExitCode.DONE, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found
