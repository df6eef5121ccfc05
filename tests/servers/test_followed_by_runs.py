"""`cdcsync run` through schema changes: real drivers, one killed in the middle of a step, the
controller that starts the next one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from support.fixtures import FreshDatabase
from support.row_metadata import least_metadata
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


@pytest.mark.long
@pytest.mark.parametrize("gate", ["step-committed", "step-staged"])
def test_a_driver_that_dies_in_a_step(sync: Sync, gate: str) -> None:
    """The next one makes it or skips it: once, with the rows before and after it."""
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
    sync.start("caught-up", gate=Gate(gate))
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


@pytest.mark.long
def test_a_driver_that_dies_while_it_reads_the_catalog(sync: Sync) -> None:
    """The next one asks again, on a source that has nothing new, and records the answer."""
    name = f"{sync.database}.a"  # type: ignore[attr-defined]
    sync.run_to_completion()
    sync.server.run("ALTER TABLE a ADD n INT NOT NULL DEFAULT 7", db=str(sync.database))  # type: ignore[attr-defined]
    sync.start("forever", gate=Gate("definitions-read"))
    sync.wait_fired()
    sync.wait_until(lambda: _entry(sync, name).get("proof") == "Catalog", "the catalog has confirmed the change")
    sync.terminate()
    sync.run_to_completion()
    assert _entry(sync, name)["proof"] == "Catalog"


@pytest.mark.long
def test_a_change_that_the_binlog_does_not_have_is_found_and_resnapshotted(sync: Sync) -> None:
    """The catalog shows it, where rows do not name their columns."""
    database = str(sync.database)  # type: ignore[attr-defined]
    name, swap = f"{database}.a", "ALTER TABLE a CHANGE v w VARCHAR(20), CHANGE w v VARCHAR(20)"
    sync.server.run("ALTER TABLE a ADD w VARCHAR(20)", db=database)
    with least_metadata(sync.server):
        sync.run_to_completion()
        sync.server.run("INSERT INTO a VALUES (4, 'v', 'w')", db=database)
        sync.start("forever")
        sync.wait_until(lambda: len(sync.target(name)) == 4, "the first row is there")
        sync.server.run("SET sql_log_bin = 0", swap, db=database)
        sync.server.run("INSERT INTO a (id, v, w) VALUES (5, 'v', 'w')", db=database)
        sync.wait_until(lambda: _rows(sync, name) == _source(sync, name), "the copy has the values of each name")
        assert [row[0] for row in _rows(sync, name)] == [1, 2, 3, 4, 5]
        sync.terminate()


def _rows(sync: Sync, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in sync.target(name).select(["id", "v", "w"]).sort_by("id").to_pylist()]


def _source(sync: Sync, name: str) -> list[tuple[Any, ...]]:
    return list(sync.server.query(f"SELECT id, v, w FROM {name} ORDER BY id"))


def _entry(sync: Sync, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((t.get("schema") or {} for t in sync.status()["tableStatus"] if t["name"] == name), {})
    return found


@pytest.mark.long
def test_a_tables_own_policy_changes_while_it_runs(sync: Sync) -> None:
    """`cdcsync check` says what each policy would do; `cdcsync status` shows what was done."""
    database = str(sync.database)  # type: ignore[attr-defined]
    fail = {"table": f"{database}.a", "schemaChange": {"behavior": "fail"}}
    sync.write_manifest(tables={"include": [rf"{database}\..*"], "overrides": [fail]})
    assert _checked(sync) == {f"{database}.a": "stops", f"{database}.b": "resnapshot"}
    sync.start("forever")
    sync.wait_phase("Streaming")
    for table in ("a", "b"):
        sync.server.run(
            f"ALTER TABLE {table} ADD n INT NOT NULL DEFAULT 7", f"INSERT INTO {table} VALUES (4, '', 8)", db=database
        )
    sync.wait_until(
        lambda: _entry(sync, f"{database}.b").get("proof") == "Catalog", "the table without an override is followed"
    )
    sync.wait_until(lambda: _table(sync, f"{database}.a")["reason"] == "SchemaChangeRefused", "the other one stopped")

    sync.write_manifest(tables={"include": [rf"{database}\..*"], "overrides": []})
    assert set(_checked(sync).values()) == {"resnapshot"}
    sync.wait_until(lambda: _entry(sync, f"{database}.a").get("proof") == "Catalog", "the stopped one is followed, too")
    shown = " ".join(sync.command("status").stdout.split())
    assert "1: fill: ALTER TABLE a ADD n INT NOT NULL DEFAULT 7" in shown
    sync.terminate()
    for table in ("a", "b"):
        found = [tuple(row.values()) for row in sync.target(f"{database}.{table}").sort_by("id").to_pylist()]
        assert found == list(sync.server.query(f"SELECT id, v, n FROM {database}.{table} ORDER BY id"))
        assert _table(sync, f"{database}.{table}")["generation"] == 0, "no resnapshot"


def _checked(sync: Sync) -> dict[str, str]:
    """Table -> what becomes of it after a change that cannot be followed, by `cdcsync check`."""
    command = [sys.executable, "-m", "cdcsync_operator", "check", "-f", str(sync.manifest), "-o", "json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    return {t["name"]: t["schemaChangeNotFollowed"] for t in found["tables"]}


def _table(sync: Sync, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(t for t in sync.status()["tableStatus"] if t["name"] == name)
    return found
