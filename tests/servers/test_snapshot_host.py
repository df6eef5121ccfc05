"""A snapshot whose rows are read on a replica: the copy is the source's, whatever the replica has
applied meanwhile, and a replica that does not show the source's rows is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import Position
from cdcsync_core.resource.snapshot_spec import MaxLoad
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.tables.source_table import TableId
from cdcsync_demo.embedded import OptionValue
from cdcsync_mysql.checks import Level
from cdcsync_mysql.positions.watermark import low
from cdcsync_mysql.readiness.hosts import check_snapshot_host
from cdcsync_mysql.readiness.replica_gtids import applied
from cdcsync_mysql.readiness.snapshot_host import SnapshotHost
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.sessions.connection import connect
from cdcsync_spark.snapshot.source import LiveSource
from support.dump import definition
from support.relay import relays_at_one_port
from support.replicas import await_replica, replicate
from support.semisync import commit_held, until
from support.servers import VARIANTS, Server
from support.stepwise import Stepwise
from support.sync_process import GRANTS, Sync

_MYSQL, _MARIADB = "mysql97_gtid", "mariadb1011_loose"
#: of a replica that applies in parallel; MySQL's commits out of order
_OPTIONS: dict[str, dict[str, OptionValue]] = {
    _MYSQL: {"replica_parallel_workers": 4, "replica_preserve_commit_order": "OFF"},
    _MARIADB: {
        "log_slave_updates": "ON",
        "slave_parallel_threads": 4,
        "slave_parallel_mode": "optimistic",
        "gtid_strict_mode": "ON",
    },
}


def _pairs(*variants: Any) -> Any:
    return pytest.mark.parametrize("servers", variants, indirect=True, scope="module")


def _long(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.long)


_BOTH, _BOTH_LONG = _pairs(_MYSQL, _MARIADB), _pairs(_MYSQL, _long(_MARIADB))
_OF_MYSQL, _OF_MARIADB = _pairs(_MYSQL), _pairs(_MARIADB)


@pytest.fixture(scope="module")
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """A source and its replica."""
    folder = tmp_path_factory.mktemp("pair")
    variant = VARIANTS[request.param]
    source = variant.start(folder / "source", server_id=101)
    try:
        replica = variant.start(
            folder / "replica", server_id=102, innodb_flush_log_at_trx_commit=1, **_OPTIONS[variant.name]
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


@_BOTH
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


@_BOTH_LONG
@pytest.mark.long
def test_a_snapshot_waits_while_its_replica_lags_too_far(step: Stepwise) -> None:
    source, replica, host = step.server, step.replica, _host(step)
    assert replica is not None
    most, tables = MaxLoad.model_validate({"replicaLag": "1s"}), [definition(source, step.database, "t")]
    live = LiveSource(step.source, step.facts, host)
    assert LiveSource(step.source, step.facts).excess(most, tables) == "", "a primary has no lag"
    until(lambda: live.excess(most, tables) == "", "the replica keeps up")
    with replica.connect(db=step.database) as lock, lock.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM t WHERE id = 1 FOR UPDATE")
        source.run("UPDATE t SET v = 5 WHERE id = 1", db=step.database)
        until(lambda: live.excess(most, tables) != "", "the replica is two seconds behind")
        assert re.fullmatch(r"the replica's lag is \d+ s, at most 1 s allowed", live.excess(most, tables))
        cursor.execute("ROLLBACK")
    until(lambda: live.excess(most, tables) == "", "the replica has caught up")
    replica.run("STOP REPLICA SQL_THREAD")
    try:
        assert live.excess(most, tables).startswith("the replica's lag is not known")
        assert (Level.OK, live.excess(most, tables)) in _checked(step, most)
    finally:
        replica.run("START REPLICA SQL_THREAD")


@_BOTH
def test_the_load_is_that_of_the_servers_on_which_a_waves_rows_are_read(step: Stepwise) -> None:
    """A table without a key is read on the source, which is busy; the replica is not."""
    source, replica = step.server, step.replica
    assert replica is not None
    source.run("CREATE TABLE bag (v INT)", db=step.database)
    await_replica(source, replica)
    keyed = definition(source, step.database, "t")
    with source.connect(db=step.database) as connection:
        bag = read_table(connection, TableId(step.database, "bag"), needs_key=False)
    live = LiveSource(step.source, step.facts, _host(step))
    [(_, running)] = replica.query("SHOW GLOBAL STATUS LIKE 'Threads_running'")
    most = MaxLoad.model_validate({"threadsRunning": int(running) + 3})
    with _waiting_sessions(source, int(running) + 5):
        until(lambda: live.excess(most, [keyed, bag]) != "", "the source is busy")
        assert live.excess(most, [bag]) != ""
        until(lambda: live.excess(most, [keyed]) == "", "the replica's appliers wait again")
    until(lambda: live.excess(most, [keyed, bag]) == "", "the source is idle")


@contextmanager
def _waiting_sessions(server: Server, count: int) -> Iterator[None]:
    """Statements that run until the end."""
    holder = server.connect()
    with ExitStack() as stack:
        with holder.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK('busy', 0)")
        threads = [threading.Thread(target=server.query, args=("SELECT GET_LOCK('busy', 600)",)) for _ in range(count)]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(holder.close)
        yield


@_OF_MYSQL
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


_FILTER, _SOURCE = "CHANGE REPLICATION FILTER", "CHANGE REPLICATION SOURCE TO"


@_OF_MYSQL
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


@_OF_MARIADB
@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "back", "excerpt"),
    [
        (
            "SET GLOBAL replicate_ignore_table = 'elsewhere.t'",
            "SET GLOBAL replicate_ignore_table = ''",
            "has a filter, replicate_ignore_table=elsewhere.t",
        ),
        ("CHANGE MASTER TO MASTER_DELAY = 60", "CHANGE MASTER TO MASTER_DELAY = 0", "60 s late"),
        ("CHANGE MASTER TO MASTER_USE_GTID = no", "CHANGE MASTER TO MASTER_USE_GTID = slave_pos", "MASTER_USE_GTID=no"),
        (
            "SET GLOBAL slave_run_triggers_for_rbr = 'YES'",
            "SET GLOBAL slave_run_triggers_for_rbr = 'NO'",
            "slave_run_triggers_for_rbr=YES",
        ),
        (
            "SET GLOBAL slave_exec_mode = 'IDEMPOTENT'",
            "SET GLOBAL slave_exec_mode = 'STRICT'",
            "slave_exec_mode=IDEMPOTENT",
        ),
        (
            "SET GLOBAL replicate_events_marked_for_skip = 'FILTER_ON_SLAVE'",
            "SET GLOBAL replicate_events_marked_for_skip = 'REPLICATE'",
            "replicate_events_marked_for_skip=FILTER_ON_SLAVE",
        ),
        (
            "SET GLOBAL gtid_ignore_duplicates = ON",
            "SET GLOBAL gtid_ignore_duplicates = OFF",
            "gtid_ignore_duplicates=ON",
        ),
        ("SET GLOBAL gtid_strict_mode = OFF", "SET GLOBAL gtid_strict_mode = ON", "gtid_strict_mode=OFF"),
        (
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            "innodb_flush_log_at_trx_commit=2",
        ),
    ],
)
def test_a_replica_of_mariadb_whose_rows_may_differ_is_refused(
    step: Stepwise, change: str, back: str, excerpt: str
) -> None:
    replica, host = step.replica, _host(step)
    assert replica is not None
    replica.run("STOP SLAVE", change, "START SLAVE")
    try:
        refused = _refusal(host, step)
        assert [(Level.FAIL, refused.found.removeprefix("snapshotHost: "))] == _checked(step)
    finally:
        replica.run("STOP SLAVE", back, "START SLAVE")
    assert refused.reason is Reason.SNAPSHOT_HOST_UNFIT
    assert excerpt in refused.found
    mark = low(step.source, step.facts)
    until(lambda: not host.behind(step.facts.lineage, mark), "the replica has all of LOW")


@_OF_MARIADB
@pytest.mark.long
def test_a_replica_of_mariadb_that_does_not_log_what_it_applies_is_refused(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    source = servers[0]
    replica = VARIANTS[_MARIADB].start(tmp_path / "unlogged", server_id=105, log_slave_updates="OFF")
    try:
        replicate(source, replica)
        step = _step(source, replica, source.create_database(), tmp_path)
        refused = _refusal(_host(step), step)
        assert refused.reason is Reason.SNAPSHOT_HOST_UNFIT
        assert "log_slave_updates=OFF" in refused.found
        assert (Level.FAIL, refused.found.removeprefix("snapshotHost: ")) in _checked(step)
    finally:
        replica.remove()


@_BOTH_LONG
def test_another_server_and_the_source_itself_are_refused(
    step: Stepwise, servers: tuple[Server, Server], mysql97_gtid: Server, mariadb1011: Server
) -> None:
    other = mysql97_gtid if servers[0].flavor == "mysql" else mariadb1011
    other.create_user("stepwise", "only for tests")
    for server, excerpt in ((other, "replicates from 0 servers"), (step.server, "it is the source itself")):
        step.replica = server
        refused = _refusal(_host(step), step)
        assert refused.reason is Reason.SNAPSHOT_HOST_UNFIT
        assert excerpt in refused.found


@_BOTH_LONG
def test_an_errant_transaction_is_refused_before_and_after_a_read(
    step: Stepwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes while a split is read ends it; the next wave reads no row."""
    monkeypatch.setattr("cdcsync_mysql.readiness.replica_gtids.COMMIT_SECONDS", 1)
    source, replica, host = step.server, step.replica, _host(step)
    assert replica is not None
    delete = f"DELETE FROM {step.database}.t WHERE id = 450"
    with pytest.raises(PermanentError) as refused:
        step.snapshot("t", after_split=lambda split: replica.run(delete) if split == 0 else None)
    errant = _own_gtid(replica)
    assert refused.value.reason is Reason.SNAPSHOT_HOST_UNFIT
    assert f"transactions that the source has not: {errant}" in refused.value.found
    assert _refusal(host, step).found == refused.value.found
    assert _checked(step) == [(Level.FAIL, refused.value.found)]
    if replica.flavor == "mariadb":  # it would refuse a number that it has
        replica.run("STOP SLAVE", "SET GLOBAL gtid_strict_mode = OFF", "START SLAVE")
    _write_as(source, errant, delete)
    await_replica(source, replica)
    if replica.flavor == "mariadb":
        replica.run("STOP SLAVE", "SET GLOBAL gtid_strict_mode = ON", "START SLAVE")
    assert [level for level, _ in _checked(step)] == [Level.OK]


