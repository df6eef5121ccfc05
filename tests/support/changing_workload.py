"""Writers on tables whose schema changes under them, and the session that changes it.

What a writer or a DDL does wrong is the server's to refuse: a column that is gone, a value that is
too long, a duplicate key. Such errors are counted, every other one fails the test. A writer reads
the definition again after an error and now and then, so most of what it writes is accepted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any

import pymysql

from support.changing_tables import CHANGING, ChangingTable, TableNow, literal, read_now
from support.drawn_ddl import Change, draw_change
from support.servers import Connection, Server

#: what a connection cannot go on from, or what no change of a table explains
_FATAL = {2006, 2013, 1064, 1290, 1142, 1044, 1045}
_XA_PART, _XA_PAUSES = 0.1, (0.0, 0.1, 1.0)
#: the part of the changes that may hit a table whose copy is not up to date
_UNREADY_PART = 0.15


@dataclass(frozen=True)
class ChangingPace:
    """`rows` of each table are loaded before; then `writers` do `per_second` transactions
    altogether, and a change of a schema comes every `ddl_seconds`."""

    rows: int = 1500
    writers: int = 16
    per_second: int = 120
    ddl_seconds: float = 1.5


class ChangingWorkload:
    """Tables in `database` of `server`; `with workload:` writes and changes. `seed` decides what is
    tried. `harsh`: also what cannot be followed, at most `harsh_changes` times a table.

    `flows` says of a table whether its copy is up to date. One that is being resnapshotted is
    seldom changed: on a slow machine each of its snapshots would meet another definition.
    """

    def __init__(
        self,
        server: Server,
        database: str,
        seed: int,
        pace: ChangingPace | None = None,
        harsh_changes: int = 2,
        flows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.server, self.database = server, database
        self.pace = pace or ChangingPace()
        self.tables = CHANGING
        self._random = Random(f"{seed}/ddl")
        self._stop, self._needed, self._begun = threading.Event(), threading.Event(), threading.Event()
        self._flows, self._resting = flows, False
        self._harsh = Counter({t.name: harsh_changes for t in self.tables if t.harsh})
        self._writers = [_ChangingWriter(self, i, Random(f"{seed}/changing/{i}")) for i in range(self.pace.writers)]
        self._thread = threading.Thread(target=self._change_all, name="ddl", daemon=True)
        self._failure: BaseException | None = None
        #: by class of DDL, and the errors
        self.changes: Counter[str] = Counter()
        #: each statement that was accepted, of what table, and when
        self.accepted: list[str] = []

    def prepare(self) -> None:
        self.server.run(*(t.ddl for t in self.tables), db=self.database)
        with self.connect() as connection, connection.cursor() as cursor:
            for table in self.tables:
                now, random = read_now(cursor, table), Random(table.name)
                assert now is not None
                for _ in range(0, self.pace.rows, 100):
                    cursor.execute(_insert(random, now, [random.randrange(2 * self.pace.rows) for _ in range(100)]))

    def connect(self) -> Connection:
        return self.server.connect(
            db=self.database, init_command="SET time_zone = '+00:00', lock_wait_timeout = 20", read_timeout=120
        )

    def __enter__(self) -> ChangingWorkload:
        for thread in (*(w.thread for w in self._writers), self._thread):
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        if error is None:
            self.raise_failure()

    def stop(self) -> None:
        self._stop.set()
        self._begun.set()
        for thread in (self._thread, *(w.thread for w in self._writers)):
            thread.join()

    def raise_failure(self) -> None:
        for failure in (self._failure, *(w.failure for w in self._writers)):
            if failure is not None:
                raise failure

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def wait_accepted(self, statements: int) -> None:
        """Until so many statements were accepted."""
        while len(self.accepted) < statements and not self.stopping and self._failure is None:
            self._stop.wait(0.1)

    def counts(self) -> Counter[str]:
        return sum((w.counts for w in self._writers), Counter()) + self.changes

    # -- the changes

    @property
    def _copies_online(self) -> bool:
        """MariaDB from 11.2 on copies a table while it is written, and keeps then what a
        transaction has changed and rolled back (seen on 11.4.5): its tables differ from its own
        binlog, which no copy can know."""
        version = tuple(int(n) for n in self.server.version.split("-")[0].split(".")[:2])
        return self.server.flavor == "mariadb" and version >= (11, 2)

    def begin_changes(self) -> None:
        """Until then the schemas stay."""
        self._resting = False
        self._begun.set()

    def need_harsh(self, *, then_rest: bool = False) -> None:
        """From now on until there was one, only what cannot be followed is drawn. `then_rest`: the
        schemas stay after it, until changes begin again."""
        self._resting = then_rest
        self._needed.set()

    def _change_all(self) -> None:
        try:
            while not self.stopping:
                self._begun.wait()
                table = self._random.choice([t for t in self.tables if t.harsh or not self._needed.is_set()])
                if self._needed.is_set() or self._random.random() < _UNREADY_PART or self._flows(table.name):
                    self.change(table)
                self.wait(self._random.uniform(0.2, 1.8) * self.pace.ddl_seconds)
        except BaseException as e:  # noqa: BLE001 (the test's thread raises it again)
            self._failure = e

    def change(self, table: ChangingTable) -> None:
        """One change, in a session of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 6, innodb_lock_wait_timeout = 6")
            if self._copies_online:
                cursor.execute("SET old_mode = CONCAT(@@old_mode, ',LOCK_ALTER_TABLE_COPY')")
            now = read_now(cursor, table)
            if now is None:
                return
            part = 1.0 if self._needed.is_set() else 0.25 if self._harsh[table.name] > 0 else 0.0
            change = draw_change(self._random, now, self.server.flavor, harsh=part)
            done = self._run(cursor, change, table)
            if change.harsh and done:
                self._harsh[table.name] -= 1
                self._needed.clear()
                if self._resting:
                    self._begun.clear()
                if self.stopping:
                    self._begun.set()

    def _run(self, cursor: Any, change: Change, table: ChangingTable) -> bool:
        """Whether all was accepted; a statement that is refused ends the change."""
        for statement in change.statements:
            try:
                cursor.execute(statement)
                cursor.fetchall()
            except pymysql.MySQLError as e:
                if e.args[0] in _FATAL:
                    raise AssertionError(f"{statement}: {e}") from e
                self.changes[f"{change.kind}: error {e.args[0]}"] += 1
                return False
            if not statement.startswith("SET "):
                self.accepted.append(f"{time.time():.1f} {table.name}: {statement}")
        self.changes[change.kind] += 1
        return True


