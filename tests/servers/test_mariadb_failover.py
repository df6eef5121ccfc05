"""Rule R6 on another MariaDB: a table goes on there by a proof, and by nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.gates import observed
from cdcsync_core.positions.failover import diverged_at
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.runs.run import ExitCode
from cdcsync_demo.embedded import OptionValue
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from support.relay import relay_to
from support.servers import VARIANTS, Server
from support.stepwise import Stepwise
from support.sync_process import GRANTS, Gate, Sync
from support.table_status import entry

_SECONDS = 180.0

StartPair = Callable[..., tuple[Server, Server]]


class _DiedAtMariaDBGate(Exception):
    """The process, at a gate."""


@pytest.fixture
def start_pair(tmp_path: Path) -> Iterator[StartPair]:
    """Starts a primary and its replica, which logs what it applies unless `options` change it."""
    started: list[Server] = []

    def start(variant: str = "mariadb1011_loose", **options: OptionValue) -> tuple[Server, Server]:
        replica = {"server_id": 102} | options
        for name, own in (("old", {"server_id": 101}), ("new", replica)):
            started.append(VARIANTS[variant].start(tmp_path / name, **({"log_slave_updates": True} | own)))
        old, new = started
        _replicate(old, new)
        old.run("CREATE DATABASE h")
        return old, new

    yield start
    for server in started:
        server.remove()


def _replicate(old: Server, new: Server) -> None:
    new.run(
        f"CHANGE MASTER TO MASTER_HOST='{old.host}', MASTER_PORT={old.port}, MASTER_USER='root',"
        " MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_SSL=0, MASTER_SSL_VERIFY_SERVER_CERT=0",
        "START SLAVE",
    )


def _promote(new: Server) -> None:
    new.run("STOP SLAVE", "RESET SLAVE ALL")


def _await(met: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not met():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _await_replica(old: Server, new: Server) -> None:
    end = old.query("SELECT @@gtid_binlog_pos")[0][0]
    assert new.query("SELECT MASTER_GTID_WAIT(%s, %s)", end, _SECONDS) == [(0,)]


def _await_second(server: Server) -> None:
    """Until what is committed has another time than what was before."""
    begun = server.query("SELECT UNIX_TIMESTAMP()")[0][0]
    _await(lambda: bool(server.query("SELECT UNIX_TIMESTAMP() > %s", begun)[0][0]), "the clock stands")


def _make(server: Server, *names: str) -> None:
    for name in names:
        server.run(f"CREATE TABLE h.{name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO h.{name} VALUES (1, 1), (2, 2)")


def _refused(step: Stepwise, name: str) -> CdcError:
    before = step.state(name)
    with pytest.raises(CdcError) as refused:
        step.move(name)
    assert step.state(name) == before
    return refused.value


def _why(step: Stepwise, name: str) -> str:
    error = _refused(step, name)
    assert error.reason is Reason.POSITION_LOST
    return error.found


def _marks(step: Stepwise, name: str) -> str:
    position = step.position(name)
    assert isinstance(position, FilePosition)
    return str(position.gtid_pos)


@pytest.mark.parametrize("variant", ["mariadb1011_loose", pytest.param("mariadb118", marks=pytest.mark.long)])
def test_a_lost_tail_stops_its_own_tables(start_pair: StartPair, tmp_path: Path, variant: str) -> None:
    """What the tail did not touch goes on, exactly once, and a run that dies between two tables
    proves the rest."""
    old, new = start_pair(variant)
    _make(old, "plain", "idle", "tail", "late", "drawn", "catching", "swing")
    old.run("ALTER TABLE h.drawn ADD COLUMN u CHAR(36) DEFAULT (UUID())")
    step = Stepwise(old, "h", tmp_path)
    for name in ("plain", "idle", "tail", "drawn"):
        step.snapshot(name)
    old.run(*(f"INSERT INTO h.plain VALUES ({n}, {n})" for n in range(10, 20)))
    step.follow(killed=True)
    assert step.state("idle").consistent, "without a change of its own"
    _await_replica(old, new)
    new.run("STOP SLAVE SQL_THREAD")
    old.run("INSERT INTO h.plain VALUES (20, 20)", "INSERT INTO h.tail VALUES (5, 5)")
    step.follow()
    _await_second(old)
    new.run("START SLAVE")
    _await_replica(old, new)
    step.snapshot("late")
    catching = step.catching_up("catching")
    _await_replica(old, new)

    _promote(new)
    shared = old.query("SELECT @@gtid_binlog_pos")[0][0]
    old.run("INSERT INTO h.tail VALUES (3, 3)", "UPDATE h.tail SET v = 0 WHERE id = 1", "UPDATE h.swing SET v = 0")
    held = {name: step.targets.pop(name) for name in ("late",)}
    step.follow()
    step.targets |= held
    new.run("INSERT INTO h.plain VALUES (30, 30)", "INSERT INTO h.tail VALUES (4, 33)", "DELETE FROM h.idle")

    step.reach(new)
    refused = _refused(step, "tail")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert diverged_at(refused.message) == step.facts.log
    assert "lacks transactions that the table was changed by: 0-101:" in refused.found
    drawn = _refused(step, "drawn")
    assert drawn.reason is Reason.HISTORY_DIVERGED
    assert "u (uuid())" in drawn.found
    assert "no transaction's commit time is recorded" in _why(step, "late")

    def die(gate: str) -> None:
        if gate == "table-moved":
            raise _DiedAtMariaDBGate

    with observed(die), pytest.raises(_DiedAtMariaDBGate):
        step.move("plain")
    assert _marks(step, "plain") == shared
    assert step.state("plain").identity.lineage.newest == step.facts.log
    step.move("idle")
    for name in ("tail", "late", "drawn"):
        del step.targets[name]
    step.targets |= catching
    step.move("catching")
    assert not step.state("catching").consistent
    step.snapshot("swing")
    new.run("UPDATE h.swing SET v = 5 WHERE id = 1", "UPDATE h.catching SET v = 50 WHERE id = 1")
    assert {t.error for t in step.follow().values()} == {None}
    for name in ("plain", "idle", "catching", "swing"):
        assert not step.difference(name), step.difference(name)
        assert step.state(name).consistent

    # back to the old server, which kept its tail
    old.run("SET GLOBAL gtid_slave_pos = '" + shared + "'")
    _replicate(new, old)
    _await_replica(new, old)
    _promote(old)
    step.reach(old)
    for name in ("plain", "swing"):
        assert "which the server before did not have there" in _why(step, name)


def test_a_new_server_must_have_all_that_a_snapshot_may_have_read(start_pair: StartPair, tmp_path: Path) -> None:
    """A replica that lags is waited for; where it is promoted the table has diverged, and also
    where another transaction gets the GTID of the last one that was lost."""
    old, new = start_pair()
    _make(old, "torn")

    def lag() -> None:
        _await_replica(old, new)
        new.run("STOP SLAVE SQL_THREAD")

    step = Stepwise(old, "h", tmp_path)
    step.targets = step.catching_up("torn", between=lag)
    assert sorted(step.targets["torn"].open_snapshot().scan().read_all()["v"].to_pylist()) == [2, 3]
    end = old.query("SELECT @@gtid_binlog_pos")[0][0]
    step.reach(new)
    refused = _refused(step, "torn")
    assert refused.reason is Reason.SOURCE_UNREACHABLE
    assert "the table's snapshot may have read" in refused.found
    _promote(new)
    refused = _refused(step, "torn")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert "the server lacks transactions that the table's snapshot may have read: 0-101:" in refused.found
    _await_second(new)
    first, last = (int(pos.rpartition("-")[2]) for pos in (_marks(step, "torn"), end))
    for number in range(first + 1, last + 1):
        identity = ("SET SESSION server_id = 101", f"SET SESSION gtid_seq_no = {number}")
        new.run(*identity, "UPDATE h.torn SET v = 0 WHERE id = 1")
    refused = _refused(step, "torn")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert "other transactions have the same GTIDs" in refused.found


def test_a_server_that_has_the_table_by_another_name_is_refused(start_pair: StartPair, tmp_path: Path) -> None:
    """Or not at all: its changes would pass by unseen. What its binlog drops or changes behind the
    copy's position goes on up to there."""
    names = ("plain", "Named", "Left", "gone", "dropped", "engine")
    old, new = start_pair(lower_case_table_names=1)
    _make(old, *names)
    step = Stepwise(old, "h", tmp_path)
    for name in names:
        step.snapshot(name)
    old.run(*(f"INSERT INTO h.{name} VALUES (3, 3)" for name in names))
    step.follow()
    _await_replica(old, new)
    _promote(new)
    new.run("SET SQL_LOG_BIN = 0", "DROP TABLE h.gone")
    new.run(*(f"UPDATE h.{name} SET v = 4" for name in ("plain", "named", "dropped", "engine")))
    new.run("DROP TABLE h.left", "ALTER TABLE h.dropped ADD COLUMN w INT", "DROP TABLE h.dropped")
    new.run("ALTER TABLE h.engine ENGINE=MyISAM", "UPDATE h.engine SET v = 5")
    step.reach(new)
    named = _refused(step, "Named")
    assert named.reason is Reason.LOG_INCOMPLETE
    assert "the binlog spells the table h.named" in named.found
    for name in ("gone", "Left"):
        assert _refused(step, name).reason is Reason.NO_SUCH_TABLE
    step.move("plain", "dropped", "engine")
    for name in ("Named", "Left", "gone"):
        del step.targets[name]
    step.policy = FollowPolicy(follow=True)
    tables = step.follow()
    assert not step.difference("plain")
    stops = {"dropped": Reason.TABLE_GONE, "engine": Reason.ENGINE_UNSUPPORTED}
    for name, reason in stops.items():
        error = tables[name].error
        assert error is not None
        assert error.reason is reason
        target = step.targets[name].open_snapshot().scan().read_all()
        assert sorted(zip(target["id"].to_pylist(), target["v"].to_pylist(), strict=True)) == [(1, 4), (2, 4), (3, 4)]


