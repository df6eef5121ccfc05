"""`cdcsync run` into tables of PostgreSQL, MariaDB and MySQL, as a user runs it.

It is killed in the snapshot, in a change of columns and in the stream; the target is compared with
the source by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdcsync_operator.cli.main import cli
from support.fixtures import FreshDatabase
from support.postgresql import PostgresServer
from support.servers import Server
from support.sync_process import ACCOUNT, PASSWORD, Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
ROWS = 4_000
#: the columns, as they are read of both sides
COLUMNS = "id, word, amount, at, raw, flag"


def fill(server: Server, database: str) -> None:
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 800)"
    server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, word VARCHAR(40), amount DECIMAL(12,2), at DATETIME(6), raw BLOB,"
        " flag BIT(1))",
        f"INSERT INTO orders {numbers} SELECT i, CONCAT('w', i), i / 7, '2026-01-01 00:00:00.5', UNHEX(HEX(i)), i % 2 FROM n",
        *(
            f"INSERT INTO orders SELECT id + {800 * n}, word, amount, at, raw, flag FROM orders WHERE id <= 800"
            for n in range(1, ROWS // 800)
        ),
        db=database,
    )


def change(server: Server, database: str, number: int) -> None:
    server.run(
        f"UPDATE orders SET word = 'tab\t, back\\\\, quote\\'{number}', at = NULL WHERE id % 10 = {number}",
        f"DELETE FROM orders WHERE id % 100 = {number + 50}",
        f"INSERT INTO orders (id, word, amount) SELECT {ROWS * (number + 2)} + id, word, amount FROM orders WHERE id < 50",
        db=database,
    )


def run_through_kills(
    source: Server,
    database: str,
    folder: Path,
    sink: dict[str, Any],
    schema: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    """`query` gives the rows of a statement at the target's server, whose table is in `schema`."""
    fill(source, database)
    with Sync(source, [rf"{database}\..*"], folder, spec={"sink": sink}) as sync:
        check_and_plan(sync, f"{database}.orders")
        assert query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'") == []
        sync.start(gate=Gate("sql-rows-written"))
        sync.wait_fired()
        sync.kill_all()
        sync.start(gate=Gate("sql-table-filled"))
        sync.wait_phase("Streaming")
        change(source, database, 1)
        source.run("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none'", db=database)
        change(source, database, 2)
        sync.wait_fired()
        sync.kill_all()
        sync.start(gate=Gate("sql-rows-written"))
        sync.wait_fired()
        sync.kill_all()
        sync.run_to_completion()
        verified = sync.command("verify", timeout=400)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    rows = source.query(f"SELECT {COLUMNS}, note FROM {database}.orders ORDER BY id")
    expected = [(*row[:5], None if row[5] is None else row[5] == b"\1", row[6]) for row in rows]
    copied = query(f"SELECT {COLUMNS}, note FROM {schema}.orders ORDER BY id")
    assert [(*row[:5], None if row[5] is None else bool(row[5]), row[6]) for row in copied] == expected


def check_and_plan(sync: Sync, table: str) -> None:
    shown = {c: CliRunner().invoke(cli, [c, "-f", str(sync.manifest), "-o", "json"]) for c in ("check", "plan")}
    assert [result.exit_code for result in shown.values()] == [0, 0], [result.output for result in shown.values()]
    (checked,), (planned,) = (json.loads(result.stdout)["tables"] for result in shown.values())
    assert (checked["name"], planned["name"], planned["key"]) == (table, table, ["id"])
    assert (planned["splits"][0]["start"], planned["splits"][-1]["end"]) == (None, None)


def created_section(postgres: PostgresServer, database: str) -> dict[str, Any]:
    """The section of a sink whose database and account are created for it."""
    postgres.create_database(database)
    postgres.create_account(ACCOUNT, PASSWORD)
    return {
        "host": "127.0.0.1",
        "port": postgres.port,
        "database": database,
        "credentialsSecretRef": {"name": "source"},
    }


def test_into_postgresql(
    mariadb1011: Server, postgres: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(mariadb1011)
    target = f"serving_{database}"
    section = created_section(postgres, target)

    def query(sql: str) -> list[tuple[Any, ...]]:
        with postgres.connect(target) as connection:
            return connection.execute(sql.encode()).fetchall()

    run_through_kills(mariadb1011, database, tmp_path / "sync", {"postgresql": section}, database, query)


@pytest.mark.long
@pytest.mark.parametrize(("source", "target"), [("mysql97_gtid", "mariadb1011"), ("mariadb1011", "mysql97_nogtid")])
def test_into_mysql_and_mariadb(
    source: str, target: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    origin: Server = request.getfixturevalue(source)
    server: Server = request.getfixturevalue(target)
    database, schema = fresh_database(origin), fresh_database(server)
    server.create_user(ACCOUNT, PASSWORD)
    section = {
        "host": "127.0.0.1",
        "port": server.port,
        "database": schema,
        "stateDatabase": schema,
        "credentialsSecretRef": {"name": "source"},
    }
    run_through_kills(origin, database, tmp_path / "sync", {"mysql": section}, schema, server.query)


@pytest.mark.long
def test_a_target_that_another_session_locks_holds_back_no_other(
    mariadb1011: Server, postgres: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """It is `TableBusy`, and goes on by itself once the lock is gone."""
    database = fresh_database(mariadb1011)
    target = f"serving_{database}"
    section = created_section(postgres, target)
    names = ("held", "free")
    mariadb1011.run(*(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in names), db=database)

    def copied(name: str) -> list[tuple[Any, ...]]:
        with postgres.connect(target) as connection:
            return connection.execute(f"SELECT id FROM {database}.{name} ORDER BY id".encode()).fetchall()

    def insert(number: int) -> None:
        mariadb1011.run(*(f"INSERT INTO {name} VALUES ({number})" for name in names), db=database)

    def entries(status: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
        return {t["name"].split(".")[1]: (t["phase"], t.get("reason")) for t in status["tableStatus"]}

    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", spec={"sink": {"postgresql": section}}) as sync:
        sync.start()
        sync.wait_phase("Streaming")
        insert(1)
        sync.wait_until(lambda: [copied(name) for name in names] == [[(1,)]] * 2, "the first rows")
        with postgres.connect(target) as holder, holder.transaction():
            holder.execute(f"LOCK TABLE {database}.held IN ACCESS EXCLUSIVE MODE".encode())
            for number in range(2, 5):
                insert(number)
                sync.wait_until(lambda n=number: copied("free")[-1] == (n,), "the rows of the other table")
            sync.wait_for(lambda s: entries(s)["held"] == ("Failed", "TableBusy"))
            assert sync.status()["restarts"]["consecutive"] == 0
        sync.wait_until(lambda: copied("held") == [(n,) for n in range(1, 5)], "the rows of the table that was locked")
        sync.wait_for(lambda s: {phase for phase, _ in entries(s).values()} == {"Streaming"})
