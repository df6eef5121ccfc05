"""A snapshot whose rows are read on a replica: the copy is the source's, whatever the replica has
applied meanwhile, and a replica that does not show the source's rows is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.resource.snapshot_spec import MaxLoad
from cdcsync_core.runs.run import ExitCode
from cdcsync_mysql.checks import Level
from cdcsync_mysql.positions.watermark import low
from cdcsync_mysql.readiness.hosts import check_snapshot_host
from cdcsync_mysql.readiness.replica_check import applied
from cdcsync_mysql.readiness.snapshot_host import SnapshotHost
from cdcsync_mysql.sessions.connection import connect
from support.relay import relays_at_one_port
from support.replicas import await_replica, replicate
from support.semisync import until
from support.servers import VARIANTS, Server
from support.stepwise import Stepwise
from support.sync_process import GRANTS, Sync

_VARIANT = "mysql97_gtid"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """A source and its replica, which commits out of order."""
    folder = tmp_path_factory.mktemp("pair")
    source = VARIANTS[_VARIANT].start(folder / "source", server_id=101)
    try:
        replica = VARIANTS[_VARIANT].start(
            folder / "replica",
            server_id=102,
            replica_parallel_workers=4,
            replica_preserve_commit_order="OFF",
            innodb_flush_log_at_trx_commit=1,
        )
        try:
            replicate(source, replica)
            yield source, replica
        finally:
            replica.remove()
    finally:
        source.remove()


@pytest.fixture
def step(servers: tuple[Server, Server], tmp_path: Path) -> Stepwise:
    """A copy of a new database, read on the replica; its table `t` has five splits."""
    source, replica = servers
    database = source.create_database()
    _create(source, database, rows=450)
    return _step(source, replica, database, tmp_path)


def _create(source: Server, database: str, rows: int) -> None:
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
    create = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
    source.run(create, f"INSERT INTO t {numbers} SELECT i, 0 FROM n", db=database)


def _step(source: Server, replica: Server, database: str, folder: Path, chunk_size: int = 100) -> Stepwise:
    step = Stepwise(source, database, folder, chunk_size, replica=replica)
    replica.create_user("stepwise", "only for tests")
    await_replica(source, replica)
    return step


def _host(step: Stepwise) -> SnapshotHost:
    host = step.snapshot_host
    assert host is not None
    return host


@contextmanager
def _writers(step: Stepwise, count: int = 4, pause: float = 0.0) -> Iterator[None]:
    """Sessions that change rows all over the table, `pause` seconds after the last change."""
    done = threading.Event()

    def write(number: int) -> None:
        at = number
        with step.server.connect(db=step.database) as connection, connection.cursor() as cursor:
            while not done.wait(pause):
                at = (at * 7 + 13) % 500 + 1
                cursor.execute("REPLACE INTO t VALUES (%s, %s)", (at, at * number))
                cursor.execute("UPDATE t SET v = v + 1 WHERE id BETWEEN %s AND %s", (at, at + 3))
                cursor.execute("DELETE FROM t WHERE id = %s", (at + 1,))
                connection.commit()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(1, count + 1)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_the_copy_is_the_sources_while_the_replica_lags(step: Stepwise) -> None:
    """Its applier stands still in every other split; the source is asked for no row."""
    source, replica = step.server, step.replica
    assert replica is not None
    source.run("SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = ON")

    def stop_or_go_on(split: int) -> None:
        replica.run("STOP REPLICA SQL_THREAD" if split % 2 == 0 else "START REPLICA SQL_THREAD")

    try:
        with _writers(step):
            step.snapshot("t", after_split=stop_or_go_on)
    finally:
        replica.run("START REPLICA SQL_THREAD")
        source.run("SET GLOBAL general_log = OFF")
    step.follow()
    assert not step.difference("t"), step.difference("t")
    assert step.state("t").consistent
    reads = f"SELECT%FROM `{step.database}`.`t` WHERE%"
    asked = "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE %s"
    assert source.query(asked, reads) == [(0,)]


@pytest.mark.long
def test_what_the_replica_has_not_applied_yet_is_waited_for(step: Stepwise) -> None:
    """Its applier waits for a lock and has applied a transaction behind it, so there is a gap."""
    source, replica, host = step.server, step.replica, _host(step)
    assert replica is not None
    source.run("CREATE TABLE u (id INT PRIMARY KEY)", db=step.database)
    await_replica(source, replica)
    with replica.connect(db=step.database) as lock, lock.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM t WHERE id = 1 FOR UPDATE")
        source.run("UPDATE t SET v = 5 WHERE id = 1", "INSERT INTO u VALUES (1)", db=step.database)
        mark = low(step.source, step.facts)
        until(lambda: replica.query(f"SELECT COUNT(*) FROM {step.database}.u") == [(1,)], "the other table has its row")
        assert host.behind(step.facts.lineage, mark) == f"the replica {replica.host} lacks 1 transactions of the source"
        cursor.execute("ROLLBACK")
    until(lambda: host.behind(step.facts.lineage, mark) == "", "the replica has all of LOW")
    replica.run("STOP REPLICA SQL_THREAD")
    source.run("UPDATE t SET v = 6 WHERE id = 1", db=step.database)
    mark = low(step.source, step.facts)
    assert host.behind(step.facts.lineage, mark).endswith("and it does not apply what the source writes")
    replica.run("START REPLICA SQL_THREAD")
    until(lambda: host.behind(step.facts.lineage, mark) == "", "the replica has all of LOW")


def _refusal(host: SnapshotHost, step: Stepwise) -> CdcError:
    with pytest.raises(CdcError) as refused:
        host.behind(step.facts.lineage, low(step.source, step.facts))
    return refused.value


def _long(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.long)


_FILTER, _SOURCE = "CHANGE REPLICATION FILTER", "CHANGE REPLICATION SOURCE TO"


@pytest.mark.parametrize(
    ("change", "back", "excerpt"),
    [
        (f"{_FILTER} REPLICATE_IGNORE_DB = (elsewhere)", f"{_FILTER} REPLICATE_IGNORE_DB = ()", "has a filter"),
        _long(f"{_FILTER} REPLICATE_DO_TABLE = (a.b)", f"{_FILTER} REPLICATE_DO_TABLE = ()", "has a filter"),
        _long(f"{_SOURCE} SOURCE_DELAY = 60", f"{_SOURCE} SOURCE_DELAY = 0", "60 s late"),
        _long(
            "SET GLOBAL replica_exec_mode = 'IDEMPOTENT'",
            "SET GLOBAL replica_exec_mode = 'STRICT'",
            "replica_exec_mode=IDEMPOTENT",
        ),
        _long(
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            "innodb_flush_log_at_trx_commit=2",
        ),
    ],
)
def test_a_replica_whose_rows_may_differ_is_refused(step: Stepwise, change: str, back: str, excerpt: str) -> None:
    replica, host = step.replica, _host(step)
    assert replica is not None
    replica.run("STOP REPLICA SQL_THREAD", change, "START REPLICA SQL_THREAD")
    try:
        refused = _refusal(host, step)
    finally:
        replica.run("STOP REPLICA SQL_THREAD", back, "START REPLICA SQL_THREAD")
    assert isinstance(refused, PermanentError)
    assert refused.reason is Reason.SNAPSHOT_HOST_UNFIT
    assert excerpt in refused.found
    assert not host.behind(step.facts.lineage, low(step.source, step.facts))


def test_another_server_and_the_source_itself_are_refused(step: Stepwise, mysql97_gtid: Server) -> None:
    mysql97_gtid.create_user("stepwise", "only for tests")
    for server, excerpt in ((mysql97_gtid, "replicates from 0 servers"), (step.server, "it is the source itself")):
        step.replica = server
        refused = _refusal(_host(step), step)
        assert refused.reason is Reason.SNAPSHOT_HOST_UNFIT
        assert excerpt in refused.found


def test_an_errant_transaction_is_refused_before_and_after_a_read(
    step: Stepwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes while a split is read ends it; the next wave reads no row."""
    monkeypatch.setattr("cdcsync_mysql.readiness.snapshot_host.COMMIT_SECONDS", 1)
    monkeypatch.setattr("cdcsync_mysql.readiness.hosts.COMMIT_SECONDS", 1)
    source, replica, host = step.server, step.replica, _host(step)
    assert replica is not None
    delete = f"DELETE FROM {step.database}.t WHERE id = 450"
    with pytest.raises(PermanentError) as refused:
        step.snapshot("t", after_split=lambda split: replica.run(delete) if split == 0 else None)
    errant = f"{replica.query('SELECT @@server_uuid')[0][0]}:1"
    assert refused.value.reason is Reason.SNAPSHOT_HOST_UNFIT
    assert f"transactions that the source has not: {errant}" in refused.value.found
    assert _refusal(host, step).found == refused.value.found
    assert _checked(step) == [(Level.FAIL, refused.value.found)]
    source.run(f"SET gtid_next = '{errant}'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'")
    assert [level for level, _ in _checked(step)] == [Level.OK]