def test_a_tail_stops_its_table_whatever_the_promoted_replica_wrote(start_pair: StartPair, tmp_path: Path) -> None:
    """Nothing, or one transaction with the number of the tail's first. The others go on."""
    old, new = start_pair()
    _make(old, "early", "late", "tail")
    step = Stepwise(old, "h", tmp_path)
    for name in ("early", "late", "tail"):
        step.snapshot(name)
    old.run("INSERT INTO h.early VALUES (3, 3)", "INSERT INTO h.late VALUES (3, 3)")
    step.follow()
    _await_replica(old, new)
    _promote(new)
    old.run("INSERT INTO h.tail VALUES (3, 3)", "INSERT INTO h.tail VALUES (4, 4)")
    step.follow()

    step.reach(new)
    assert _refused(step, "tail").reason is Reason.HISTORY_DIVERGED
    step.move("early")
    new.run("INSERT INTO h.late VALUES (5, 5)")
    own, first = (s.query("SELECT @@gtid_binlog_pos")[0][0].split("-") for s in (new, old))
    assert int(own[2]) == int(first[2]) - 1
    assert _refused(step, "tail").reason is Reason.HISTORY_DIVERGED
    step.move("late")
    del step.targets["tail"]
    step.follow()
    for name in ("early", "late"):
        assert not step.difference(name)


