"""The window of rule R1, held open: a transaction is in the binlog and no SELECT sees it.

Semi-synchronous replication (AFTER_SYNC) that waits for a replica which does not exist stops a
commit exactly between the binlog and the engine, until it is switched off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cdcsync_core.positions.position import Place
from cdcsync_mysql.sessions.connection import connect
from support.servers import Server
from support.source import source_of

WAIT_SECONDS = 600


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"


def next_second() -> None:
    """Returns in another second: servers and clocks that count whole ones tell before from
    after."""
    now = int(time.time())
    until(lambda: int(time.time()) > now, "the next second")


@dataclass(frozen=True)
class SemiSync:
    """How a flavour calls it; `MASTER` of MariaDB is `SOURCE` of MySQL."""

    install: tuple[str, ...]
    enable: tuple[str, ...]
    disable: str


_SEMI_SYNC = {
    "mariadb": SemiSync(
        (),
        (
            "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
            "SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON",
            f"SET GLOBAL rpl_semi_sync_master_timeout = {WAIT_SECONDS * 1000}",
            "SET GLOBAL rpl_semi_sync_master_enabled = ON",
        ),
        "SET GLOBAL rpl_semi_sync_master_enabled = OFF",
    ),
    "mysql": SemiSync(
        ("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",),
        (
            "SET GLOBAL rpl_semi_sync_source_wait_point = 'AFTER_SYNC'",
            "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON",
            f"SET GLOBAL rpl_semi_sync_source_timeout = {WAIT_SECONDS * 1000}",
            "SET GLOBAL rpl_semi_sync_source_enabled = ON",
        ),
        "SET GLOBAL rpl_semi_sync_source_enabled = OFF",
    ),
}


@dataclass
class OpenWindow:
    """An insert of row 1 into `database.t` that is in the binlog and that no SELECT sees, until
    `close`."""

    server: Server
    database: str
    writer: threading.Thread

    def naive(self) -> Place:
        return self.server.binlog_end()

    def rows(self) -> int:
        with connect(source_of(self.server)) as reader, reader.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {self.database}.t")
            row = cursor.fetchone()
        assert row
        return int(row[0])

    def close(self) -> None:
        self.server.run(_SEMI_SYNC[self.server.flavor].disable)
        self.writer.join(WAIT_SECONDS)
        assert not self.writer.is_alive()


@contextmanager
def commit_held(server: Server) -> Iterator[None]:
    """Commits of the server stop between the binlog and the engine meanwhile."""
    semi_sync = _SEMI_SYNC[server.flavor]
    server.run(*semi_sync.install, *semi_sync.enable)
    try:
        yield
    finally:
        server.run(semi_sync.disable)


@contextmanager
def open_window(server: Server) -> Iterator[OpenWindow]:
    database = server.create_database()
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    semi_sync = _SEMI_SYNC[server.flavor]
    server.run(*semi_sync.install, *semi_sync.enable)
    before = server.binlog_end()
    insert = threading.Thread(target=server.run, args=(f"INSERT INTO {database}.t VALUES (1)",))
    window = OpenWindow(server, database, insert)
    insert.start()
    try:
        until(lambda: window.naive() != before, "the insert in the binlog")
        yield window
    finally:
        window.close()
