"""Bounds of a snapshot on real servers: what the source is busy with is read from it, and a
snapshot waits while that is too much."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.resource.snapshot_spec import MaxLoad
from cdcsync_core.runs.run import ExitCode
from cdcsync_mysql.readiness.load import excess
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions.connection import connect
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.snapshot.wave_job import SplitTask, _parse, _run_task
from support.dump import definition
from support.fixtures import FreshDatabase, FreshServer, variants
from support.memory_target import MemoryTarget
from support.servers import Server
from support.source import connected, source_of
from support.sync_process import Sync

BUSY = 6


@contextmanager
def busy(server: Server, sessions: int = BUSY) -> Iterator[None]:
    """So many sessions execute a statement until the end."""
    connections = [server.connect() for _ in range(sessions)]
    threads = [threading.Thread(target=_sleep, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for connection in connections:
            server.run(f"KILL {connection.thread_id()}")
        for thread in threads:
            thread.join()


def _sleep(connection: Any) -> None:
    with suppress(pymysql.MySQLError), connection.cursor() as cursor:
        cursor.execute("SELECT SLEEP(3600)")


@variants("mariadb1011", "mysql97_gtid")
def test_the_load_is_the_servers_own(variant: str, fresh_server: FreshServer) -> None:
    server = fresh_server(variant)
    most = MaxLoad.model_validate({"threadsRunning": BUSY, "historyListLength": 10**9})
    with connected(server) as (connection, facts):
        assert excess(connection, facts.flavor, most) == ""
        with busy(server):
            while not (found := excess(connection, facts.flavor, most)):
                pass  # until each of the sessions executes its statement
        assert re.fullmatch(rf"Threads_running is \d+, at most {BUSY} allowed", found)


@variants("mariadb1011", "mysql97_gtid")
def test_a_view_that_stays_open_makes_the_history_list_grow(variant: str, fresh_server: FreshServer) -> None:
    server = fresh_server(variant)
    database = server.create_database()
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", db=database)
    most = MaxLoad.model_validate({"historyListLength": 200})
    with connected(server) as (connection, facts), server.connect(db=database).cursor() as view:
        view.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        view.execute("SELECT * FROM t")
        while not (found := excess(connection, facts.flavor, most)):
            server.run(*["UPDATE t SET v = v + 1"] * 20, db=database)
        assert found.startswith("the history list length is ")
        view.execute("COMMIT")


def test_a_history_list_that_the_account_may_not_see_is_refused(fresh_server: FreshServer) -> None:
    server = fresh_server("mysql97_gtid")
    server.create_user("plain", "only for tests", ("SELECT",))
    most = MaxLoad.model_validate({"historyListLength": 200})
    with connect(source_of(server, "plain", "only for tests")) as connection, pytest.raises(PermanentError) as refused:
        excess(connection, read_facts(connection).flavor, most)
    assert refused.value.reason is Reason.PRIVILEGE_MISSING
    assert "PROCESS" in str(refused.value)


@variants("mariadb1011", "mysql97_gtid")
def test_what_a_split_read_counts_though_it_failed(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase
) -> None:
    """The bounds are the source's, which has sent the rows. The definition is found to be another
    one behind the last of them."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)", db=database)
    table = definition(server, database, "t")
    server.run("ALTER TABLE t ADD v INT", db=database)
    with connected(server) as (_, facts):
        low = LowMark(source_of(server), facts).take()
    reader = SplitReader(source_of(server), facts.lineage, table, Split(), low, 600)
    result = _parse(json.dumps(_run_task(SplitTask(0, reader, MemoryTarget(), "split"))))
    assert result.error is not None
    assert result.error.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert (result.rows, result.size > 0, result.staged) == (3, True, ())


def _is_throttled(why: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: str((status.get("snapshot") or {}).get("throttled")).startswith(why)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_snapshot_waits_for_a_busy_source_and_keeps_the_bound_of_its_owner(
    fresh_server: FreshServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """At first no window is open. Four thousand rows at a thousand a second take three seconds from
    the first wave to the last."""
    server = fresh_server("mariadb1011")
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_4000", db=database)
    annotations = {"cdcsync.io/max-rows-per-second": "1000", "cdcsync.io/max-threads-running": str(BUSY)}
    spec = {"snapshot": {"maxRowsPerSecond": 50_000, "windows": [{"cron": "0 0 29 2 *", "duration": "1m"}]}}
    with Sync(server, [rf"{database}\.t"], tmp_path / "sync", spec=spec, annotations=annotations) as sync:
        sync.start("caught-up")
        status = sync.wait_for(_is_throttled("outside of spec.snapshot.windows, the next one begins at "))
        assert (status["runs"]["snapshot"], status["snapshot"]["rows"]) == (None, 0)
        with busy(server):
            sync.write_manifest(snapshot={"windows": [{"cron": "* * * * *", "duration": "2h"}]})
            status = sync.wait_for(_is_throttled("Threads_running is "))
        assert (status["snapshot"]["rows"], status["snapshot"]["maxRowsPerSecond"]) == (0, 1000)
        assert sync.wait() == ExitCode.DONE
        progress = sync.status()["snapshot"]
        assert progress["throttled"] == ""
        began, ended = (datetime.fromisoformat(progress[at]) for at in ("startedAt", "finishedAt"))
        assert (ended - began).total_seconds() >= 3
        assert sorted(sync.target(f"{database}.t").column("id").to_pylist()) == list(range(1, 4001))
