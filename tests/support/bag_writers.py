"""Writers of a table without a key, in which many rows are equal."""

from __future__ import annotations

import random
import threading
from collections import Counter
from types import TracebackType

import pymysql

from support.servers import Server

#: deadlock, lock wait timeout, changed since the snapshot
_EXPECTED = {1213, 1205, 1020}
_STATEMENTS = (
    "INSERT INTO bag VALUES ({n}, 'w{n}', {n} / 7), ({n}, 'w{n}', {n} / 7)",
    "UPDATE bag SET v = v + 1 WHERE a = {n} LIMIT 1",
    "UPDATE bag SET a = {m}, word = 'moved' WHERE a = {n} LIMIT 2",
    "DELETE FROM bag WHERE a = {n} LIMIT 1",
    "INSERT INTO bag VALUES (NULL, NULL, NULL)",
)


def create_bag(server: Server, database: str) -> None:
    rows = ", ".join(f"({n % 9}, 'w{n % 9}', {n % 9} / 7)" for n in range(2000))
    server.run("CREATE TABLE bag (a INT, word VARCHAR(20), v DOUBLE)", f"INSERT INTO bag VALUES {rows}", db=database)


def bag_of(server: Server, database: str) -> Counter[tuple[object, ...]]:
    return Counter(server.query("SELECT a, word, v FROM bag", db=database))


class BagWriters:
    """They write from `__enter__` until `__exit__`, each up to `pause` seconds after its last
    change, which a test may change meanwhile; `xa_part` of the transactions are XA."""

    def __init__(
        self, server: Server, database: str, writers: int = 3, pause: float = 0.02, xa_part: float = 0.1
    ) -> None:
        self._server, self._database, self.pause, self._xa_part = server, database, pause, xa_part
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(writers)]
        self.changes = 0
        self.failures: list[BaseException] = []

    def __enter__(self) -> BagWriters:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        assert error or not self.failures, self.failures

    def _work(self, writer: int) -> None:
        rng = random.Random(writer)
        try:
            while not self._ending.is_set():
                self._write(rng, writer)
        except BaseException as e:  # noqa: BLE001 (reported by the test's thread)
            self.failures.append(e)

    def _write(self, rng: random.Random, writer: int) -> None:
        """Until a transaction is refused, which the end of the connection rolls back."""
        with self._server.connect(db=self._database) as connection, connection.cursor() as cursor:
            while not self._ending.wait(self.pause * rng.random()):
                try:
                    for statement in self._transaction(rng, f"'bag-{writer}-{rng.getrandbits(40)}'"):
                        cursor.execute(statement)
                except pymysql.MySQLError as e:
                    if e.args[0] in _EXPECTED:
                        return
                    raise
                self.changes += 1

    def _transaction(self, rng: random.Random, xid: str) -> list[str]:
        change = rng.choice(_STATEMENTS).format(n=rng.randrange(9), m=rng.randrange(9))
        if rng.random() < self._xa_part:
            return [f"XA START {xid}", change, f"XA END {xid}", f"XA PREPARE {xid}", f"XA COMMIT {xid}"]
        return ["BEGIN", change, "COMMIT"]
