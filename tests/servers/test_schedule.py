"""`stream.schedule` as a user runs it: real server, real drivers. At its time everything is caught
up that was committed before it; between the times no driver lives (R4, R5)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.main import cli
from support.fixtures import FreshDatabase, FreshServer
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
#: no time of it comes while a test runs
NEVER = "0 0 29 2 *"


@pytest.fixture(params=["mariadb1011", pytest.param("mysql97_gtid", marks=pytest.mark.long)])
def sync(request: pytest.FixtureRequest, tmp_path: Path, fresh_database: FreshDatabase) -> Iterator[Sync]:
    """A sync of one table `t` of three rows, which is caught up at no time of its own."""
    server: Server = request.getfixturevalue(request.param)
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1),(2,2),(3,3)", db=database)
    spec = {"stream": {"schedule": {"cron": NEVER}}}
    with Sync(server, [rf"{database}\.t"], tmp_path / "sync", spec=spec) as found:
        found.database = database  # type: ignore[attr-defined]
        yield found


def rows(sync: Sync) -> list[tuple[int, int]]:
    found = sync.target(f"{sync.database}.t").select(["id", "v"]).sort_by("id").to_pylist()  # type: ignore[attr-defined]
    return [(row["id"], row["v"]) for row in found]


def run(sync: Sync, *statements: str) -> None:
    sync.server.run(*statements, db=sync.database)  # type: ignore[attr-defined]


def set_next_minute(sync: Sync) -> datetime:
    """A time that comes soon, once."""
    at = datetime.fromtimestamp((time.time() // 60 + (1 if time.time() % 60 < 50 else 2)) * 60, UTC)
    sync.write_manifest(stream={"schedule": {"cron": f"{at.minute} {at.hour} {at.day} {at.month} *"}})
    return at


def is_caught_up_since(at: datetime) -> Any:
    def found(status: dict[str, Any]) -> bool:
        began = (status.get("schedule") or {}).get("lastStart")
        return bool(began) and datetime.fromisoformat(began) >= at and status["phase"] == "Waiting"

    return found


def ready(status: dict[str, Any]) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in status["conditions"] if c["type"] == "Ready")


@pytest.mark.parametrize("sync", ["mariadb1011"], indirect=True)
def test_a_plan_has_the_next_times(sync: Sync) -> None:
    shown = [
        CliRunner().invoke(cli, ["plan", "-f", str(sync.manifest), "-o", form], catch_exceptions=False)
        for form in ("json", "table")
    ]
    assert [result.exit_code for result in shown] == [ExitCode.DONE] * 2
    planned = json.loads(shown[0].stdout)
    times = planned["schedule"]["nextTimes"]
    assert len(planned["tables"]) == 1
    assert len(times) == 3
    assert datetime.fromisoformat(times[0]) > datetime.now(UTC)
    assert times == sorted(times)
    assert all(t.endswith("-02-29T00:00:00Z") for t in times)
    text = " ".join(shown[1].stdout.split())
    assert f"then at {', '.join(times)}" in text


@pytest.mark.long
def test_a_time_catches_up_and_leaves_no_driver(sync: Sync) -> None:
    """A change of the definition is confirmed before the driver ends: else it would never be, since
    each run ends where the answer's HIGH lies, or before. The row after the statement is what moves
    MariaDB's LOW past it."""
    sync.write_manifest(schemaChange={"behavior": "evolve"})
    sync.start("forever")
    status = sync.wait_phase("Waiting")
    assert ready(status) == ("True", "Waiting")
    assert rows(sync) == [(1, 1), (2, 2), (3, 3)]
    sync.wait_until(lambda: not sync.processes("driver"), "no driver")

    run(sync, "UPDATE t SET v = 20 WHERE id = 2", "FLUSH BINARY LOGS", "DELETE FROM t WHERE id = 3")
    run(sync, "ALTER TABLE t ADD w INT DEFAULT 7", "INSERT INTO t VALUES (6, 6, 6)")
    at = set_next_minute(sync)
    status = sync.wait_for(lambda s: (s.get("schedule") or {}).get("nextTime") == at.isoformat()[:19] + "Z")
    assert (status["phase"], status["lagSeconds"]) == ("Waiting", 0)
    assert rows(sync) == [(1, 1), (2, 2), (3, 3)], "nothing is applied before the time"
    status = sync.wait_for(is_caught_up_since(at))
    assert rows(sync) == [(1, 1), (2, 20), (6, 6)]
    (table,) = status["tableStatus"]
    assert (table["phase"], table["schema"]["proof"]) == ("Streaming", "Catalog")
    sync.wait_until(lambda: not sync.processes("driver"), "no driver")

    # of a binlog that has nothing new but a file, and by drivers of which one is asked to end, not
    # by its controller (a machine that goes down asks all processes), and the next one is killed
    run(sync, "FLUSH BINARY LOGS")
    at = set_next_minute(sync)
    sync.wait_part("jvm")
    run(sync, "INSERT INTO t VALUES (4, 4, 4)")
    asked = {process.pid for process in sync.processes("driver")}
    sync.signal("driver", signal.SIGTERM)
    caught_up = is_caught_up_since(at)
    sync.wait_until(
        lambda: {p.pid for p in sync.processes("driver")} - asked or caught_up(sync.status()), "the next driver"
    )
    sync.kill("driver")
    status = sync.wait_for(caught_up)
    assert rows(sync) == [(1, 1), (2, 20), (4, 4), (6, 6)]
    assert status["restarts"]["consecutive"] == 0
    assert sync.terminate() == ExitCode.DONE

    run(sync, "INSERT INTO t VALUES (5, 5, 5)")
    sync.run_to_completion()
    assert rows(sync) == [(1, 1), (2, 20), (4, 4), (5, 5), (6, 6)], "--until caught-up waits for no time"


@pytest.mark.long
def test_the_binlog_is_watched_between_two_times(fresh_server: FreshServer, tmp_path: Path) -> None:
    """It warns before the position is lost, and when it is lost it does not wait for a time."""
    server = fresh_server("mariadb1011")
    database = server.create_database()
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)", db=database)
    server.run("SET GLOBAL binlog_expire_logs_seconds = 3600")
    spec = {"stream": {"schedule": {"cron": NEVER}}}
    with Sync(server, [rf"{database}\.t"], tmp_path / "sync", spec=spec) as sync:
        sync.start("forever")
        assert ready(sync.wait_phase("Waiting")) == ("True", "Waiting"), "the file is written"

        server.run("FLUSH BINARY LOGS")
        sync.write_manifest(autoRestart={"maxRestarts": 9})  # the source is checked at once
        status = sync.wait_for(lambda s: ready(s) == ("False", "PositionWillBeLost"))
        (stalled,) = [c for c in status["conditions"] if c["type"] == "Stalled"]
        assert stalled["status"] == "True"
        assert "remedy: raise binlog_expire_logs_seconds" in stalled["message"]
        server.run("SET GLOBAL binlog_expire_logs_seconds = 0")
        sync.write_manifest(autoRestart={"maxRestarts": 8})
        sync.wait_for(lambda s: ready(s) == ("True", "Waiting"))

        server.run("FLUSH BINARY LOGS", f"PURGE BINARY LOGS TO '{server.query('SHOW BINARY LOGS')[-1][0]}'")
        sync.write_manifest(autoRestart={"maxRestarts": 7})
        assert sync.wait() == ExitCode.USER_MUST_ACT
        assert ready(sync.status()) == ("False", "PositionLost")
