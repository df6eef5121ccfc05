"""Rule R8 with real processes: a driver that was believed dead wakes up before or after its
successor's first commit.

The first sync's driver stops itself between its decision and its commit, and its controller is
killed. A second sync of the same name, with a state folder of its own (the first one is lost, or on
another machine), takes over.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.compare import compare, source_rows
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture
def database(mysql97_gtid: Server, fresh_database: FreshDatabase) -> str:
    name = fresh_database(mysql97_gtid)
    rows = ",".join(f"({i}, 'old')" for i in range(2000))
    mysql97_gtid.run("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))", f"INSERT INTO a VALUES {rows}", db=name)
    return name


def _syncs(server: Server, database: str, folder: Path) -> tuple[Sync, Sync]:
    """Two controllers' views of one sync: the same name and lake."""
    first = Sync(server, [f"{database}.*"], folder / "first")
    second = Sync(server, [f"{database}.*"], folder / "second", spec={"sink": {"delta": {"path": str(first.lake)}}})
    return first, second


def _stopped_before_its_commit(sync: Sync, server: Server, database: str) -> None:
    """A stream's driver that has decided what to commit, stopped; its controller is dead.

    It has committed before: a first commit waits for the key index, and is given up where the
    controller is gone by then.
    """
    sync.run_to_completion("snapshot")
    snapshot = sync.delta(f"{database}.a").version()
    server.run("UPDATE a SET v = 'early' WHERE id < 100", db=database)
    sync.start(until="forever", gate=Gate("before-commit", 2, "stop"))
    sync.wait_until(lambda: sync.delta(f"{database}.a").version() > snapshot, "the first commit")
    server.run("UPDATE a SET v = 'by the zombie' WHERE id < 100", db=database)
    sync.wait_fired()
    sync.kill("controller")


def _is_equal(server: Server, database: str, sync: Sync) -> bool:
    target = sync.target(f"{database}.a")
    return not compare("a", source_rows(server, database, "a", target.schema), target, ["id"])


def _equal(server: Server, database: str, sync: Sync) -> None:
    assert _is_equal(server, database, sync)


def test_a_zombie_after_its_successors_first_commit(mysql97_gtid: Server, database: str, tmp_path: Path) -> None:
    """A MERGE of the successor and an OPTIMIZE of a third program come in between."""
    first, second = _syncs(mysql97_gtid, database, tmp_path)
    with first, second:
        _stopped_before_its_commit(first, mysql97_gtid, database)
        mysql97_gtid.run(
            "UPDATE a SET v = 'by the successor' WHERE id < 50", "DELETE FROM a WHERE id = 1999", db=database
        )
        second.start()
        second.wait_until(lambda: _is_equal(mysql97_gtid, database, first), "the successor's commit")
        first.delta(f"{database}.a").optimize.compact()
        version = first.delta(f"{database}.a").version()
        first.signal("driver", signal.SIGCONT)
        first.wait_until_gone("driver")
        assert first.delta(f"{database}.a").version() == version
        mysql97_gtid.run("UPDATE a SET v = 'later' WHERE id < 10", db=database)
        second.wait_until(lambda: _is_equal(mysql97_gtid, database, first), "what came later")
        assert second.terminate() == 0, second.logs()
        _equal(mysql97_gtid, database, first)


@pytest.mark.long
def test_a_zombie_before_its_successors_first_commit(mysql97_gtid: Server, database: str, tmp_path: Path) -> None:
    """What the zombie has committed is skipped by its successor, which had decided on the state
    before."""
    first, second = _syncs(mysql97_gtid, database, tmp_path)
    with first, second:
        _stopped_before_its_commit(first, mysql97_gtid, database)
        second.start(until="caught-up", gate=Gate("before-commit", 1, "stop"))
        second.wait_fired()
        version = first.delta(f"{database}.a").version()
        first.signal("driver", signal.SIGCONT)
        first.wait_until_gone("driver")
        assert first.delta(f"{database}.a").version() > version
        second.signal("driver", signal.SIGCONT)
        assert second.wait() == 0, second.logs()
        _equal(mysql97_gtid, database, first)
