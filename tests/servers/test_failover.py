"""Rule R6 on another server: a table goes on there by a proof, and by nothing else."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.gates import observed
from cdcsync_core.positions.failover import diverged_at
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import GtidPosition, Position
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.binlog.search.stopping_statement import statements_behind
from cdcsync_spark.stream import failover
from support.relay import relay_to
from support.servers import VARIANTS, Server
from support.stepwise import Stepwise
from support.sync_process import GRANTS, Gate, Sync
from support.table_status import entry

_SECONDS = 180.0
_TAGGED = "SET GTID_NEXT = 'AUTOMATIC:app'"


class _DiedAtGate(Exception):
    """The process, at a gate."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A primary and its replica, whose applier has four threads."""
    old = VARIANTS["mysql97_gtid"].start(tmp_path / "old", server_id=101)
    try:
        new = VARIANTS["mysql97_gtid"].start(tmp_path / "new", server_id=102, replica_parallel_workers=4)
        try:
            _replicate(old, new)
            yield old, new
        finally:
            new.remove()
    finally:
        old.remove()


def _replicate(old: Server, new: Server) -> None:
    new.run(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{old.host}', SOURCE_PORT={old.port}, SOURCE_USER='root',"
        " SOURCE_AUTO_POSITION=1, SOURCE_SSL=0, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=1000000",
        "START REPLICA",
    )


def _promote(new: Server) -> None:
    new.run("STOP REPLICA", "RESET REPLICA ALL")


def _executed(server: Server) -> GtidSet:
    return GtidSet.parse(str(server.query("SELECT @@GLOBAL.gtid_executed")[0][0]))


def _await_replica(old: Server, new: Server) -> None:
    ours, deadline = _executed(old), time.monotonic() + _SECONDS
    while not _executed(new).covers(ours):
        assert time.monotonic() < deadline, [str(column) for column in new.query("SHOW REPLICA STATUS")[0]]
        time.sleep(0.05)


def _refused(step: Stepwise, name: str) -> CdcError:
    before = step.state(name)
    with pytest.raises(CdcError) as refused:
        step.move(name)
    assert step.state(name) == before
    return refused.value


def _gtids(step: Stepwise, name: str) -> GtidSet:
    position = step.position(name)
    assert isinstance(position, GtidPosition)
    return position.gtids


def _streams(status: dict[str, Any], name: str, generation: int) -> bool:
    found = entry(status, name)
    return (found.get("phase"), found.get("generation")) == ("Streaming", generation)


def _streaming(status: dict[str, Any]) -> int:
    return int(status.get("tables", {}).get("streaming", 0))


def _make(server: Server, *names: str) -> None:
    for name in names:
        server.run(f"CREATE TABLE h.{name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO h.{name} VALUES (1, 1), (2, 2)")