def test_a_replica_in_strict_mode_stops_before_what_it_has_written_itself(
    start_pair: StartPair, tmp_path: Path
) -> None:
    """So it lacks ours: it is waited for while it is a replica, and is none once it is promoted."""
    old, new = start_pair("mariadb1011")
    _make(old, "plain")
    step = Stepwise(old, "h", tmp_path)
    step.snapshot("plain")
    old.run("INSERT INTO h.plain VALUES (3, 3)", "INSERT INTO h.plain VALUES (4, 4)")
    step.follow()
    _await_replica(old, new)
    new.run("UPDATE h.plain SET v = 100 WHERE id = 1")
    old.run("UPDATE h.plain SET v = 200 WHERE id = 1")
    step.follow()
    _await(lambda: _last_error(new) == 1950, "the replica stops")
    step.reach(new)
    assert _refused(step, "plain").reason is Reason.SOURCE_UNREACHABLE
    _promote(new)
    assert _refused(step, "plain").reason is Reason.HISTORY_DIVERGED


def _last_error(replica: Server) -> int:
    with replica.connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        return int(cursor.fetchall()[0]["Last_SQL_Errno"])


@pytest.mark.long
def test_a_switchover_and_its_way_back(start_pair: StartPair, tmp_path: Path) -> None:
    """In strict mode; each time another server writes, and its first transaction is no witness."""
    old, new = start_pair("mariadb1011")
    _make(old, "plain")
    step = Stepwise(old, "h", tmp_path)
    step.snapshot("plain")
    old.run("INSERT INTO h.plain VALUES (3, 3)")
    step.follow()
    _await_replica(old, new)
    _promote(new)
    new.run("UPDATE h.plain SET v = 4 WHERE id = 3")
    step.reach(new)
    step.move("plain")
    step.follow()
    assert not step.difference("plain")

    old.run("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")
    _replicate(new, old)
    _await_replica(new, old)
    step.reach(old)
    assert "another server wrote only one" in _why(step, "plain")
    step.reach(new)
    new.run("DELETE FROM h.plain WHERE id = 1")
    step.follow()
    _await_replica(new, old)
    _promote(old)
    old.run("INSERT INTO h.plain VALUES (5, 5)")
    step.reach(old)
    step.move("plain")
    step.follow()
    assert not step.difference("plain")
    assert len(step.state("plain").identity.lineage.binlogs) == 3


