"""The database servers that the tests run against: real ones, started by the tests, one interface
for both flavours.

`VARIANTS` is the registry: adding a server or a set of options is one row. The fixtures are in
`support.fixtures`.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import pymysql

from cdcsync_core.positions.position import Place
from cdcsync_demo.embedded import (
    EmbeddedMariaDB,
    MariaDBBinaries,
    Options,
    OptionValue,
    fetch_mariadb,
    find_installed_mariadb,
)
from cdcsync_demo.server_process import LOOPBACK
from support.mysql97 import EmbeddedMySQL97

Flavor = Literal["mariadb", "mysql"]
MARIADB118 = Path(__file__).parents[2] / ".cache/mariadb118"
Connection: TypeAlias = "pymysql.connections.Connection[Any]"
_PURGE_SECONDS = 180
_CHECKPOINT_SECONDS = 120
_END_SECONDS = 180
#: information_schema.INNODB_TRX shows a new state only where it was not read for 0.1 s, by anyone
_TRANSACTIONS_AGE = 0.15
_TRANSACTIONS_READ = threading.Lock()


class _Embedded(Protocol):
    datadir: Path
    socket: Path

    @property
    def port(self) -> int | None: ...
    @property
    def pid(self) -> int | None: ...
    def is_running(self) -> bool: ...
    def start(self, port: int | None = None) -> int: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def remove(self) -> None: ...
    def restart(self, **options: OptionValue) -> int: ...
    def connect(self, database: str | None = None, **arguments: Any) -> Connection: ...


#: a server that waits for no disk: what it wrote before it is killed is in the page cache, of which
#: a test takes nothing away
UNSYNCED: dict[Flavor, dict[str, OptionValue]] = {
    "mariadb": {"innodb_flush_method": "nosync", "debug_no_sync": True},
    "mysql": {"innodb_flush_method": "nosync"},
}


@dataclass(frozen=True)
class Variant:
    """A server program with a set of options."""

    name: str
    flavor: Flavor
    make: Callable[[Path, Options], _Embedded]
    options: dict[str, OptionValue] = field(default_factory=dict)

    def start(self, folder: Path, **options: OptionValue) -> Server:
        """A new server of this variant on new data; `options` win over the variant's."""
        chosen = self.options | {name.replace("_", "-"): value for name, value in options.items()}
        return Server(self, self.make(folder, chosen))