def _checked(step: Stepwise) -> list[tuple[Level, str]]:
    with connect(step.source) as connection:
        checks = check_snapshot_host(_host(step).replica, connection, step.facts, MaxLoad())
    return [(c.level, c.found) for c in checks]


@pytest.mark.long
def test_a_replica_that_dies_loses_the_wave_and_no_row(servers: tuple[Server, Server], tmp_path: Path) -> None:
    source = servers[0]
    replica = VARIANTS[_VARIANT].start(tmp_path / "dying", server_id=104)
    try:
        replicate(source, replica)
        database = source.create_database()
        source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)", db=database)
        step = _step(source, replica, database, tmp_path, chunk_size=1)
        with pytest.raises(TransientError) as failed:
            step.snapshot("t", after_split=lambda split: replica.kill() if split == 1 else None)
        assert failed.value.reason is Reason.SOURCE_UNREACHABLE
        source.run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (9)", db=database)
        replica.restart()
        step.snapshot("t")
        step.follow()
        assert not step.difference("t")
        replica.kill()
        assert [level for level, _ in _checked(step)] == [Level.WARN]
    finally:
        replica.remove()


def test_owned_transactions_count_as_seen(step: Stepwise) -> None:
    """A session that owns a GTID may have made its rows visible."""
    gtid = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:7"
    host = _host(step)
    replica = step.replica
    assert replica is not None
    with connect(host.replica) as connection, replica.connect() as other, other.cursor() as cursor:
        cursor.execute(f"SET gtid_next = '{gtid}'")
        assert GtidSet.parse(gtid).subtract(applied(connection)) == GtidSet()
        cursor.execute("ROLLBACK")
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
        assert applied(connection).covers(GtidSet.parse(gtid)) is False