def test_a_server_of_another_history_is_refused(start_pair: StartPair, tmp_path: Path) -> None:
    """A replica that lags (by the tables that were changed by what it lacks), that wrote itself,
    that logs nothing of what it applies, whose binlog begins behind ours, that was reset and has
    other transactions of the same GTIDs; and a copy with transactions of several domains."""
    old, new = start_pair()
    _make(old, "plain", "calm")
    step = Stepwise(old, "h", tmp_path)
    step.snapshot("plain")
    step.snapshot("calm")
    old.run("INSERT INTO h.plain VALUES (3, 3)")
    step.follow()
    _await_replica(old, new)
    new.run("STOP SLAVE SQL_THREAD")
    old.run("UPDATE h.plain SET v = 200 WHERE id = 1")
    step.follow()
    step.reach(new)
    lagging = _refused(step, "plain")
    assert lagging.reason is Reason.SOURCE_UNREACHABLE
    assert f"{new.host} is a replica and may still get what it lacks from {old.host}:{old.port}" in lagging.found
    step.move("calm")
    calm = {"calm": step.targets.pop("calm")}

    new.run("UPDATE h.plain SET v = 100 WHERE id = 1", "START SLAVE")
    old.run("INSERT INTO h.calm VALUES (4, 4)")
    _await_replica(old, new)
    plain, step.targets = step.targets, calm
    step.follow()
    assert not step.difference("calm")
    step.targets = plain
    assert "the server's binlog has 0-102:" in _why(step, "plain")
    step.reach(old)
    old.run("INSERT INTO h.plain VALUES (4, 4)", "INSERT INTO h.plain VALUES (5, 5)")
    step.follow()
    _await_replica(old, new)
    step.reach(new)
    assert "which the server before did not have there" in _why(step, "plain")

    _promote(new)
    new.restart(log_slave_updates=False)
    silent = _refused(step, "plain")
    assert silent.reason is Reason.LOG_INCOMPLETE
    assert "log_slave_updates: OFF on a server that is a replica" in silent.found
    new.restart(log_slave_updates=True)
    new.run("FLUSH BINARY LOGS")
    new.purge_binlogs()
    assert "none of the transactions whose commit times are recorded" in _why(step, "plain")

    _await_second(new)
    new.run("RESET MASTER")
    for number in range(1, int(_marks(step, "plain").rpartition("-")[2]) + 1):
        new.run(
            "SET SESSION server_id = 101",
            f"SET SESSION gtid_seq_no = {number}",
            f"UPDATE h.plain SET v = {number + 1000} WHERE id = 2",
        )
    assert "other transactions have the same GTIDs" in _why(step, "plain")

    step.reach(old)
    old.run("SET SESSION gtid_domain_id = 7", "INSERT INTO h.plain VALUES (6, 6)")
    step.follow()
    step.reach(new)
    assert "several domains" in _why(step, "plain")


