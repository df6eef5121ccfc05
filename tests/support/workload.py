"""Sixteen writers that do to the source what applications do, while it is copied.

`Workload` makes the tables, loads them, and writes until it is stopped: single statements in
autocommit and transactions of several (insert, update, key change, delete, REPLACE, ON DUPLICATE
KEY UPDATE, rollback, savepoints), some of them XA transactions that another connection ends at once
or seconds later, a journal of pure inserts, and a counter walk whose outcome the writers know
themselves. A seed decides what each writer tries; how the writers interleave is the server's
affair. The pace is bounded, because the machine is shared with what is tested.

On MariaDB some writers set another server id, as a binlog has it after a failover; where
`gtid_strict_mode` is off, sequence numbers go backwards, too. Positions that trust them lose
transactions.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any

import pymysql

from support.servers import Connection, Server
from support.workload_tables import (
    BORN,
    DDL,
    GONE,
    JOURNAL,
    KEY_TABLES,
    KEYS,
    LAST_STEP,
    PAYLOAD,
    WALK,
    KeyTable,
    payload,
    walk_id,
)

#: duplicate key, deadlock, lock wait timeout, changed since the snapshot (MariaDB 11): what
#: applications live with
_EXPECTED = {1062, 1213, 1205, 1020}
_DUPLICATE = 1062
#: the branch was rolled back: in a deadlock, or because it changed no row and its connection is
#: gone
_XA_ROLLED_BACK = {1402, 1613, 1614}
#: MySQL forgets a branch that changed no row with its connection
_XA_NOT_KNOWN = 1397
#: the part of the transactions that are XA, of those the part that stays prepared for a while, and
#: how long
_XA_PART, _XA_LATER, _XA_SECONDS = 0.12, 0.5, 4.0
_ROWS_A_STATEMENT = 1000
_WALKS_AT_ONCE = 40


@dataclass(frozen=True)
class Pace:
    """`rows` are loaded before (the key space is twice that), `writers` then do `per_second`
    transactions altogether."""

    rows: int = 200_000
    writers: int = 16
    per_second: int = 400


class Workload:
    """Tables in `database` of `server`; `with workload:` writes. `seed` decides what is tried."""

    def __init__(self, server: Server, database: str, seed: int, pace: Pace | None = None) -> None:
        self.server = server
        self.database = database
        self.pace = pace or Pace()
        self.tables = tuple(sorted(KEYS))
        self._keys = 2 * self.pace.rows // len(KEY_TABLES)
        self._stop = threading.Event()
        self._writers = [_WorkloadWriter(self, i, Random(f"{seed}/{i}")) for i in range(self.pace.writers)]

    def prepare(self) -> None:
        """Makes and loads the tables: `pace.rows` rows altogether, spread over all kinds of
        keys."""
        self.server.run(*DDL, db=self.database)
        threads = [threading.Thread(target=self._load, args=(table,)) for table in KEY_TABLES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for table in KEY_TABLES:
            [(rows,)] = self.server.query(f"SELECT COUNT(*) FROM {table.name}", db=self.database)
            assert rows >= 0.99 * self._keys / 2, f"{table.name} has {rows} rows after the load"

    def _load(self, table: KeyTable) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in _load_statements(table, self._keys):
                cursor.execute(statement)

    def connect(self) -> Connection:
        return self.server.connect(db=self.database, init_command="SET time_zone = '+00:00'", read_timeout=120)

    def __enter__(self) -> Workload:
        for writer in self._writers:
            writer.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        if error is None:
            self.raise_failure()

    def stop(self) -> None:
        """Ends the writers that were started; each finishes its transaction."""
        self._stop.set()
        for writer in self._writers:
            if writer.thread.ident is not None:
                writer.thread.join()

    def raise_failure(self) -> None:
        """A writer that met an error which no application expects fails the test: it wrote less
        than was meant."""
        for writer in self._writers:
            if writer.failure is not None:
                raise writer.failure

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    @property
    def key_numbers(self) -> int:
        return self._keys

    def counts(self) -> Counter[str]:
        """What was done: `transactions`, `statements`, `rollbacks`, and `error N` for each expected
        error."""
        total: Counter[str] = Counter()
        for writer in self._writers:
            total += writer.counts
        return total

    def walked(self) -> dict[int, int]:
        """Walk id -> the last step that was committed, by the writers' own memory."""
        return {walk: step for writer in self._writers for walk, step in writer.walks.items()}