def _throttled(status: dict[str, Any]) -> str:
    return str((status.get("snapshot") or {}).get("throttled"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_sync_reads_on_its_replica_and_waits_for_it(servers: tuple[Server, Server], tmp_path: Path) -> None:
    """The replica stands still when the snapshot begins, and is restarted while it goes on."""
    source, replica = servers
    database = source.create_database()
    _create(source, database, rows=900)
    for server in servers:
        server.create_user("cdc", "for tests", GRANTS["mysql"])
    await_replica(source, replica)
    step = Stepwise(source, database, tmp_path)
    at = ((source.host, source.port), (replica.host, replica.port))
    with relays_at_one_port(*at) as (first, _):
        spec = {
            "source": {"port": first.port, "snapshotHost": "127.0.0.2"},
            "snapshot": {"chunkSize": 300, "parallelism": 1, "maxRowsPerSecond": 300},
        }
        sync = Sync(source, [rf"{database}\.t"], tmp_path / "sync", spec=spec, account=("cdc", "for tests"))
        with sync:
            with _writers(step, count=2, pause=0.2):
                replica.run("STOP REPLICA SQL_THREAD")
                sync.start("forever")
                status = sync.wait_for(lambda s: "does not apply what the source writes" in _throttled(s))
                assert status["snapshot"]["rows"] == 0
                replica.run("START REPLICA SQL_THREAD")
                sync.wait_for(lambda s: 0 < s["snapshot"]["rows"] < 800)
                replica.kill()
                replica.restart()
                sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 1)
            rows = sorted(source.query(f"SELECT id, v FROM {database}.t"))
            sync.wait_for(lambda _: _rows(sync, f"{database}.t") == rows)
            assert sync.terminate() == ExitCode.DONE


def _rows(sync: Sync, table: str) -> list[tuple[int, int]]:
    columns = sync.target(table).to_pydict()
    return sorted(zip(columns["id"], columns["v"], strict=True))
