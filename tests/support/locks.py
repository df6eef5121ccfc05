"""Tables that another session locks, so that not even their definition can be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pymysql

from support.servers import Server


@contextmanager
def locked_for_ddl(server: Server, database: str, tables: Sequence[str]) -> Iterator[None]:
    """By a RENAME of all of them, which waits, until the block ends, for a table that a transaction
    has read; nothing is renamed then."""
    last = "zzz_read"
    server.run(f"CREATE TABLE IF NOT EXISTS {last} (id INT PRIMARY KEY)", db=database)
    with server.connect(db=database) as reader, server.connect(db=database) as renamer:
        _run(reader, "BEGIN", f"SELECT * FROM {last}")
        statement = "RENAME TABLE " + ", ".join(f"{t} TO {t}_renamed" for t in [*sorted(tables), last])
        renaming = threading.Thread(target=_interrupted, args=(renamer, statement))
        renaming.start()
        try:
            _await_lock(server, renamer.thread_id())
            yield
        finally:
            server.run(f"KILL QUERY {renamer.thread_id()}")
            renaming.join()
    server.run(f"DROP TABLE {last}", db=database)


def _run(session: Any, *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _interrupted(session: Any, statement: str) -> None:
    with suppress(pymysql.err.OperationalError):
        _run(session, statement)


def _await_lock(server: Server, session: int) -> None:
    deadline = time.monotonic() + 120
    waits = "SELECT STATE LIKE '%%metadata lock%%' FROM information_schema.PROCESSLIST WHERE ID = %s"
    while server.query(waits, session) != [(1,)]:
        assert time.monotonic() < deadline, "the RENAME does not wait"
        time.sleep(0.05)