def test_a_lost_tail_and_an_errant_transaction_stop_their_own_tables(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """What the tail did not touch goes on, exactly once, and a run that dies between two tables
    proves the rest. Transactions with a tag and without are mixed."""
    old, new = pair
    old.run("CREATE DATABASE h")
    _make(old, "plain", "idle", "tail", "errant", "late", "dropped", "catching", "twice", "swing")
    step = Stepwise(old, "h", tmp_path)
    for name in ("plain", "idle", "tail", "errant", "dropped"):
        step.snapshot(name)
    for number in range(10, 20):
        old.run(*[_TAGGED][: number % 2], f"INSERT INTO h.plain VALUES ({number}, {number})")
    step.follow(killed=True)
    assert step.state("idle").consistent, "without a change of its own"
    _await_replica(old, new)
    new.run("UPDATE h.errant SET v = 100 WHERE id = 1", "CREATE USER promoted")
    old.run(_TAGGED, "UPDATE h.errant SET v = 200 WHERE id = 1", "INSERT INTO h.plain VALUES (20, 20)")
    step.follow()
    _await_replica(old, new)
    step.snapshot("late")
    catching = step.catching_up("catching") | step.catching_up("twice")
    _await_replica(old, new)

    _promote(new)
    shared = _executed(old)
    old.run("INSERT INTO h.tail VALUES (3, 3)", _TAGGED, "UPDATE h.tail SET v = 0 WHERE id = 1")
    lost = _executed(old).subtract(shared)
    old.run("UPDATE h.swing SET v = 0")
    held = {name: step.targets.pop(name) for name in ("late",)}
    step.follow()
    step.targets |= held
    new.run("INSERT INTO h.plain VALUES (30, 30)", "INSERT INTO h.tail VALUES (4, 33)", "DELETE FROM h.idle")
    new.run("DELETE FROM h.dropped WHERE id = 1", "DROP TABLE h.dropped")

    step.reach(new)
    refused = _refused(step, "tail")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert diverged_at(refused.message) == step.facts.log
    assert str(lost) in refused.found
    refused = _refused(step, "errant")
    assert refused.reason is Reason.POSITION_LOST
    assert "change the table before the last one of ours" in refused.found
    refused = _refused(step, "late")
    assert refused.reason is Reason.POSITION_LOST
    assert "no transaction's commit time is recorded" in refused.found

    def die(gate: str) -> None:
        if gate == "table-moved":
            raise _DiedAtGate

    with observed(die), pytest.raises(_DiedAtGate):
        step.move("plain")
    assert _gtids(step, "plain") == shared
    assert step.state("plain").identity.lineage.newest == step.facts.log
    step.move("idle", "dropped")
    for name in ("tail", "errant", "late"):
        del step.targets[name]
    step.targets |= catching
    step.move("catching", "twice")
    assert not step.state("catching").consistent
    twice = step.targets.pop("twice")
    step.snapshot("swing")
    new.run("UPDATE h.swing SET v = 5 WHERE id = 1", "UPDATE h.catching SET v = 50 WHERE id = 1")
    stopped = {name: table.error.reason for name, table in step.follow().items() if table.error}
    assert stopped == {"dropped": Reason.SCHEMA_CHANGE_REFUSED}
    assert step.targets.pop("dropped").open_snapshot().scan().read_all()["id"].to_pylist() == [2]
    for name in ("plain", "idle", "catching", "swing"):
        assert not step.difference(name), step.difference(name)
        assert step.state(name).consistent

    # back by the same proof, after what was written meanwhile; the old server kept its tail
    _replicate(new, old)
    _await_replica(new, old)
    _promote(old)
    old.run("INSERT INTO h.plain VALUES (40, 40)")
    step.reach(old)
    step.targets["twice"] = twice
    step.move("plain", "idle", "twice")
    refused = _refused(step, "swing")
    assert refused.reason is Reason.POSITION_LOST
    assert "change the table before the last one of ours" in refused.found
    for name in ("swing", "catching"):
        del step.targets[name]
    step.follow()
    for name in ("plain", "twice"):
        assert not step.difference(name), step.difference(name)
        assert len(step.state(name).identity.lineage.binlogs) == 3


def test_a_new_server_must_have_all_that_a_snapshot_may_have_read(pair: tuple[Server, Server], tmp_path: Path) -> None:
    """A replica that lags is waited for; where it is promoted the table has diverged, and also
    where other transactions get the GTIDs of those that were lost."""
    old, new = pair
    old.run("CREATE DATABASE h")
    _make(old, "torn")

    def lag() -> None:
        _await_replica(old, new)
        new.run("STOP REPLICA SQL_THREAD")

    step = Stepwise(old, "h", tmp_path)
    step.targets = step.catching_up("torn", between=lag)
    assert sorted(step.targets["torn"].open_snapshot().scan().read_all()["v"].to_pylist()) == [2, 3]
    step.reach(new)
    refused = _refused(step, "torn")
    assert refused.reason is Reason.SOURCE_UNREACHABLE
    assert "the table's snapshot may have read" in refused.found
    _promote(new)
    lost = _executed(old).subtract(_executed(new))
    refused = _refused(step, "torn")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert refused.found.endswith(f"the server lacks transactions that the table's snapshot may have read: {lost}")
    for source, intervals in lost.items():
        for number in range(intervals[0][0], intervals[-1][1] + 1):
            new.run(f"SET GTID_NEXT = '{source}:{number}'", "UPDATE h.torn SET v = 0 WHERE id = 1")
    refused = _refused(step, "torn")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert "other transactions have the same GTIDs" in refused.found


def test_tables_at_several_places_have_the_binlog_searched_once(
    pair: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For what dropped them; a table that has all the statements was dropped without a trace."""
    names, searched_from = ("a", "b", "c"), list[Position]()

    def searched(source: Source, server: ServerFacts, position: Position, tables: Collection[TableId]) -> Any:
        searched_from.append(position)
        return statements_behind(source, server, position, tables)

    monkeypatch.setattr(failover, "statements_behind", searched)
    old, new = pair
    old.run("CREATE DATABASE h")
    _make(old, *names, "gone")
    step = Stepwise(old, "h", tmp_path)
    for name in ("gone", *names):
        step.snapshot(name)
    targets, step.targets = step.targets, {}
    for name in names:
        old.run(f"INSERT INTO h.{name} VALUES (3, 3)")
        step.targets |= {name: targets[name]}
        step.follow()
        del step.targets[name]
    old.run("ALTER TABLE h.gone DROP COLUMN v", "INSERT INTO h.gone VALUES (3)")
    step.targets, step.policy = {"gone": targets["gone"]}, FollowPolicy(follow=True)
    step.follow()
    step.targets = targets
    _await_replica(old, new)
    _promote(new)
    new.run("SET SQL_LOG_BIN = 0", "DROP TABLE h.gone", "SET SQL_LOG_BIN = 1", "DROP TABLE h.a, h.b, h.c")
    step.reach(new)
    assert len({str(_gtids(step, name)) for name in names}) == 3
    with open_session(step.source) as session:
        moving = failover.Failover(step.source, session, [TableId("h", n) for n in targets], epoch=1)
        moved = {name: moving.judge(step.state(name)) for name in targets}
        for name in reversed(names):
            moving.move(targets[name].writer(tmp_path), step.state(name), moved[name])
        with pytest.raises(CdcError) as refused:
            moving.move(targets["gone"].writer(tmp_path), step.state("gone"), moved["gone"])
    assert refused.value.reason is Reason.NO_SUCH_TABLE
    assert len(searched_from) == 1
    del step.targets["gone"]
    assert [table.error and table.error.reason for table in step.follow().values()] == [Reason.TABLE_GONE] * 3


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_sync_moves_by_itself_and_resnapshots_what_the_tail_touched(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """The source's name leads to the promoted replica, and the first run there is killed between
    two tables."""
    old, new = pair
    old.run("CREATE DATABASE h")
    _make(old, "a", "b", "c")
    for server in pair:
        server.create_user("cdc", "for tests", GRANTS["mysql"])
    with relay_to(old.host, old.port) as relay:
        sync = Sync(
            old, [r"h\..*"], tmp_path / "sync", spec={"source": {"port": relay.port}}, account=("cdc", "for tests")
        )
        with sync:
            sync.start("forever", gate=Gate("table-moved"))
            sync.wait_for(lambda s: _streaming(s) == 3)
            old.run(*(f"INSERT INTO h.{name} VALUES (3, 3)" for name in "abc"))
            _await_replica(old, new)
            _promote(new)
            old.run("INSERT INTO h.a VALUES (4, 4)")
            sync.wait_for(lambda _: sync.target("h.a").num_rows == 4)
            new.run(*(f"INSERT INTO h.{name} VALUES (5, 5)" for name in "abc"))
            old.kill()
            relay.lead_to(new.host, new.port)
            sync.wait_fired()
            seen = sync.wait_for(lambda s: _streams(s, "h.a", 1) and _streaming(s) == 3, timeout=400)
            assert entry(seen, "h.a")["resnapshot"]["reason"] == "HistoryDiverged"
            assert [entry(seen, f"h.{name}")["generation"] for name in "bc"] == [0, 0]
            assert sync.terminate() == ExitCode.DONE
            for name in "abc":
                assert _rows(sync, name) == sorted(new.query(f"SELECT id, v FROM h.{name}"))


def _rows(sync: Sync, name: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in sync.target(f"h.{name}").select(["id", "v"]).to_pylist())


def test_a_server_with_other_transactions_of_the_same_gtids_is_refused(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """As after RESET BINARY LOGS AND GTIDS; so is a binlog that begins behind ours. A replica that
    lags is waited for by the tables that were changed by what it lacks, and by no others."""
    old, new = pair
    old.run("CREATE DATABASE h")
    _make(old, "plain", "calm")
    step = Stepwise(old, "h", tmp_path)
    step.snapshot("plain")
    step.snapshot("calm")
    old.run("INSERT INTO h.plain VALUES (3, 3)")
    step.follow()
    _await_replica(old, new)

    new.run("STOP REPLICA SQL_THREAD")
    old.run("INSERT INTO h.plain VALUES (4, 4)")
    step.follow()
    step.reach(new)
    refused = _refused(step, "plain")
    assert refused.reason is Reason.SOURCE_UNREACHABLE
    assert f"{new.host} is a replica and may still get what it lacks from {old.host}:{old.port}" in refused.found
    step.move("calm")
    plain = step.targets.pop("plain")
    step.follow()
    old.run("INSERT INTO h.calm VALUES (4, 4)")
    new.run("START REPLICA")
    _await_replica(old, new)
    step.follow()
    assert not step.difference("calm")
    step.targets = {"plain": plain}
    _promote(new)

    new.run("FLUSH BINARY LOGS")
    new.purge_binlogs()
    refused = _refused(step, "plain")
    assert refused.reason is Reason.POSITION_LOST
    assert "purged" in refused.found

    ours = _gtids(step, "plain")
    new.run("RESET BINARY LOGS AND GTIDS")
    for source, intervals in ours.items():
        for number in range(1, intervals[-1][1] + 1):
            new.run(f"SET GTID_NEXT = '{source}:{number}'", f"UPDATE h.plain SET v = {number + 1000} WHERE id = 1")
    refused = _refused(step, "plain")
    assert refused.reason is Reason.POSITION_LOST
    assert "other transactions have the same GTIDs" in refused.found


def test_a_server_that_lost_transactions_of_its_own_is_no_way_back(pair: tuple[Server, Server], tmp_path: Path) -> None:
    """It was restored from a copy, and tables have more of its own than it has; then another one
    gets the number."""
    old, new = pair
    old.run("CREATE DATABASE h")
    _make(old, "plain", "tail")
    step = Stepwise(old, "h", tmp_path)
    for name in ("plain", "tail"):
        step.snapshot(name)
    old.run("INSERT INTO h.plain VALUES (3, 3)")
    step.follow()
    _await_replica(old, new)
    _promote(new)
    step.reach(new)
    step.move("plain", "tail")
    new.run("INSERT INTO h.plain VALUES (4, 4)")
    step.follow()
    new.stop()
    shutil.copytree(new.datadir, tmp_path / "copy", symlinks=True)
    new.start()
    new.run("INSERT INTO h.tail VALUES (5, 5)")
    step.follow()
    _replicate(new, old)
    _await_replica(new, old)
    _promote(old)
    step.reach(old)
    step.move("plain", "tail")
    ours = _gtids(step, "plain")

    new.stop()
    shutil.rmtree(new.datadir)
    shutil.copytree(tmp_path / "copy", new.datadir, symlinks=True)
    new.start()
    lacking = ours.subtract(_executed(new))
    assert lacking
    step.reach(new)
    refused = _refused(step, "tail")
    assert refused.reason is Reason.HISTORY_DIVERGED
    assert str(lacking) in refused.found
    new.run("UPDATE h.plain SET v = 6 WHERE id = 1")
    assert _executed(new).covers(ours), "it has given the number once more"
    for name in ("plain", "tail"):
        refused = _refused(step, name)
        assert refused.reason is Reason.POSITION_LOST
        assert "other transactions have the same GTIDs" in refused.found
