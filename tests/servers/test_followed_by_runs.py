"""`cdcsync run` through schema changes: real drivers, one killed in the middle of a step, the
controller that starts the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcsync_core.run import ExitCode
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def sync(mariadb1011: Server, tmp_path: Path, fresh_database: FreshDatabase) -> Iterator[Sync]:
    database = fresh_database(mariadb1011)
    for table in ("a", "b"):
        mariadb1011.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {table} VALUES (1, 'one'), (2, NULL), (3, '')",
            db=database,
        )
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync") as found:
        found.database = database  # type: ignore[attr-defined]
        found.write_manifest(schemaChange={"behavior": "evolve", "droppedColumns": "drop"})
        yield found


def test_a_driver_that_dies_after_a_step(sync: Sync) -> None:
    """The next one skips it: once, with the rows before and after it."""
    database = str(sync.database)  # type: ignore[attr-defined]
    sync.run_to_completion()
    sync.server.run(
        "INSERT INTO a VALUES (4, 'before')",
        "ALTER TABLE a ADD n INT NOT NULL DEFAULT 7 AFTER id",
        "UPDATE a SET n = 8, v = 'after' WHERE id = 1",
        "ALTER TABLE a DROP v, ADD v VARCHAR(20) DEFAULT 'new'",
        "INSERT INTO a VALUES (5, 9, 'last')",
        "TRUNCATE b",
        "INSERT INTO b VALUES (1, 'again')",
        db=database,
    )
    sync.start("caught-up", gate=Gate("step-committed"))
    assert sync.wait() == ExitCode.DONE
    assert sync.fired
    for table, columns in (("a", "id, n, v"), ("b", "id, v")):
        target = sync.target(f"{database}.{table}").sort_by("id")
        assert ", ".join(target.column_names) == columns
        found = [tuple(row.values()) for row in target.to_pylist()]
        assert found == list(sync.server.query(f"SELECT {columns} FROM {database}.{table} ORDER BY id"))
    entry = next(t for t in sync.status()["tableStatus"] if t["name"] == f"{database}.a")
    assert (entry["schema"]["version"], entry["schema"]["step"]) == (2, "fill")
    assert entry["schema"]["statement"].startswith("ALTER TABLE a DROP v")
