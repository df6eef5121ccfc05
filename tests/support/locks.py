"""Tables that other sessions lock."""

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
    """So that not even their definition can be read: by a RENAME of all of them, which waits, until
    the block ends, for a table that a transaction has read. Nothing is renamed."""
    last = f"zzz_{database}"  # locks are taken in the order of names: what waits for it has all others
    server.run(f"CREATE DATABASE {last}", f"CREATE TABLE {last}.t (id INT PRIMARY KEY)")
    with server.connect(db=database) as reader, server.connect(db=database) as renamer:
        _run(reader, "BEGIN", f"SELECT * FROM {last}.t")
        renames = [*(f"{t} TO {t}_renamed" for t in tables), f"{last}.t TO {last}.u"]
        statement = f"RENAME TABLE {', '.join(renames)}"
        renaming = threading.Thread(target=_interrupted, args=(renamer, statement))
        renaming.start()
        try:
            _await_lock(server, renamer.thread_id())
            yield
        finally:
            server.run(f"KILL QUERY {renamer.thread_id()}")
            renaming.join()
            _run(reader, "COMMIT")
            server.drop_database(last)


@contextmanager
def locked(server: Server, database: str, tables: Sequence[str]) -> Iterator[None]:
    """Locks the tables by LOCK TABLES until the block ends."""
    with server.connect(db=database) as session:
        _run(session, "LOCK TABLES " + ", ".join(f"{t} WRITE" for t in tables))
        yield


def _run(session: Any, *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _interrupted(session: Any, statement: str) -> None:
    with suppress(pymysql.err.OperationalError):
        _run(session, statement)


def _await_lock(server: Server, session: int) -> None:
    deadline = time.monotonic() + 600
    waits = "SELECT STATE LIKE '%%metadata lock%%' FROM information_schema.PROCESSLIST WHERE ID = %s"
    while server.query(waits, session) != [(1,)]:
        assert time.monotonic() < deadline, "the RENAME does not wait"
        time.sleep(0.05)
