"""Keys that the manifest declares: a replica of a table without a key, whose rows stay apart as
long as the source's do; two rows of one key stop it, when it is read and when it is followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
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
    if not sync.has_version(table):
        return []
    return sorted(tuple(row.values()) for row in sync.target(table).to_pylist())


def _status(sync: Sync, table: str) -> dict[str, Any]:
    return next((t for t in sync.status().get("tableStatus", []) if t["name"] == table), {})


def _overrides(*tables: str, key: Sequence[str] = KEY) -> list[dict[str, Any]]:
    return [{"table": table, "key": [*key]} for table in tables]


@contextmanager
def _writing(server: Server, database: str) -> Iterator[None]:
    """Rows that come, change their key and go, each with a key of its own."""
    ending = threading.Event()

    def write() -> None:
        with server.connect(db=database) as connection, connection.cursor() as cursor:
            for n in count():
                cursor.execute(f"INSERT INTO log VALUES ('c', {n}, {n} / 7)")
                cursor.execute(f"UPDATE log SET word = 'moved', v = v + 1 WHERE word = 'c' AND n = {n - n % 3}")
                cursor.execute(f"DELETE FROM log WHERE n = {n - n % 5} AND word = 'c'")
                if ending.wait(0.01):
                    return

    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(write)
        try:
            yield
        finally:
            ending.set()
        written.result()


@pytest.mark.spark
@pytest.mark.timeout(1800)
@usually_on()
def test_a_replica_by_a_declared_key(any_server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """Rows that are written while the table is read are no second rows, and a second row is met
    where it is read and where it is written. Tables beside flow on."""
    database = fresh_database(any_server)
    log, twice, keyed = (f"{database}.{name}" for name in ("log", "twice", "keyed"))
    _fill(any_server, database, "log")
    _fill(any_server, database, "twice", "INSERT INTO twice VALUES ('w5', 5, 0)")
    _fill(any_server, database, "keyed", "ALTER TABLE keyed ADD PRIMARY KEY (n)")
    tables = {"overrides": _overrides(log, twice)}
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec={"tables": tables}) as sync:
        with _writing(any_server, database):
            sync.start("forever")
            sync.wait_until(lambda: _rows(sync, log), "the rows as they were read")
        sync.wait_until(lambda: _rows(sync, log) == _source(any_server, log), "all that was written meanwhile")
        sync.wait_until(lambda: _status(sync, twice).get("reason") == "KeyNotUnique", "two rows of one key")
        assert "word='w5', n=5" in _status(sync, twice)["message"]
        assert _rows(sync, twice) == []

        any_server.run(
            "INSERT INTO log VALUES ('W1', 1, 0), ('w1 ', 1, 0), ('wé1', 1, 0), ('new', 1, 1)",
            "UPDATE log SET v = v + 1 WHERE n % 3 = 0",
            "UPDATE log SET n = n + 10000 WHERE n > 1000",
            "UPDATE log SET word = UPPER(word) WHERE n = 10",
            "DELETE FROM log WHERE n BETWEEN 20 AND 40",
            "INSERT INTO log VALUES (CONCAT('w', 30 % 9), 30, 7)",
            db=database,
        )
        sync.wait_until(lambda: _rows(sync, log) == _source(any_server, log), "the changes")

        before = _rows(sync, log)
        any_server.run("INSERT INTO log VALUES ('new', 1, 2)", "DELETE FROM keyed WHERE n > 9", db=database)
        sync.wait_until(lambda: _status(sync, log).get("reason") == "KeyNotUnique", "a second row of a key")
        sync.wait_until(lambda: _rows(sync, keyed) == _source(any_server, keyed), "the changes beside it")
        assert "word='new', n=1" in _status(sync, log)["message"]
        assert _rows(sync, log) == before


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
@usually_on("mysql97_gtid", "mariadb1011")
def test_another_key_counts_from_the_next_resnapshot_on(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(any_server)
    log, words = f"{database}.log", f"{database}.words"
    _fill(any_server, database, "log")
    _fill(any_server, database, "words")
    tables = {"overrides": [*_overrides(log), *_overrides(words, key=["word"])]}
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec={"tables": tables}) as sync:
        sync.start("forever")
        sync.wait_until(lambda: _status(sync, words).get("reason") == "KeyNotUnique", "rows of one word")
        sync.wait_until(lambda: _rows(sync, log) == _source(any_server, log), "the rows as they were read")
        assert "declared" in sync.command("verify", "-o", "json").stdout

        overrides = [*_overrides(log, key=["word"]), *_overrides(words)]
        sync.write_manifest(tables={"overrides": overrides}, resnapshot=[{"table": words, "nonce": 1}])
        sync.wait_until(lambda: _rows(sync, words) == _source(any_server, words), "rows that differ in the other key")
        more = "INSERT INTO {} VALUES ('w1', 5001, 0)"
        any_server.run(more.format("log"), more.format("words"), db=database)
        for table in (log, words):
            sync.wait_until(lambda table=table: _rows(sync, table) == _source(any_server, table), f"{table} goes on")


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
    database_server = {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}}
    found = {
        name: _refusals(mariadb1011, database, sink, names)
        for name, sink in {
            "delta": {"delta": delta},
            "mysql": {"mysql": database_server},
            "postgresql": {"postgresql": database_server | {"database": "serving"}},
            "copied": {"delta": delta | {"options": {"deletionVectors": False}}},
            "history": {"delta": delta | {"mode": "history"}},
            "kafka": {"kafka": kafka},
        }.items()
    }
    found["start"] = _refusals(mariadb1011, database, {"delta": delta}, names, start={"from": "latest"})
    for taking in ("delta", "mysql", "postgresql"):
        assert found.pop(taking) == ["beside a key", "", "may be NULL"]
    assert [texts[1] for texts in found.values()] == ["does not guard"] * len(found)


def _refusals(server: Server, database: str, sink: dict[str, Any], names: list[str], **spec: Any) -> list[str]:
    """The words of each table's refusal; empty where it is taken."""
    reference = {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}}
    tables = {"include": [rf"{database}\..*"], "overrides": _overrides(*names)}
    manifest = Spec.model_validate({"source": reference, "tables": tables, "sink": sink, **spec})
    checked = preflight(source_of(server), manifest)
    errors = {str(table.id): table.error for table in checked.tables}
    taken = [table for table in checked.tables if table.error is None]
    assert all("declared" in table.warnings[0] and table.splits == 1 for table in taken)
    refused = [errors[name] for name in names]
    assert all(error is None or error.reason is Reason.SPEC_INVALID for error in refused)
    words = ("beside a key", "may be NULL", "does not guard")
    return ["" if error is None else next(w for w in words if w in error.found) for error in refused]
