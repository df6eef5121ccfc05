"""`cdcsync run` into tables of PostgreSQL and MariaDB, as a user runs it.

It is killed in the snapshot, in a change of columns and in the stream; the target is compared with
the source by itself.
"""

from __future__ import annotations

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
    source: Server, database: str, folder: Path, sink: dict[str, Any], read: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    fill(source, database)
    with Sync(source, [rf"{database}\..*"], folder, spec={"sink": sink}) as sync:
        checked = CliRunner().invoke(cli, ["check", "-f", str(sync.manifest), "-o", "json"])
        assert checked.exit_code == 0, checked.output
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
    assert [
        (*row[:5], None if row[5] is None else bool(row[5]), row[6]) for row in read(f"{COLUMNS}, note")
    ] == expected


def test_into_postgresql(
    mariadb1011: Server, postgres: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(mariadb1011)
    target = f"serving_{database}"
    postgres.create_database(target)
    postgres.create_account(ACCOUNT, PASSWORD)
    section = {
        "host": "127.0.0.1",
        "port": postgres.port,
        "database": target,
        "credentialsSecretRef": {"name": "source"},
    }

    def read(columns: str) -> list[tuple[Any, ...]]:
        with postgres.connect(target) as connection:
            return connection.execute(f'SELECT {columns} FROM "{database}".orders ORDER BY id'.encode()).fetchall()

    run_through_kills(mariadb1011, database, tmp_path / "sync", {"postgresql": section}, read)


@pytest.mark.long
def test_into_mariadb(mysql97_gtid: Server, mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    database, target = fresh_database(mysql97_gtid), fresh_database(mariadb1011)
    mariadb1011.create_user(ACCOUNT, PASSWORD)
    section = {
        "host": "127.0.0.1",
        "port": mariadb1011.port,
        "database": target,
        "stateDatabase": target,
        "credentialsSecretRef": {"name": "source"},
    }

    def read(columns: str) -> list[tuple[Any, ...]]:
        return mariadb1011.query(f"SELECT {columns} FROM {target}.orders ORDER BY id")

    run_through_kills(mysql97_gtid, database, tmp_path / "sync", {"mysql": section}, read)
