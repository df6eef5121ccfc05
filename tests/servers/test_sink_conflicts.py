"""The remedy of `SinkConflict` does what it promises: each test does what the message asks for, and
runs again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdcsync_core.errors import RUN_AGAIN
from cdcsync_core.run import ExitCode
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def database(mariadb1011: Server, fresh_database: FreshDatabase) -> str:
    name = fresh_database(mariadb1011)
    for table in ("a", "b"):
        mariadb1011.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2)", db=name)
    return name


def conflict(sync: Sync, table: str) -> str:
    """The remedy that a run ends with."""
    result = sync.command("run", "--until", "caught-up")
    assert result.returncode == ExitCode.USER_MUST_ACT, result.stderr
    failed = {t["name"]: t for t in sync.status()["tableStatus"] if t["phase"] == "Failed"}
    assert set(failed) == {table}
    assert failed[table]["reason"] == "SinkConflict"
    remedy: str = failed[table]["message"].partition("; remedy: ")[2]
    assert remedy
    return remedy


def ids(sync: Sync, table: str) -> list[Any]:
    return sorted(sync.target(table).column("id").to_pylist())


def test_a_table_that_another_program_replaced(mariadb1011: Server, database: str, tmp_path: Path) -> None:
    """It failed with content of its own, and stayed `Failed` whatever became of its folder."""
    table = f"{database}.a"
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path) as sync:
        sync.run_to_completion()
        folder = sync.path(table)
        shutil.rmtree(folder)
        write_deltalake(str(folder), pa.table({"id": [7]}))
        mariadb1011.run("INSERT INTO a VALUES (3)", "INSERT INTO b VALUES (3)", db=database)
        remedy = conflict(sync, table)
        assert "move its folder away" in remedy
        assert RUN_AGAIN in remedy
        assert "remove" not in remedy
        assert "delete" not in remedy
        shutil.move(folder, tmp_path / "away")
        sync.run_to_completion()
        assert (ids(sync, table), ids(sync, f"{database}.b")) == ([1, 2, 3], [1, 2, 3])
        assert DeltaTable(str(tmp_path / "away")).version() == 0


def test_a_rule_of_the_target(mariadb1011: Server, database: str, tmp_path: Path) -> None:
    table = f"{database}.a"
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path) as sync:
        sync.run_to_completion()
        sync.delta(table).alter.set_table_properties({"delta.appendOnly": "true"})
        mariadb1011.run("DELETE FROM a WHERE id = 1", "INSERT INTO b VALUES (3)", db=database)
        remedy = conflict(sync, table)
        assert "set delta.appendOnly to false there" in remedy
        sync.delta(table).alter.set_table_properties({"delta.appendOnly": "false"})
        sync.run_to_completion()
        assert (ids(sync, table), ids(sync, f"{database}.b")) == ([2], [1, 2, 3])


def test_a_table_of_another_sync_is_never_to_be_removed(mariadb1011: Server, database: str, tmp_path: Path) -> None:
    with Sync(mariadb1011, [rf"{database}\.a"], tmp_path / "one", name="one") as one:
        one.run_to_completion()
        lake = {"sink": {"delta": {"path": str(one.lake)}}}
        with Sync(mariadb1011, [rf"{database}\.a"], tmp_path / "two", name="two", spec=lake) as two:
            remedy = conflict(two, f"{database}.a")
            assert "another sink path" in remedy
            assert "default/one" in remedy
            assert not {"remove", "delete", "move"} & set(remedy.split())
            two.write_manifest(sink={"delta": {"path": str(two.lake)}})
            two.run_to_completion()
            assert ids(two, f"{database}.a") == [1, 2]
        assert ids(one, f"{database}.a") == [1, 2]
