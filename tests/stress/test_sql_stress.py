"""Tables of a SQL database under fire: the transactions of sixteen writers move amounts between
three tables, one of whose columns change, while the sync, the target's server and its connections
in COMMIT end again and again. A reader of all three, in READ COMMITTED, never sees another sum, and
at the end the tables equal the source's, by `cdcsync verify` and by themselves."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from support.commit_cuts import CommitCuts, cuts_to
from support.fixtures import FreshServer
from support.postgresql import postgres_server
from support.servers import Server
from support.sync_process import ACCOUNT, PASSWORD, Gate, Sync
from support.target_server import MySqlReader, PostgresReader, TargetReader
from support.threads import repeated

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]
TABLES, ACCOUNTS, AMOUNT, WRITERS = ("checking", "saving", "gone"), 64, 100, 16
#: the server of the source, for each kind of target, and that of the target
SERVERS = {
    "postgresql": ("mariadb1011", ""),
    "mariadb": ("mysql97_gtid", "mariadb1011"),
    "mysql": ("mariadb1011", "mysql97_nogtid"),
}
#: where a process of ours kills itself, the last one while a new table takes the place of one whose
#: columns change
GATES = {
    "postgresql": ("sql-rows-written", "sql-committed", "sql-table-filled"),
    "mariadb": ("sql-rows-written", "sql-committed", "sql-pending"),
    "mysql": ("sql-rows-written", "sql-committed", "sql-swapped"),
}
#: a deadlock, and a lock that was waited for too long
_TRY_AGAIN = (1205, 1213)


@dataclass(frozen=True)
class ServedTarget:
    """The server of `kind`, as a reader meets it, and the way of a sync to it."""

    kind: str
    reader: TargetReader
    relay: CommitCuts

    @property
    def sink(self) -> dict[str, Any]:
        login = {"host": "127.0.0.1", "port": self.relay.port, "credentialsSecretRef": {"name": "source"}}
        if self.kind == "postgresql":
            return {"postgresql": {**login, "database": "serving", "schema": "serving"}}
        return {"mysql": {**login, "database": "serving"}}


@contextmanager
def target_of(kind: str, fresh_server: FreshServer) -> Iterator[ServedTarget]:
    if kind != "postgresql":
        server = fresh_server(SERVERS[kind][1])
        server.create_user(ACCOUNT, PASSWORD)
        with cuts_to(server.host, server.port) as relay:
            yield ServedTarget(kind, MySqlReader(server), relay)
        return
    with postgres_server() as postgres, cuts_to("127.0.0.1", postgres.port) as relay:
        postgres.create_database("serving")
        postgres.create_account(ACCOUNT, PASSWORD)
        yield ServedTarget(kind, PostgresReader(postgres, "serving"), relay)


@dataclass
class MovedAccounts:
    """Three tables of the source, and who writes them."""

    server: Server
    database: str
    ending: threading.Event = field(default_factory=threading.Event)
    wide: bool = False

    def prepare(self) -> None:
        rows = ", ".join(f"({n}, {AMOUNT})" for n in range(ACCOUNTS))
        for name in TABLES:
            create = f"CREATE TABLE {name} (id INT PRIMARY KEY, amount INT NOT NULL)"
            self.server.run(create, f"INSERT INTO {name} VALUES {rows}", db=self.database)

    @contextmanager
    def written(self) -> Iterator[None]:
        """All writers write; what one of them raises is raised at the end."""
        with ThreadPoolExecutor(WRITERS) as threads:
            running = [threads.submit(self._write, random.Random(number)) for number in range(WRITERS)]
            try:
                yield
            finally:
                self.ending.set()
            for one in running:
                one.result()

    def _write(self, rng: random.Random) -> None:
        with self.server.connect(db=self.database, autocommit=False) as connection, connection.cursor() as cursor:
            while not self.ending.wait(0.1):
                try:
                    self._move(cursor, rng)
                    connection.commit()
                except pymysql.MySQLError as error:
                    if error.args[0] not in _TRY_AGAIN:
                        raise
                    connection.rollback()

    def _move(self, cursor: Any, rng: random.Random) -> None:
        """An amount of an account of one table to one of another; every second account, with all
        that it has, so its row goes."""
        giver, taker = rng.sample(TABLES, 2)
        account, other, amount = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), 1
        if account % 2:
            if not cursor.execute(f"SELECT amount FROM {giver} WHERE id = {account} FOR UPDATE"):
                return
            (amount,) = cursor.fetchone()
            cursor.execute(f"DELETE FROM {giver} WHERE id = {account}")
        else:
            cursor.execute(f"UPDATE {giver} SET amount = amount - 1 WHERE id = {account}")
        add = f"VALUES ({other}, {amount}) ON DUPLICATE KEY UPDATE amount = amount + {amount}"
        cursor.execute(f"INSERT INTO {taker} (id, amount) {add}")

    def change_columns(self) -> None:
        """The last table gets a column, or loses it."""
        self.server.run(
            f"ALTER TABLE gone {'DROP COLUMN fee' if self.wide else 'ADD COLUMN fee INT'}", db=self.database
        )
        self.wide = not self.wide

    def columns(self, name: str) -> str:
        return "id, amount, fee" if self.wide and name == "gone" else "id, amount"


@pytest.mark.parametrize("kind", SERVERS)
def test_a_reader_sees_whole_transactions_while_all_is_killed(
    kind: str, request: pytest.FixtureRequest, fresh_server: FreshServer, tmp_path: Path
) -> None:
    source: Server = request.getfixturevalue(SERVERS[kind][0])
    accounts, seen = MovedAccounts(source, source.create_database()), set[tuple[int, ...]]()
    accounts.prepare()
    with target_of(kind, fresh_server) as target:
        sums = ", ".join(f"(SELECT SUM(amount) FROM serving.{name})" for name in TABLES)

        def read() -> bool:
            rows = target.reader.read(f"SELECT {sums}")
            seen.update(tuple(map(int, row)) for row in rows or ())
            return rows is not None

        evolve = {"behavior": "evolve", "droppedColumns": "drop"}
        spec = {"sink": target.sink, "schemaChange": evolve}
        with Sync(source, [rf"{accounts.database}\..*"], tmp_path / "sync", spec=spec) as sync:
            sync.run_to_completion()
            with accounts.written(), repeated(read):
                for gate in GATES[kind]:
                    sync.start(gate=Gate(gate))
                    end_all(sync, target, accounts, lambda: len(seen))
                    sync.wait_fired()
                    sync.kill_all()
            sync.run_to_completion()
            verified = sync.command("verify", timeout=400)
            assert verified.returncode == 0, verified.stdout + verified.stderr
        for name in TABLES:
            columns = accounts.columns(name)
            rows = source.query(f"SELECT {columns} FROM {accounts.database}.{name} ORDER BY id")
            assert target.reader.read(f"SELECT {columns} FROM serving.{name} ORDER BY id") == rows
        assert target.relay.cuts == 2 * len(GATES[kind])
    source.drop_database(accounts.database)
    assert {sum(amounts) for amounts in seen} == {len(TABLES) * ACCOUNTS * AMOUNT}


def end_all(sync: Sync, target: ServedTarget, accounts: MovedAccounts, states_seen: Callable[[], int]) -> None:
    """While a run writes, of which the gate ends a process: a connection in COMMIT, before the
    server has it and after, the server, and the driver. After each the reader sees what it has not
    seen before."""

    def await_news() -> None:
        before = states_seen()
        sync.wait_until(lambda: states_seen() > before + 2, "the target goes on")

    await_news()
    for landed in (False, True):
        before = target.relay.cuts
        target.relay.cut(landed=landed)
        sync.wait_until(lambda before=before: target.relay.cuts > before, "a COMMIT breaks")
        await_news()
    accounts.change_columns()
    target.reader.crash()
    await_news()
    sync.kill("driver")
    await_news()