class Server:
    """A running server. `host`, `port`, `datadir`, `version` stay the same over `kill`, `stop`,
    `start` and `restart`; `start_elsewhere` changes the port."""

    host = LOOPBACK

    def __init__(self, variant: Variant, embedded: _Embedded) -> None:
        self._embedded = embedded
        self._names = itertools.count(1)
        self._transactions: frozenset[int] = frozenset()
        self._transactions_read = 0.0
        self.variant = variant.name
        self.flavor: Flavor = variant.flavor
        self.port = embedded.start()
        self.datadir = embedded.datadir
        self.socket = embedded.socket
        self._admit_root_by_tcp()
        self.version = str(self.query("SELECT VERSION()")[0][0])

    def __repr__(self) -> str:
        return f"<Server {self.variant} {self.version} at {self.host}:{self.port}>"

    @property
    def pid(self) -> int | None:
        """The server's process id, None when it does not run."""
        return self._embedded.pid

    @property
    def binlog_dir(self) -> Path:
        """Where the binlog files are, as this process sees it."""
        return self.datadir

    def is_running(self) -> bool:
        return self._embedded.is_running()

    def connect(self, user: str = "root", db: str | None = None, **arguments: Any) -> Connection:
        """A TCP connection in autocommit mode, without TLS; `arguments` are those of
        pymysql.connect."""
        defaults = {"autocommit": True, "charset": "utf8mb4", "password": "", "ssl_disabled": True}
        return pymysql.connect(host=self.host, port=self.port, user=user, database=db, **{**defaults, **arguments})

    def query(self, sql: str, *values: object, db: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of one statement, run as root in a connection of its own."""
        with self.connect(db=db) as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def run(self, *statements: str, db: str | None = None) -> None:
        """Runs statements as root, one after the other, in one connection."""
        with self.connect(db=db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def await_gone(self, cursor: Any, thread_id: int) -> None:
        """Waits until the connection `thread_id`, which was closed, has ended on the server and in
        InnoDB.

        Only then may another connection end what it prepared (XA). MariaDB takes a connection out
        of the process list before InnoDB has detached its prepared transaction; an XA COMMIT in
        between is answered and written to the binlog, and its rows are lost. MySQL hands a prepared
        transaction over at once.
        """
        if self.flavor == "mysql":
            return
        deadline = time.monotonic() + _END_SECONDS
        while self._is_connected(cursor, thread_id):
            assert time.monotonic() < deadline, f"connection {thread_id} has not ended in {_END_SECONDS} s"
            time.sleep(0.002)

    def _is_connected(self, cursor: Any, thread_id: int) -> bool:
        cursor.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s", (thread_id,))
        if cursor.fetchone()[0]:
            return True
        return thread_id in self._in_transactions(cursor, time.monotonic())

    def _in_transactions(self, cursor: Any, since: float) -> frozenset[int]:
        """The connections with a transaction, as of a time after `since`: one read serves all
        threads that wait for one."""
        with _TRANSACTIONS_READ:  # SHOW ENGINE INNODB STATUS may crash the server while a connection ends
            if self._transactions_read < since:
                time.sleep(_TRANSACTIONS_AGE)
                begun = time.monotonic()
                cursor.execute("SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX")
                self._transactions = frozenset(number for (number,) in cursor.fetchall())
                self._transactions_read = begun
            return self._transactions

    def create_user(self, name: str, password: str, grants: Sequence[str] = ("ALL",), on: str = "*.*") -> None:
        """Replaces the account `name`@`%`, with `grants` on `on`; nothing of it goes into the
        binlog."""
        self.run(
            "SET sql_log_bin = 0",
            f"DROP USER IF EXISTS '{name}'@'%'",
            f"CREATE USER '{name}'@'%' IDENTIFIED BY '{password}'",
            *([f"GRANT {', '.join(grants)} ON {on} TO '{name}'@'%'"] if grants else []),
        )

    def create_database(self) -> str:
        """A new, empty database; returns its name."""
        name = f"t{next(self._names)}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name

    def drop_database(self, name: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {name}")

    def binlog_status(self) -> tuple[str, int]:
        """File and position of the binlog's end."""
        statement = "SHOW MASTER STATUS" if self.flavor == "mariadb" else "SHOW BINARY LOG STATUS"
        file, position, *_ = self.query(statement)[0]
        return str(file), int(position)

    def binlog_end(self) -> Place:
        """The end of the binlog as a place in it."""
        name = "server_id" if self.flavor == "mariadb" else "server_uuid"
        server = self.query(f"SELECT @@GLOBAL.{name}")[0][0]
        return Place(*self.binlog_status(), f"{self.flavor}:{server}")

    def rotate_binlog(self) -> None:
        """Begins a binlog file that from then on grows by transactions alone.

        MariaDB writes Binlog_checkpoint into a new file when InnoDB has flushed what the file
        before it has, which may be a second later.
        """
        self.run("FLUSH BINARY LOGS")
        deadline = time.monotonic() + _CHECKPOINT_SECONDS
        while self.flavor == "mariadb" and not self._has_checkpoint(self.binlog_status()[0]):
            assert time.monotonic() < deadline, f"the binlog had no checkpoint for {_CHECKPOINT_SECONDS} s"
            time.sleep(0.05)

    def _has_checkpoint(self, file: str) -> bool:
        """Whether a Binlog_checkpoint event of `file` names the file itself."""
        events = self.query(f"SHOW BINLOG EVENTS IN '{file}' LIMIT 20")
        return any(kind == "Binlog_checkpoint" and info == file for _, _, kind, _, _, info in events)

    def purge_binlogs(self) -> None:
        """Removes every binlog file but the current one; MariaDB keeps a file until its
        transactions are in a checkpoint."""
        deadline = time.monotonic() + _PURGE_SECONDS
        while len(self.query("SHOW BINARY LOGS")) > 1:
            assert time.monotonic() < deadline, f"the binlog files stayed for {_PURGE_SECONDS} s"
            self.run(f"PURGE BINARY LOGS TO '{self.binlog_status()[0]}'")

    def stop(self) -> None:
        """An orderly shutdown."""
        self._embedded.stop()

    def kill(self) -> None:
        """A crash: SIGKILL."""
        self._embedded.kill()

    def start(self) -> None:
        """After `stop` or `kill`: starts again on the same port and data."""
        self._embedded.start(self.port)

    def start_elsewhere(self) -> None:
        """After `stop` or `kill`: starts again on the same data, at another port from now on."""
        before = self.port
        while self.port == before:
            self._embedded.stop()
            self.port = self._embedded.start()

    def restart(self, **options: OptionValue) -> None:
        """Shuts down in an orderly way if needed, starts again on the same port and data, `options`
        changed from now on."""
        self._embedded.restart(**options)

    def remove(self) -> None:
        """Ends the server and removes its data."""
        self._embedded.remove()

    def _admit_root_by_tcp(self) -> None:
        with self._embedded.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute("CREATE USER IF NOT EXISTS 'root'@'127.0.0.1'")
            cursor.execute("GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION")


@functools.cache
def _mariadb1011() -> MariaDBBinaries:
    binaries = find_installed_mariadb()
    if binaries is None or not binaries.version().startswith("10.11."):
        found = binaries.version() if binaries else "none"
        raise RuntimeError(
            f"found MariaDB: {found}; 10.11 is needed; install Debian 12's mariadb-server by `make servers`"
        )
    return binaries


def _mariadb118() -> MariaDBBinaries:
    programs = MARIADB118 / "usr"
    if not (programs / "sbin/mariadbd").exists():
        raise RuntimeError(f"found no MariaDB 11.8 in {MARIADB118}; the test needs one; make it by `make servers`")
    return MariaDBBinaries(programs / "sbin/mariadbd", programs / "bin/mariadb-install-db", programs)


def _make_mariadb1011(folder: Path, options: Options) -> _Embedded:
    return EmbeddedMariaDB(folder / "data", options, _mariadb1011())


def _make_mariadb114(folder: Path, options: Options) -> _Embedded:
    return EmbeddedMariaDB(folder / "data", options, fetch_mariadb())


def _make_mariadb118(folder: Path, options: Options) -> _Embedded:
    return EmbeddedMariaDB(folder / "data", options, _mariadb118())


def _make_mysql97(_folder: Path, options: Options) -> _Embedded:
    return EmbeddedMySQL97(options)


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("mariadb1011", "mariadb", _make_mariadb1011, {"gtid-strict-mode": True}),
        Variant("mariadb1011_loose", "mariadb", _make_mariadb1011, {"gtid-strict-mode": False}),
        Variant("mariadb114", "mariadb", _make_mariadb114, {"gtid-strict-mode": True}),
        Variant("mariadb118", "mariadb", _make_mariadb118, {"gtid-strict-mode": True}),
        Variant("mysql97_gtid", "mysql", _make_mysql97, {"gtid-mode": True, "enforce-gtid-consistency": True}),
        Variant("mysql97_nogtid", "mysql", _make_mysql97, {"gtid-mode": False}),
    )
}
