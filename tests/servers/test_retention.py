"""How long a server keeps the binlog that a stream with a schedule needs at its next time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.schedule_spec import Schedule
from cdcsync_core.resource.spec import Spec
from cdcsync_mysql.checks import Level
from cdcsync_mysql.readiness.preflight import preflight
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.readiness.retention import check_schedule, kept_binlog, kept_until
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.stream.apply.applier import Applier
from support.fixtures import FreshServer
from support.servers import Server
from support.small_sync import SmallSync
from support.source import source_of

HOUR = 3600.0


@pytest.fixture(params=["mariadb1011", "mariadb114", "mysql97_gtid"])
def server(request: pytest.FixtureRequest, fresh_server: FreshServer) -> Server:
    """That keeps its binlog for an hour."""
    found = fresh_server(request.param)
    found.run(f"SET GLOBAL binlog_expire_logs_seconds = {HOUR:.0f}")
    return found


def files(server: Server) -> list[str]:
    return [str(row[0]) for row in server.query("SHOW BINARY LOGS")]


def purge(server: Server, file: str) -> None:
    """MariaDB keeps a file until a checkpoint in a later one says that a crash does not need it,
    which its own thread writes after a while."""
    deadline = time.monotonic() + 180
    while file in files(server):
        assert time.monotonic() < deadline
        server.run(f"PURGE BINARY LOGS TO '{files(server)[-1]}'")
        time.sleep(0.1)


def test_a_purge_by_hand_takes_no_table_that_is_idle(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4, R6: the stream is killed after it, without a commit at its end."""
    database = server.create_database()
    server.run("CREATE TABLE busy (id INT PRIMARY KEY)", "CREATE TABLE idle (id INT PRIMARY KEY)", db=database)
    sync = SmallSync(server, database, tmp_path)
    sync.copy()
    sync.catch_up()
    first = files(server)[-1]
    with sync.running(report=False) as stream:
        for number in range(3):
            server.run(f"INSERT INTO busy VALUES ({number})", db=database)
            server.rotate_binlog()
        server.run("INSERT INTO busy VALUES (3)", db=database)
        end = LogOffset(*server.binlog_status())
        stream.wait_for(lambda: stream.applier.reader.has_reached(end.in_binlog(sync.facts.log)))
        for table in stream.tables.values():
            table.committed -= HOUR
        listed = kept_binlog(sync.source, sync.facts.lineage)
        stream.applier.checkpoint_idle(float("-inf"), listed.safe_from)
        monkeypatch.setattr(Applier, "checkpoint_idle", lambda *_, **__: None)
    purge(server, first)
    for name in ("busy", "idle"):
        state = sync.target(name).last_commit()
        assert state is not None
        with open_session(sync.source) as session:
            session.proved(state.identity.lineage, state.position)


def test_a_file_is_kept_from_its_end_on(server: Server) -> None:
    source: Source = source_of(server)
    first = files(server)[-1]
    assert kept_until(source, first) is None, "it is written"
    ended = int(time.time())
    server.run("FLUSH BINARY LOGS")
    found = kept_until(source, first)
    assert found is not None
    assert ended + HOUR <= found <= time.time() + HOUR
    assert kept_until(source, files(server)[-1]) is None

    server.run("SET GLOBAL binlog_expire_logs_seconds = 0")
    assert kept_until(source, first) is None, "nothing is purged"
    server.run("FLUSH BINARY LOGS")
    purge(server, first)
    assert kept_until(source, first) == 0, "it is gone"


@pytest.mark.parametrize(("cron", "level"), [("*/20 * * * *", Level.OK), ("0 * * * *", Level.WARN)])
def test_the_preflight_compares_the_times_with_the_retention(server: Server, cron: str, level: Level) -> None:
    spec = Spec.model_validate(
        {
            "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}},
            "tables": {"include": [r"shop\..*"]},
            "stream": {"schedule": {"cron": cron}},
            "sink": {"delta": {"path": str(Path("/lake"))}},
        }
    )
    (check,) = [c for c in preflight(source_of(server), spec).checks if c.name == "stream.schedule"]
    assert check.level is level
    assert check.found.startswith("the next time is 2")
    assert (level is Level.OK) or "kept for 1 h" in check.found


def test_the_remedy_on_amazon_rds() -> None:
    check = check_schedule(Schedule(cron="0 2 * * *"), 300.0, 0.0, rds=True)
    assert "rds_set_configuration" in check.remedy
    assert check_schedule(Schedule(cron="0 2 * * *"), 0.0, 0.0).level is Level.OK
