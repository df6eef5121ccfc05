"""Two tables whose names become one in the target: the one that streams goes on, also at the next
start; the newcomer takes no part, with its reason. Exercised as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.fixtures import FreshDatabase
from support.kafka import KafkaBroker
from support.kafka_syncs import command, kafka_spec, new_name, records
from support.lake import rows_of
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.long
def test_two_tables_of_one_topic(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    database, name = fresh_database(mariadb1011), new_name()
    mariadb1011.run("CREATE TABLE `a?b` (id INT PRIMARY KEY)", "INSERT INTO `a?b` VALUES (1)", db=database)
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=kafka_spec(kafka)) as sync:
        sync.run_to_completion()
        mariadb1011.run("CREATE TABLE `a b` (id INT PRIMARY KEY)", "INSERT INTO `a?b` VALUES (2)", db=database)
        sync.run_to_completion()
        assert [key for key, _ in records(kafka, f"{name}.{database}.a_b")] == [{"id": 1}, {"id": 2}]
        newcomer, first = sync.status()["tableStatus"]
        assert (newcomer["phase"], newcomer["reason"]) == ("Unassigned", "SpecInvalid")
        assert f"is that of {database}.a?b, too" in newcomer["message"]
        assert first["phase"] in ("Streaming", "CatchingUp")


@pytest.mark.long
def test_two_tables_of_one_name(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """`d.x` + `c` and `d` + `x.c` are one name everywhere."""
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE `x.c` (id INT PRIMARY KEY)", "INSERT INTO `x.c` VALUES (1)", db=database)
    mariadb1011.run("CREATE TABLE other (id INT PRIMARY KEY)", db=database)
    beside = f"{database}.x"
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync") as sync:
        sync.run_to_completion()
        mariadb1011.run(f"CREATE DATABASE `{beside}`")
        try:
            mariadb1011.run("CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (7)", db=beside)
            mariadb1011.run("INSERT INTO `x.c` VALUES (2)", "INSERT INTO other VALUES (3)", db=database)
            sync.run_to_completion()
            tables = {t["name"]: t["phase"] for t in sync.status()["tableStatus"]}
            assert set(tables) == {f"{database}.other", f"{beside}.c"}
            assert set(tables.values()) <= {"Streaming", "CatchingUp"}
            (folder,) = sync.lake.glob(f"{database}/x*")
            assert sorted(rows_of(DeltaTable(str(folder)))["id"].to_pylist()) == [1, 2]
            assert "have one name" in "".join(command(sync, "check").stderr.split("\n"))
        finally:
            mariadb1011.run(f"DROP DATABASE `{beside}`")
