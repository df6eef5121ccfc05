"""Two tables of PostgreSQL under fire: transactions move amounts between them while the sync, the
target's server and its connections are killed. A reader of both never sees another sum."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.fixtures import FreshDatabase
from support.postgresql import PostgresServer, postgres_server
from support.servers import Server
from support.sync_process import ACCOUNT, PASSWORD, Gate, Sync

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]
ACCOUNTS, AMOUNT, ROUNDS = 50, 100, 4


@contextmanager
def until_the_end(work: Any) -> Iterator[list[int]]:
    """Calls `work` again and again in a thread; how often it did something, as a list's length."""
    ending, done = threading.Event(), list[int]()

    def run() -> None:
        while not ending.is_set():
            if work(len(done)):
                done.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        ending.set()
        thread.join()


def move(source: Server, database: str, number: int) -> bool:
    """One transaction of both tables."""
    taken, given = number % ACCOUNTS, number * 7 % ACCOUNTS
    source.run(
        "START TRANSACTION",
        f"UPDATE checking SET amount = amount - 1 WHERE id = {taken}",
        f"UPDATE saving SET amount = amount + 1 WHERE id = {given}",
        "COMMIT",
        db=database,
    )
    return True


def sum_of(postgres: PostgresServer, target: str, database: str) -> int | None:
    """The sum over both tables, in one statement; None where the server does not answer."""
    parts = [f'(SELECT SUM(amount) FROM "{database}".{name})' for name in ("checking", "saving")]
    try:
        with postgres.connect(target) as connection:
            ((total,),) = connection.execute(f"SELECT {' + '.join(parts)}".encode()).fetchall()
    except psycopg.Error:
        return None
    return int(total)


def test_a_reader_sees_whole_transactions_while_all_is_killed(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(mariadb1011)
    for name in ("checking", "saving"):
        mariadb1011.run(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, amount INT NOT NULL)",
            f"INSERT INTO {name} SELECT seq, {AMOUNT} FROM seq_0_to_{ACCOUNTS - 1}",
            db=database,
        )
    with postgres_server() as postgres:
        postgres.create_database("serving")
        postgres.create_account(ACCOUNT, PASSWORD)
        section = {"host": "127.0.0.1", "port": postgres.port, "database": "serving"}
        sink = {"postgresql": section | {"credentialsSecretRef": {"name": "source"}}}
        totals = set[int]()

        def read(_: int) -> bool:
            total = sum_of(postgres, "serving", database)
            totals.update([] if total is None else [total])
            return total is not None

        with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", spec={"sink": sink}) as sync:
            sync.run_to_completion()
            with until_the_end(lambda n: move(mariadb1011, database, n)), until_the_end(read) as reads:
                for number in range(ROUNDS):
                    sync.start(gate=Gate("sql-rows-written", 3 + number))
                    sync.wait_fired()
                    if number % 2:
                        postgres.kill()
                        postgres.start()
                    else:
                        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'serving'")
                    sync.kill_all()
                before = len(reads)
                sync.start()
                sync.wait_until(lambda: len(reads) > before + 20, "the reader reads on")
                sync.kill_all()
            sync.run_to_completion()
        for name in ("checking", "saving"):
            with postgres.connect("serving") as connection:
                rows = connection.execute(f'SELECT id, amount FROM "{database}".{name} ORDER BY id'.encode()).fetchall()
            assert rows == mariadb1011.query(f"SELECT id, amount FROM {database}.{name} ORDER BY id")
        assert totals == {2 * ACCOUNTS * AMOUNT}
