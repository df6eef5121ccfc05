"""Keys that the manifest declares: a replica of a table without a key, whose rows stay apart as
long as the source's do; two rows of one key stop it, when it is read and when it is followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.resource.spec import Spec
from cdcsync_mysql.readiness.preflight import preflight
from support.fixtures import FreshDatabase, usually_on
from support.servers import Server
from support.source import source_of
from support.sync_process import Sync

COLUMNS = "(word VARCHAR(20) NOT NULL, n INT NOT NULL, v DOUBLE)"
KEY = ["word", "n"]
Row = tuple[object, ...]


def _fill(server: Server, database: str, table: str, *more: str) -> None:
    rows = ", ".join(f"('w{n % 9}', {n}, {n} / 7)" for n in range(2000))
    server.run(f"CREATE TABLE {table} {COLUMNS}", f"INSERT INTO {table} VALUES {rows}", *more, db=database)


def _source(server: Server, table: str) -> list[Row]:
    return sorted(server.query(f"SELECT word, n, v FROM {table}"))


def _rows(sync: Sync, table: str) -> list[Row]:
    """Nothing while there is no table."""
    there = (sync.path(table) / "_delta_log").exists()
    return sorted(tuple(row.values()) for row in sync.target(table).to_pylist()) if there else []


def _status(sync: Sync, table: str) -> dict[str, Any]:
    return next((t for t in sync.status().get("tableStatus", []) if t["name"] == table), {})


def _overrides(*tables: str) -> dict[str, Any]:
    return {"overrides": [{"table": table, "key": KEY} for table in tables]}


@pytest.mark.spark
@pytest.mark.timeout(1800)
@usually_on("mysql97_gtid", "mariadb1011")
def test_a_replica_by_a_declared_key(any_server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    database = fresh_database(any_server)
    log, twice = f"{database}.log", f"{database}.twice"
    _fill(any_server, database, "log")
    _fill(any_server, database, "twice", "INSERT INTO twice VALUES ('w5', 5, 0)")
    tables = {"include": [rf"{database}\..*"], **_overrides(log, twice)}
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec={"tables": tables}) as sync:
        sync.start("forever")
        sync.wait_until(lambda: _rows(sync, log) == _source(any_server, log), "the rows as they were read")
        sync.wait_until(lambda: _status(sync, twice).get("reason") == "KeyNotUnique", "two rows of one key")
        assert "word='w5', n=5" in _status(sync, twice)["message"]
        assert _rows(sync, twice) == []

        any_server.run(
            "INSERT INTO log VALUES ('W1', 1, 0), ('new', 1, 1)",
            "UPDATE log SET v = v + 1 WHERE n % 3 = 0",
            "UPDATE log SET n = n + 10000 WHERE n > 1000",
            "DELETE FROM log WHERE n BETWEEN 20 AND 40",
            "INSERT INTO log VALUES (CONCAT('w', 30 % 9), 30, 7)",
            db=database,
        )
        sync.wait_until(lambda: _rows(sync, log) == _source(any_server, log), "the changes")
        assert "declared" in sync.command("verify", "-o", "json").stdout

        before = _rows(sync, log)
        any_server.run("INSERT INTO log VALUES ('new', 1, 2)", db=database)
        sync.wait_until(lambda: _status(sync, log).get("reason") == "KeyNotUnique", "a second row of a key")
        assert "word='new', n=1" in _status(sync, log)["message"]
        assert _rows(sync, log) == before

        any_server.run("DELETE FROM log WHERE word = 'new' AND v = 2", db=database)
        sync.write_manifest(resnapshot=[{"table": log, "nonce": 1}])
        sync.wait_until(lambda: _status(sync, log).get("reason", "") != "KeyNotUnique", "it was resnapshotted")
        any_server.run("INSERT INTO log VALUES ('last', 1, 2)", db=database)
        sync.wait_until(lambda: _rows(sync, log) == _source(any_server, log), "rows of then and of later")
        sync.terminate()


def test_where_a_declared_key_is_refused(mariadb1011: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(mariadb1011)
    mariadb1011.run(
        f"CREATE TABLE log {COLUMNS}",
        "CREATE TABLE keyed (word VARCHAR(20) NOT NULL, n INT PRIMARY KEY)",
        "CREATE TABLE nullable (word VARCHAR(20), n INT NOT NULL)",
        db=database,
    )
    names = [f"{database}.{name}" for name in ("keyed", "log", "nullable")]
    delta, kafka = {"path": "/lake"}, {"bootstrapServers": "b:9092", "staging": {"path": "/lake"}}
    found = {
        name: _refusals(mariadb1011, database, sink, names)
        for name, sink in {
            "delta": {"delta": delta},
            "copied": {"delta": delta | {"options": {"deletionVectors": False}}},
            "history": {"delta": delta | {"mode": "history"}},
            "kafka": {"kafka": kafka},
        }.items()
    }
    found["start"] = _refusals(mariadb1011, database, {"delta": delta}, names, start={"from": "latest"})
    assert found.pop("delta") == ["beside a key", "", "may be NULL"]
    assert [texts[1] for texts in found.values()] == ["does not guard"] * len(found)


def _refusals(server: Server, database: str, sink: dict[str, Any], names: list[str], **spec: Any) -> list[str]:
    """The words of each table's refusal; empty where it is taken."""
    reference = {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}}
    tables = {"include": [rf"{database}\..*"], **_overrides(*names)}
    manifest = Spec.model_validate({"source": reference, "tables": tables, "sink": sink, **spec})
    checked = preflight(source_of(server), manifest)
    errors = {str(table.id): table.error for table in checked.tables}
    taken = [table for table in checked.tables if table.error is None]
    assert all("declared" in table.warnings[0] and table.splits == 1 for table in taken)
    refused = [errors[name] for name in names]
    assert all(error is None or error.reason is Reason.SPEC_INVALID for error in refused)
    words = ("beside a key", "may be NULL", "does not guard")
    return ["" if error is None else next(w for w in words if w in error.found) for error in refused]