@pytest.mark.long
def test_a_binlog_without_what_the_replica_applied_is_refused(start_pair: StartPair, tmp_path: Path) -> None:
    """The server accepts any GTID then, that of a lost tail, too; its settings are right after a
    restart."""
    old, new = start_pair(log_slave_updates=False)
    _make(old, "plain", "tail")
    step = Stepwise(old, "h", tmp_path)
    step.snapshot("plain")
    step.snapshot("tail")
    old.run("INSERT INTO h.plain VALUES (3, 3)", "INSERT INTO h.plain VALUES (4, 4)")
    step.follow()
    _await_replica(old, new)
    _promote(new)
    new.restart(log_slave_updates=True)
    old.run("INSERT INTO h.tail VALUES (3, 3)")
    plain = {"plain": step.targets.pop("plain")}
    step.follow()
    step.targets |= plain
    step.reach(new)
    assert "has nothing behind" in _why(step, "plain")
    assert "has nothing behind" in _why(step, "tail")
    new.run("INSERT INTO h.plain VALUES (5, 5)")
    assert "none of the transactions whose commit times are recorded" in _why(step, "plain")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_sync_moves_by_itself_and_resnapshots_what_the_tail_touched(start_pair: StartPair, tmp_path: Path) -> None:
    """The source's name leads to the promoted replica, and the first run there is killed between
    two tables."""
    old, new = start_pair("mariadb1011")
    _make(old, "a", "b", "c")
    for server in (old, new):
        server.create_user("cdc", "for tests", GRANTS["mariadb"])
    with relay_to(old.host, old.port) as relay:
        spec = {"source": {"port": relay.port}}
        with Sync(old, [r"h\..*"], tmp_path / "sync", spec=spec, account=("cdc", "for tests")) as sync:
            sync.start("forever", gate=Gate("table-moved"))
            sync.wait_for(lambda s: _streaming(s) == 3)
            old.run(*(f"INSERT INTO h.{name} VALUES ({n}, {n})" for n in (3, 4) for name in "abc"))
            sync.wait_for(lambda _: sync.target("h.c").num_rows == 4)
            _await_replica(old, new)
            _promote(new)
            old.run("INSERT INTO h.a VALUES (5, 5)")
            sync.wait_for(lambda _: sync.target("h.a").num_rows == 5)
            new.run(*(f"INSERT INTO h.{name} VALUES (6, 6)" for name in "abc"))
            old.kill()
            relay.lead_to(new.host, new.port)
            sync.wait_fired()
            seen = sync.wait_for(lambda s: _streams(s, "h.a", 1) and _streaming(s) == 3, timeout=400)
            assert entry(seen, "h.a")["resnapshot"]["reason"] == "HistoryDiverged"
            assert [entry(seen, f"h.{name}")["generation"] for name in "bc"] == [0, 0]
            assert sync.terminate() == ExitCode.DONE
            for name in "abc":
                assert _rows(sync, name) == sorted(new.query(f"SELECT id, v FROM h.{name}"))


def _streams(status: dict[str, Any], name: str, generation: int) -> bool:
    table = entry(status, name)
    return (table.get("phase"), table.get("generation")) == ("Streaming", generation)


def _streaming(status: dict[str, Any]) -> int:
    return int(status.get("tables", {}).get("streaming", 0))


def _rows(sync: Sync, name: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in sync.target(f"h.{name}").select(["id", "v"]).to_pylist())
