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
from cdcsync_core.runs.run import ExitCode
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def database(mariadb1011: Server, fresh_database: FreshDatabase) -> str:
    name = fresh_database(mariadb1011)
    for table in ("a", "b", "c", "d"):
        mariadb1011.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2)", db=name)
    return name


def conflicts(sync: Sync) -> dict[str, str]:
    """The remedies that a run ends with, by table."""
    result = sync.command("run", "--until", "caught-up")
    assert result.returncode == ExitCode.USER_MUST_ACT, result.stderr
    failed = [t for t in sync.status()["tableStatus"] if t["phase"] == "Failed"]
    assert {t["reason"] for t in failed} == {"SinkConflict"}
    remedies = {str(t["name"]): str(t["message"].partition("; remedy: ")[2]) for t in failed}
    assert all(remedies.values())
    return remedies


def ids(sync: Sync, table: str) -> list[Any]:
    return sorted(sync.target(table).column("id").to_pylist())


def test_a_lake_that_is_not_mounted_is_taken_for_no_empty_one(
    mariadb1011: Server, database: str, tmp_path: Path
) -> None:
    """Its tables had content when the run before ended: a copy in a folder below the volume would
    be hidden when that is back. A user who has the conflict, and runs again, wants a new copy."""
    a = f"{database}.a"
    with Sync(mariadb1011, [rf"{database}\.a"], tmp_path / "sync") as sync:
        sync.run_to_completion()
        volume = sync.lake.rename(tmp_path / "volume")
        mariadb1011.run("INSERT INTO a VALUES (3)", db=database)
        remedy = conflicts(sync)[a]
        assert "mount its volume" in remedy
        assert RUN_AGAIN in remedy
        assert not sync.path(a).exists()
        shutil.rmtree(sync.lake, ignore_errors=True)
        volume.rename(sync.lake)
        sync.run_to_completion()
        assert ids(sync, a) == [1, 2, 3]
        assert len(list(sync.path(a).glob("_delta_log/*.json"))) > 2, "the copy of before goes on"
        sync.lake.rename(volume)
        assert set(conflicts(sync)) == {a}
        sync.run_to_completion()
        assert ids(sync, a) == [1, 2, 3]


@pytest.mark.long
def test_a_table_that_another_program_replaced_and_one_with_a_rule(
    mariadb1011: Server, database: str, tmp_path: Path
) -> None:
    """`a` is replaced by a table of another program, `b` is set to append only, `d` loses a data
    file; `c` goes on."""
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path) as sync:
        sync.run_to_completion()
        a, b, c, d = (f"{database}.{name}" for name in "abcd")
        folder = sync.path(a)
        shutil.rmtree(folder)
        write_deltalake(str(folder), pa.table({"id": [7]}))
        sync.delta(b).alter.set_table_properties({"delta.appendOnly": "true"})
        (file,) = sync.path(d).glob("*.parquet")
        lost = file.rename(tmp_path / file.name)
        mariadb1011.run(
            *(f"INSERT INTO {table} VALUES (3)" for table in "acd"), "DELETE FROM b WHERE id = 1", db=database
        )
        remedies = conflicts(sync)
        assert set(remedies) == {a, b, d}
        assert ids(sync, c) == [1, 2, 3]
        assert "move its folder away" in remedies[a]
        assert RUN_AGAIN in remedies[a]
        assert "remove" not in remedies[a]
        assert "delete" not in remedies[a]
        assert "set delta.appendOnly to false there" in remedies[b]
        assert "restore the file" in remedies[d]
        lost.rename(file)
        shutil.move(folder, tmp_path / "away")
        sync.delta(b).alter.set_table_properties({"delta.appendOnly": "false"})
        sync.run_to_completion()
        assert [ids(sync, table) for table in (a, b, c, d)] == [[1, 2, 3], [2], [1, 2, 3], [1, 2, 3]]
        assert DeltaTable(str(tmp_path / "away")).version() == 0


@pytest.mark.long
def test_a_table_of_another_sync_is_never_to_be_removed(mariadb1011: Server, database: str, tmp_path: Path) -> None:
    with Sync(mariadb1011, [rf"{database}\.a"], tmp_path / "one", name="one") as one:
        one.run_to_completion()
        lake = {"sink": {"delta": {"path": str(one.lake)}}}
        with Sync(mariadb1011, [rf"{database}\.a"], tmp_path / "two", name="two", spec=lake) as two:
            (remedy,) = conflicts(two).values()
            assert "another sink path" in remedy
            assert "default/one" in remedy
            assert not {"remove", "delete", "move"} & set(remedy.split())
            two.write_manifest(sink={"delta": {"path": str(two.lake)}})
            two.run_to_completion()
            assert ids(two, f"{database}.a") == [1, 2]
        assert ids(one, f"{database}.a") == [1, 2]