def _insert(random: Random, now: TableNow, numbers: list[int], verb: str = "INSERT IGNORE") -> str:
    """Columns that are left out take their defaults."""
    columns = [c for c in now.written if random.random() < 0.97]
    names = ", ".join(f"`{c}`" for c in (*now.key_names(), *(c.name for c in columns)))
    rows = ", ".join(
        f"({', '.join((*now.table.keys.literals(n), *(literal(random, c) for c in columns)))})" for n in numbers
    )
    return f"{verb} INTO {now.table.name} ({names}) VALUES {rows}"


@dataclass
class _ChangingWriter:
    """One application thread on its own connection."""

    workload: ChangingWorkload
    number: int
    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"writer-{self.number}", daemon=True)
        self._known: dict[str, TableNow | None] = {}
        self._branches = 0

    def _run(self) -> None:
        pause = self.workload.pace.writers / self.workload.pace.per_second
        try:
            with self.workload.connect() as connection, connection.cursor() as cursor:
                if self.number % 3 == 0:
                    cursor.execute("SET sql_mode = ''")
                due = time.monotonic()
                while not self.workload.stopping:
                    self._act(connection, cursor)
                    due = max(due + pause, time.monotonic() - 1.0)
                    self.workload.wait(max(0.0, due - time.monotonic()))
        except BaseException as e:  # noqa: BLE001 (the test's thread raises it again)
            self.failure = e

    def _act(self, connection: Connection, cursor: Any) -> None:
        if self.random.random() < 0.05:
            self._known.clear()
        count = self.random.choice((1, 1, 1, 2, 4))
        statements = [
            s for _ in range(count) if (s := self._statement(cursor, self.random.choice(self.workload.tables)))
        ]
        try:
            if self.random.random() < _XA_PART:
                self._xa(cursor, statements)
            else:
                self._transaction(cursor, statements)
        except pymysql.MySQLError as e:
            if e.args[0] in _FATAL:
                raise
            self.counts[f"error {e.args[0]}"] += 1
            self._known.clear()
            connection.rollback()

    def _transaction(self, cursor: Any, statements: list[str]) -> None:
        alone = len(statements) == 1
        if not alone:
            cursor.execute("BEGIN")
        for statement in statements:
            cursor.execute(statement)
        if not alone:
            cursor.execute("COMMIT" if self.random.random() < 0.9 else "ROLLBACK")
        self.counts["transactions"] += 1

    def _xa(self, cursor: Any, statements: list[str]) -> None:
        """Prepared in a connection of its own, and ended a while later: a DDL may wait in between.

        On MySQL the connection is closed before. MariaDB lets go of a closed connection's metadata
        locks: an ALTER that copies the table then loses rows of the transaction although it is
        committed (seen on 11.4), which no copy can know.
        """
        self._branches += 1
        xid = f"'{self.workload.database}-c{self.number}','{self._branches}'"
        end = f"XA {self.random.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} {xid}"
        with self.workload.connect() as own, own.cursor() as branch:
            for statement in (f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
                branch.execute(statement)
            if self.workload.server.flavor == "mariadb":
                self.workload.wait(self.random.choice(_XA_PAUSES))
                branch.execute(end)
        if self.workload.server.flavor == "mysql":
            self.workload.wait(self.random.choice(_XA_PAUSES))
            cursor.execute(end)
        self.counts["xa transactions"] += 1

    def _statement(self, cursor: Any, table: ChangingTable) -> str | None:
        if table.name not in self._known:
            self._known[table.name] = read_now(cursor, table)
        now, random = self._known[table.name], self.random
        if now is None:
            del self._known[table.name]
            return None
        number = random.randrange(2 * self.workload.pace.rows)
        choice = random.random()
        if choice < 0.2:
            return _insert(random, now, [number], "INSERT")
        if choice < 0.4:
            return _insert(random, now, [number], "REPLACE")
        if choice < 0.45:
            return _insert(random, now, [random.randrange(2 * self.workload.pace.rows) for _ in range(10)])
        if choice < 0.55 or not now.written:
            return f"DELETE FROM {table.name} WHERE {now.where(number)}"
        if choice < 0.62:
            names, literals = now.key_names(), table.keys.literals(random.randrange(2 * self.workload.pace.rows))
            sets = ", ".join(f"`{n}` = {v}" for n, v in zip(names, literals, strict=True))
            return f"UPDATE {table.name} SET {sets} WHERE {now.where(number)}"
        chosen = random.sample(now.written, random.randrange(1, min(4, len(now.written)) + 1))
        sets = ", ".join(f"`{c.name}` = {literal(random, c)}" for c in chosen)
        return f"UPDATE {table.name} SET {sets} WHERE {now.where(number)}"
