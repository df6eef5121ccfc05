"""Another program takes a target back, or changes its rows, while the sync streams: it is known
within a minute, what is missing is replayed, and nothing is claimed that is not known (R4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdcsync_core.runs.run import ExitCode
from support.event_consumer import CheckingConsumer
from support.fixtures import FreshDatabase
from support.history import events_of
from support.servers import Server
from support.sync_process import Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
TABLES = ("rest", "busy", "deleted", "tended")
CONSISTENT = ("True", "Consistent", "")


@pytest.fixture
def database(mariadb1011: Server, fresh_database: FreshDatabase) -> str:
    name = fresh_database(mariadb1011)
    for table in TABLES:
        mariadb1011.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {table} VALUES (1, 'snapshot'), (2, 'snapshot')",
            db=name,
        )
    return name


def change(server: Server, database: str, table: str, first: int, last: int) -> None:
    for n in range(first, last + 1):
        server.run(
            f"INSERT INTO {table} VALUES ({n}, 'new')", f"UPDATE {table} SET v = 'u{n}' WHERE id = 1", db=database
        )


def expected(server: Server, database: str, table: str) -> list[tuple[int, str]]:
    return [(int(i), str(v)) for i, v in server.query(f"SELECT id, v FROM {table} ORDER BY id", db=database)]


def copied(sync: Sync, name: str, *, history: bool) -> list[tuple[int, str]]:
    """None of a history with events that do not fit together."""
    rows = sync.target(name)
    if history:
        consumer = CheckingConsumer(("id",)).take(events_of(rows))
        return [] if consumer.faults else sorted((row["id"], row["v"]) for row in consumer.rows.values())
    return sorted((row["id"], row["v"]) for row in rows.to_pylist())


def consistent(status: dict[str, Any]) -> tuple[str, str, str]:
    found = next((c for c in status.get("conditions", []) if c["type"] == "Consistent"), None)
    return (found["status"], found["reason"], found["message"]) if found else ("", "", "")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["replica", "history"])
def test_what_another_program_does_to_a_target_is_known_and_mended(
    mariadb1011: Server, database: str, tmp_path: Path, mode: str
) -> None:
    history = mode == "history"
    name = {table: f"{database}.{table}" for table in TABLES}

    def equal(sync: Sync, *tables: str) -> bool:
        return all(copied(sync, name[t], history=history) == expected(mariadb1011, database, t) for t in tables)

    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path, spec={"sink": {"delta": {"mode": mode}}}) as sync:
        sync.start("forever", Gate("target-read"))
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == len(TABLES))
        versions = {}
        for first, last in ((10, 12), (20, 22)):
            for table in TABLES:
                change(mariadb1011, database, table, first, last)
            sync.wait_until(lambda: equal(sync, *TABLES), "the changes")
            versions[last] = {table: sync.delta(name[table]).version() for table in TABLES}
        sync.delta(name["tended"]).optimize.compact()
        sync.delta(name["tended"]).create_checkpoint()
        sync.delta(name["rest"]).restore(versions[12]["rest"])
        sync.delta(name["busy"]).restore(versions[12]["busy"])
        change(mariadb1011, database, "busy", 30, 32)
        sync.wait_until(lambda: equal(sync, "busy"), "the busy table, replayed")
        sync.wait_until(lambda: equal(sync, "rest"), "the table at rest, replayed")
        sync.wait_for(lambda s: consistent(s)[:2] == CONSISTENT[:2])

        sync.delta(name["deleted"]).delete("id = 11")
        status = sync.wait_for(lambda s: consistent(s)[1] == "SinkWritten")
        value, _, message = consistent(status)
        version = sync.delta(name["deleted"]).version()
        assert value == "False"
        assert f'{name["deleted"]}: the program "delta-rs' in message
        assert f"by its version {version}" in message
        assert '(operation "DELETE")' in message
        change(mariadb1011, database, "deleted", 40, 42)
        sync.wait_until(lambda: sync.delta(name["deleted"]).version() > version, "a commit of ours")
        assert not equal(sync, "deleted")
        assert consistent(sync.status())[1] == "SinkWritten"
        _mend(sync, mariadb1011, database, history=history, before=version - 1)
        sync.wait_until(lambda: equal(sync, *TABLES), "the mended table")
        sync.wait_for(lambda s: consistent(s)[:2] == CONSISTENT[:2])


def _mend(sync: Sync, server: Server, database: str, *, history: bool, before: int) -> None:
    """A history is restored. A replica gets its row back by another program, which only a
    verification believes."""
    target = sync.delta(f"{database}.deleted")
    if history:
        target.restore(before)
        return
    assert verified(sync) == ExitCode.DIFFERENCES
    row = pa.table({"id": pa.array([11], pa.int32()), "v": ["new"]})
    write_deltalake(target, row, mode="append")
    assert verified(sync) == ExitCode.DONE


def verified(sync: Sync) -> int:
    result = sync.command("verify", "-o", "json")
    assert json.loads(result.stdout), result.stderr
    return result.returncode


@pytest.mark.long
def test_a_restore_to_before_the_binlog_is_a_lost_position(mariadb1011: Server, database: str, tmp_path: Path) -> None:
    """The table that was restored has lost its position; the others go on."""
    with Sync(mariadb1011, [rf"{database}\.(rest|busy)"], tmp_path) as sync:
        sync.run_to_completion()
        version = sync.delta(f"{database}.rest").version()
        mariadb1011.run("FLUSH BINARY LOGS", db=database)
        for table in ("rest", "busy"):
            change(mariadb1011, database, table, 10, 11)
        sync.run_to_completion()
        mariadb1011.run("FLUSH BINARY LOGS", db=database)
        sync.run_to_completion()
        newest = str(mariadb1011.query("SHOW MASTER STATUS")[0][0])
        mariadb1011.run(f"PURGE BINARY LOGS TO '{newest}'")
        sync.delta(f"{database}.rest").restore(version)
        change(mariadb1011, database, "busy", 20, 21)
        result = sync.command("run", "--until", "caught-up")
        assert result.returncode == ExitCode.USER_MUST_ACT, result.stderr
        found = {str(t["name"]): (t["phase"], t["reason"]) for t in sync.status()["tableStatus"]}
        assert found[f"{database}.rest"] == ("Failed", "PositionLost")
        assert copied(sync, f"{database}.busy", history=False) == expected(mariadb1011, database, "busy")
