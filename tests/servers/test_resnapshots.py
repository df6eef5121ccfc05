"""What cannot be followed is resnapshotted without the user: a table whose definition changed, and
all tables when the binlog that they need is gone. The old content serves meanwhile (R5, R6, R9)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from support.fixtures import FreshDatabase, FreshServer
from support.servers import Server
from support.sync_process import Gate, Sync
from support.table_status import entry, name_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
SPEC = {"schemaChange": {"behavior": "evolve"}, "snapshot": {"chunkSize": 50}}
#: no rule of following knows what it does to the values
UNFOLLOWED = "ALTER TABLE b MODIFY word VARBINARY(40) NOT NULL, ADD COLUMN n INT NOT NULL DEFAULT (LENGTH(word) * 3)"


def fill(server: Server, database: str, *tables: str) -> None:
    for table in tables:
        server.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(20) NOT NULL)",
            f"INSERT INTO {table} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 220)"
            " SELECT i, CONCAT('w', i) FROM n",
            db=database,
        )


@pytest.fixture
def sync(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> Iterator[Sync]:
    """A sync of the tables `a` and `b`."""
    database = fresh_database(mariadb1011)
    fill(mariadb1011, database, "a", "b")
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", spec=SPEC) as found:
        found.database = database  # type: ignore[attr-defined]
        yield found


def streams(status: dict[str, Any], name: str, generation: int) -> bool:
    found = entry(status, name)
    return (found.get("phase"), found.get("generation")) == ("Streaming", generation)


def assert_equal(sync: Sync, table: str, columns: tuple[str, ...] = ("id", "word")) -> None:
    """Source and target, row for row."""
    target = sync.target(name_of(sync, table)).select(list(columns)).sort_by("id").to_pylist()
    source = sync.server.query(f"SELECT {', '.join(columns)} FROM {name_of(sync, table)} ORDER BY id")
    assert [tuple(row.values()) for row in target] == list(source)
    assert set(sync.target(name_of(sync, table)).column_names) == set(columns)


@pytest.mark.long
@pytest.mark.parametrize("gate", ["resnapshot-decided", "wave-committed", "published"])
def test_a_change_that_cannot_be_followed_is_resnapshotted_wherever_it_dies(sync: Sync, gate: str) -> None:
    """The first process that reaches the failpoint is killed: the controller, or a snapshot's
    driver."""
    database = str(sync.database)  # type: ignore[attr-defined]
    sync.run_to_completion()
    sync.start("forever", gate=Gate(gate))
    sync.wait_for(lambda s: s["tables"]["streaming"] == 2)
    sync.server.run(
        UNFOLLOWED, "INSERT INTO b (id, word) VALUES (9001, 'x')", "INSERT INTO a VALUES (9001, 'on')", db=database
    )
    sync.wait_fired()
    before = sync.target(name_of(sync, "b"))
    if gate != "published":
        assert before.num_rows == 220, "the old content serves"
        assert set(before.column_names) == {"id", "word"}
    if gate == "resnapshot-decided":
        sync.wait()
        sync.start("forever")
    seen = sync.wait_for(lambda s: streams(s, name_of(sync, "b"), 1), timeout=400)
    assert entry(seen, name_of(sync, "b"))["resnapshot"]["reason"] == "SchemaChangeRefused"
    assert len(entry(seen, name_of(sync, "b"))["resnapshot"]["at"]) == 1
    assert entry(seen, name_of(sync, "a"))["generation"] == 0
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    assert_equal(sync, "a")
    assert_equal(sync, "b", ("id", "word", "n"))


@pytest.mark.long
def test_a_first_snapshot_that_meets_another_definition_begins_again(sync: Sync) -> None:
    """One wave of the old definition is in the target already."""
    database = str(sync.database)  # type: ignore[attr-defined]
    sync.write_manifest(snapshot={"chunkSize": 20, "parallelism": 1})
    sync.start("forever", gate=Gate("wave-committed", count=8, action="stop"))
    sync.wait_fired()
    sync.server.run(UNFOLLOWED, "DELETE FROM b WHERE id = 7", db=database)
    sync.signal("driver", signal.SIGCONT)
    sync.wait_for(lambda s: streams(s, name_of(sync, "b"), 1), timeout=400)
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    assert_equal(sync, "a")
    assert_equal(sync, "b", ("id", "word", "n"))


@pytest.mark.long
@pytest.mark.parametrize("lost", ["purged", "reset"])
def test_a_lost_position_is_cured_by_a_resnapshot_of_all_tables(
    fresh_server: FreshServer, tmp_path: Path, lost: str
) -> None:
    server = fresh_server("mariadb1011")
    database = server.create_database()
    fill(server, database, "a", "b")
    spec = {"onPositionLost": "resnapshot"}
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=spec) as sync:
        sync.database = database  # type: ignore[attr-defined]
        sync.run_to_completion()
        server.run("UPDATE a SET word = 'unseen' WHERE id = 5", "DELETE FROM b WHERE id = 6", db=database)
        if lost == "reset":
            server.run("RESET MASTER")
        else:
            server.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
            server.purge_binlogs()
        sync.run_to_completion()
        for table in ("a", "b"):
            found = entry(sync.status(), name_of(sync, table))
            assert (found["generation"], found["resnapshot"]["reason"]) == (1, "PositionLost")
            assert_equal(sync, table)
        server.run("UPDATE a SET word = 'streamed' WHERE id = 8", db=database)
        sync.run_to_completion()
        assert_equal(sync, "a")