def _own_gtid(replica: Server) -> str:
    """The GTID of the last transaction that the replica wrote itself."""
    if replica.flavor == "mysql":
        return f"{replica.query('SELECT @@server_uuid')[0][0]}:1"
    state = str(replica.query("SELECT @@gtid_binlog_state")[0][0])
    return next(gtid for gtid in state.split(",") if gtid.split("-")[1] == "102")


def _write_as(source: Server, gtid: str, statement: str) -> None:
    """The statement on the source, as the transaction that the replica had alone."""
    if source.flavor == "mysql":
        source.run(f"SET gtid_next = '{gtid}'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'")
        return
    _, server, number = gtid.split("-")
    source.run(f"SET SESSION server_id = {server}, gtid_seq_no = {number}", statement)


def _checked(step: Stepwise, most: MaxLoad | None = None) -> list[tuple[Level, str]]:
    with connect(step.source) as connection:
        checks = check_snapshot_host(_host(step).replica, connection, step.facts, most or MaxLoad())
    return [(c.level, c.found) for c in checks]


@_BOTH_LONG
@pytest.mark.long
def test_a_replica_that_dies_loses_the_wave_and_no_row(servers: tuple[Server, Server], tmp_path: Path) -> None:
    source = servers[0]
    replica = VARIANTS[source.variant].start(tmp_path / "dying", server_id=104, **_OPTIONS[source.variant])
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
        assert [level for level, _ in _checked(step)] == [Level.OK]
        replica.kill()
        assert [level for level, _ in _checked(step)] == [Level.WARN]
    finally:
        replica.remove()