def walk_row(step: int) -> bool:
    """Whether there is a row after this step."""
    return step not in (0, GONE)


@functools.cache
def _load_statements(table: KeyTable, keys: int) -> tuple[str, ...]:
    """The same for every server: what is random is what the writers do afterwards."""
    random = Random(table.name)
    statements = []
    for first in range(0, keys, 2 * _ROWS_A_STATEMENT):
        numbers = range(first, min(first + 2 * _ROWS_A_STATEMENT, keys), 2)
        rows = ",".join(f"({','.join((*table.literals(n), *payload(random)))})" for n in numbers)
        statements.append(f"INSERT IGNORE INTO {table.name} ({_columns(table)}) VALUES {rows}")
    return tuple(statements)


def _columns(table: KeyTable) -> str:
    return ", ".join((*table.key, *PAYLOAD))


@dataclass(frozen=True)
class _Prepared:
    """An XA transaction to be ended at `due`."""

    xid: str
    commit: bool
    due: float


@dataclass
class _WorkloadWriter:
    """One application thread on its own connection."""

    workload: Workload
    number: int
    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    walks: dict[int, int] = field(default_factory=dict)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"writer-{self.number}", daemon=True)
        self._walking: list[int] = []
        self._began = 0
        self._branches = 0
        self._prepared: list[_Prepared] = []

    # -- the thread

    def _run(self) -> None:
        pause = self.workload.pace.writers / self.workload.pace.per_second
        try:
            with self.workload.connect() as connection, connection.cursor() as cursor:
                self._strict = self._choose_identity(cursor)
                due = time.monotonic()
                while not self.workload.stopping:
                    self._act(connection, cursor)
                    self._end_prepared(cursor, before=time.monotonic())
                    due = max(due + pause, time.monotonic() - 1.0)  # after a stall: no burst to make up for it
                    self.workload.wait(max(0.0, due - time.monotonic()))
                self._end_prepared(cursor, before=float("inf"))
        except BaseException as e:  # noqa: BLE001 (the test's thread raises it again)
            self.failure = e

    def _choose_identity(self, cursor: Any) -> bool:
        """Whether sequence numbers must not go backwards."""
        if self.workload.server.flavor != "mariadb":
            return True
        if self.number % 4 == 1:
            cursor.execute("SET SESSION server_id = 999")
        cursor.execute("SELECT @@gtid_strict_mode")
        return bool(cursor.fetchone()[0]) or self.number % 4 != 1

    def _act(self, connection: Connection, cursor: Any) -> None:
        if not self._strict and self.random.random() < 0.05:
            cursor.execute(f"SET SESSION gtid_seq_no = {self.random.randrange(1, 5000)}")
        choice = self.random.random()
        if choice < 0.3:
            self._transaction(connection, cursor, [self._journal_entry()])
        elif choice < 0.5:
            self._walk(connection, cursor)
        else:
            self._change_rows(connection, cursor)

    def _transaction(
        self, connection: Connection, cursor: Any, statements: list[str], *, commit: bool = True, later: bool = True
    ) -> bool:
        """Whether it was committed. One statement runs in autocommit; a failed statement ends the
        transaction. What happens `later` is not known when this returns."""
        if self.random.random() < _XA_PART:
            return self._xa_transaction(cursor, statements, commit, later and self.random.random() < _XA_LATER)
        alone = len(statements) == 1 and commit
        try:
            if not alone:
                cursor.execute("BEGIN")
            for statement in statements:
                self._execute(cursor, statement, tolerant=not alone)
            if not alone:
                cursor.execute("COMMIT" if commit else "ROLLBACK")
        except pymysql.MySQLError as e:
            if e.args[0] not in _EXPECTED:
                raise
            self.counts[f"error {e.args[0]}"] += 1
            connection.rollback()
            return False
        self.counts["transactions" if commit else "rollbacks"] += 1
        return commit

    def _execute(self, cursor: Any, statement: str, *, tolerant: bool) -> None:
        """`tolerant`: a duplicate key undoes its statement only, and the application goes on with
        its transaction."""
        self.counts["statements"] += 1
        try:
            cursor.execute(statement)
        except pymysql.MySQLError as e:
            if not tolerant or e.args[0] != _DUPLICATE:
                raise
            self.counts[f"error {_DUPLICATE}"] += 1

    # -- XA

    def _xa_transaction(self, cursor: Any, statements: list[str], commit: bool, later: bool) -> bool:
        """Prepared in a connection of its own, which is closed; what is not prepared then is rolled
        back."""
        self._branches += 1
        xid = f"'{self.workload.database}-{self.number}','{self._branches}'"
        one_phase = commit and not later and self.random.random() < 0.2
        try:
            with self.workload.connect() as own, own.cursor() as branch:
                branch.execute(f"XA START {xid}")
                for statement in statements:
                    self._execute(branch, statement, tolerant=True)
                branch.execute(f"XA END {xid}")
                branch.execute(f"XA COMMIT {xid} ONE PHASE" if one_phase else f"XA PREPARE {xid}")
                thread_id = own.thread_id()
            self.workload.server.await_gone(cursor, thread_id)
        except pymysql.MySQLError as e:
            if e.args[0] not in _EXPECTED | _XA_ROLLED_BACK:
                raise
            self.counts[f"error {e.args[0]}"] += 1
            return False
        self.counts["xa transactions"] += 1
        if not one_phase:
            pause = self.random.uniform(0, _XA_SECONDS) if later else 0.0
            self._prepared.append(_Prepared(xid, commit, time.monotonic() + pause))
            self._end_prepared(cursor, before=time.monotonic())
        return commit

    def _end_prepared(self, cursor: Any, before: float) -> None:
        for prepared in [p for p in self._prepared if p.due <= before]:
            self._prepared.remove(prepared)
            verb = "COMMIT" if prepared.commit else "ROLLBACK"
            try:
                cursor.execute(f"XA {verb} {prepared.xid}")
            except pymysql.MySQLError as e:
                if e.args[0] not in {_XA_NOT_KNOWN, *_XA_ROLLED_BACK}:
                    raise

    # -- the journal

    def _journal_entry(self) -> str:
        rows = ", ".join(
            f"({self.number}, {', '.join(payload(self.random))})" for _ in range(self.random.choice((1, 1, 1, 4)))
        )
        return f"INSERT INTO {JOURNAL} (writer, {', '.join(PAYLOAD)}) VALUES {rows}"

    # -- the walk

    def _walk(self, connection: Connection, cursor: Any) -> None:
        """One or two steps of one or two walks, in one transaction."""
        steps = list(self._steps())
        if self._transaction(connection, cursor, [self._step(walk, step) for walk, step in steps], later=False):
            for walk, step in steps:
                self.walks[walk] = step
            self._walking = [w for w in self._walking if self.walks[w] < LAST_STEP]

    def _steps(self) -> Iterator[tuple[int, int]]:
        while len(self._walking) < _WALKS_AT_ONCE:
            self._walking.append(walk_id(self.number, self._began))
            self.walks[self._walking[-1]] = 0
            self._began += 1
        for walk in self.random.sample(self._walking, self.random.choice((1, 1, 2))):
            for step in range(self.walks[walk] + 1, self.walks[walk] + self.random.choice((2, 2, 3))):
                if step <= LAST_STEP:
                    yield walk, step

    def _step(self, walk: int, step: int) -> str:
        if step in BORN:
            return f"INSERT INTO {WALK} (id, counter, writer) VALUES ({walk}, {step}, {self.number})"
        if step == GONE:
            return f"DELETE FROM {WALK} WHERE id = {walk}"
        return f"UPDATE {WALK} SET counter = {step} WHERE id = {walk}"

    # -- the key tables

    def _change_rows(self, connection: Connection, cursor: Any) -> None:
        if self.random.random() < 0.5:
            self._transaction(connection, cursor, [self._change()])
            return
        statements = [self._change() for _ in range(self.random.randrange(2, 7))]
        if self.random.random() < 0.25:
            first = self.random.randrange(0, len(statements) + 1)
            statements.insert(first, "SAVEPOINT here")
            undone = self.random.randrange(first + 1, len(statements) + 1)
            statements.insert(undone, "ROLLBACK TO SAVEPOINT here")
        self._transaction(connection, cursor, statements, commit=self.random.random() < 0.88)

    def _change(self) -> str:
        table = self.random.choice(KEY_TABLES)
        number = self.random.randrange(self.workload.key_numbers)
        return self.random.choices(_CHANGES, _WEIGHTS)[0](self, table, number)

    def _insert(self, table: KeyTable, number: int) -> str:
        return f"INSERT INTO {table.name} ({_columns(table)}) VALUES ({self._row(table, number)})"

    def _insert_many(self, table: KeyTable, number: int) -> str:
        rows = ", ".join(f"({self._row(table, number + i)})" for i in range(self.random.randrange(2, 20)))
        return f"INSERT IGNORE INTO {table.name} ({_columns(table)}) VALUES {rows}"

    def _replace(self, table: KeyTable, number: int) -> str:
        return f"REPLACE INTO {table.name} ({_columns(table)}) VALUES ({self._row(table, number)})"

    def _insert_or_update(self, table: KeyTable, number: int) -> str:
        return f"{self._insert(table, number)} ON DUPLICATE KEY UPDATE {self._assignments()}"

    def _update(self, table: KeyTable, number: int) -> str:
        return f"UPDATE {table.name} SET {self._assignments()} WHERE {table.where(number)}"

    def _update_some(self, table: KeyTable, number: int) -> str:
        """Several rows in one statement, the same value in all: `n` may be unique, so it is left
        out."""
        some = " OR ".join(f"({table.where(number + i)})" for i in range(12))
        return f"UPDATE {table.name} SET d = {self.random.random()}, s = 'many {number}' WHERE {some}"

    def _delete(self, table: KeyTable, number: int) -> str:
        return f"DELETE FROM {table.name} WHERE {table.where(number)}"

    def _change_key(self, table: KeyTable, number: int) -> str:
        other = self.random.randrange(self.workload.key_numbers)
        return self._set_key(table, number, table.literals(other))

    def _respell_key(self, table: KeyTable, number: int) -> str:
        return self._set_key(table, number, table.respelled(number))

    def _set_key(self, table: KeyTable, number: int, literals: tuple[str, ...]) -> str:
        new = ", ".join(f"{c} = {v}" for c, v in zip(table.key, literals, strict=True))
        return f"UPDATE {table.name} SET {new}, d = {self.random.random()} WHERE {table.where(number)}"

    def _row(self, table: KeyTable, number: int) -> str:
        return ", ".join((*table.literals(number), *payload(self.random)))

    def _assignments(self) -> str:
        return ", ".join(f"{c} = {v}" for c, v in zip(PAYLOAD, payload(self.random), strict=True))


_CHANGES = (
    _WorkloadWriter._insert,
    _WorkloadWriter._insert_many,
    _WorkloadWriter._replace,
    _WorkloadWriter._insert_or_update,
    _WorkloadWriter._update,
    _WorkloadWriter._update_some,
    _WorkloadWriter._delete,
    _WorkloadWriter._change_key,
    _WorkloadWriter._respell_key,
)
_WEIGHTS = (16, 3, 12, 12, 26, 3, 14, 10, 4)