@_OF_MYSQL
def test_owned_transactions_count_as_seen(step: Stepwise) -> None:
    """A session that owns a GTID may have made its rows visible."""
    gtid = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:7"
    host = _host(step)
    replica = step.replica
    assert replica is not None
    with connect(host.replica) as connection, replica.connect() as other, other.cursor() as cursor:
        cursor.execute(f"SET gtid_next = '{gtid}'")
        assert GtidSet.parse(gtid).subtract(applied(connection, "mysql")) == GtidSet()
        cursor.execute("ROLLBACK")
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
        assert applied(connection, "mysql").covers(GtidSet.parse(gtid)) is False


@_OF_MARIADB
@pytest.mark.long
def test_what_a_mariadb_does_not_show_yet_is_waited_for(step: Stepwise, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its binlog has a transaction that a semi-synchronous replica must acknowledge."""
    monkeypatch.setattr("cdcsync_mysql.readiness.replica_gtids.COMMIT_SECONDS", 1)
    source, replica, host = step.server, step.replica, _host(step)
    assert replica is not None
    lineage = step.facts.lineage
    replica.run("STOP SLAVE")
    try:
        source.run("SET gtid_seq_no = 1000000", "UPDATE t SET v = 1 WHERE id = 1", db=step.database)
        source.run("SET server_id = 77, gtid_seq_no = 1000500", "UPDATE t SET v = 2 WHERE id = 1", db=step.database)
        mark = low(step.source, step.facts)
        assert host.behind(lineage, mark).endswith("and it does not apply what the source writes")
        replica.run("START SLAVE UNTIL MASTER_GTID_POS = '0-101-1000000'")
        until(lambda: _value(replica, step) == 1, "the transaction with the high number is applied")
        assert host.behind(lineage, mark).startswith(
            f"the replica {replica.host} lacks transactions up to 0-77-1000500 of "
        )
        with commit_held(replica):
            replica.run("STOP SLAVE", "START SLAVE")
            until(
                lambda: "0-77-1000500" in str(replica.query("SELECT @@gtid_binlog_state")),
                "the replica's binlog has it",
            )
            assert _value(replica, step) == 1
            with pytest.raises(TransientError, match="may not be visible yet"):
                host.behind(lineage, mark)
    finally:
        replica.run("START SLAVE")
    until(lambda: not host.behind(lineage, mark), "the replica shows all of LOW")
    assert _value(replica, step) == 2


def _value(replica: Server, step: Stepwise) -> int:
    return int(replica.query("SELECT v FROM t WHERE id = 1", db=step.database)[0][0])


@_OF_MARIADB
@pytest.mark.long
def test_a_prepared_transaction_on_a_mariadb_is_waited_for(step: Stepwise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdcsync_mysql.readiness.replica_gtids.COMMIT_SECONDS", 1)
    source, host = step.server, _host(step)
    prepare = ("XA START 'x'", "UPDATE t SET v = 3 WHERE id = 2", "XA END 'x'", "XA PREPARE 'x'")
    source.run(*prepare, db=step.database)
    mark = low(step.source, step.facts)
    with pytest.raises(TransientError, match="XA RECOVER lists prepared ones"):
        _until_asked(host, step, mark)
    source.run("XA COMMIT 'x'")
    until(lambda: not _is_behind(host, step, low(step.source, step.facts)), "the replica has committed it")


def _until_asked(host: SnapshotHost, step: Stepwise, mark: Position) -> None:
    until(lambda: not host.behind(step.facts.lineage, mark), "the replica has all of LOW")


def _is_behind(host: SnapshotHost, step: Stepwise, mark: Position) -> bool:
    try:
        return bool(host.behind(step.facts.lineage, mark))
    except TransientError:
        return True


@_OF_MARIADB
@pytest.mark.long
def test_a_column_whose_default_each_server_draws_is_read_on_the_source(step: Stepwise) -> None:
    step.server.run("ALTER TABLE t ADD COLUMN token CHAR(36) DEFAULT (UUID())", db=step.database)
    assert step.replica is not None
    await_replica(step.server, step.replica)
    step.snapshot("t")
    step.follow()
    assert not step.difference("t"), step.difference("t")
    tokens = f"SELECT MIN(token) FROM {step.database}.t"
    assert step.replica.query(tokens) != step.server.query(tokens)


def _throttled(status: dict[str, Any]) -> str:
    return str((status.get("snapshot") or {}).get("throttled"))


@_BOTH_LONG
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_sync_reads_on_its_replica_and_waits_for_it(servers: tuple[Server, Server], tmp_path: Path) -> None:
    """The replica stands still when the snapshot begins, and is restarted while it goes on."""
    source, replica = servers
    database = source.create_database()
    _create(source, database, rows=900)
    for server in servers:
        server.create_user("cdc", "for tests", GRANTS[server.flavor])
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
