"""A PostgreSQL server of our own: on loopback, in its own folder, by an account without rights,
because the server refuses to run as root."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

ACCOUNT, GROUP = "nobody", "nogroup"
PASSWORD = "a password of a test"
_SETTINGS = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "max_wal_senders": "0",
    "password_encryption": "scram-sha-256",
    "shared_buffers": "32MB",
    "unix_socket_directories": "",
    "wal_level": "minimal",
}


class PostgresMissing(RuntimeError):
    """No programs of PostgreSQL are installed."""


class PostgresServer:
    """The account is `postgres`, its database, too. `folder` is removed by `remove`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="cdcsync-postgresql-"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = _programs()
        self._initialise()

    def _initialise(self) -> None:
        shutil.chown(self.folder, ACCOUNT, GROUP)
        password = self.folder / "password"
        password.write_text(PASSWORD)
        shutil.chown(password, ACCOUNT, GROUP)
        command = [str(self._programs / "initdb"), "-D", str(self.data), "-U", "postgres", "-E", "UTF8"]
        options = ["--locale=C.UTF-8", "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync"]
        subprocess.run([*command, *options], check=True, capture_output=True, **self._as_account())

    def _as_account(self) -> dict[str, Any]:
        own = {"user": ACCOUNT, "group": GROUP, "extra_groups": []} if os.geteuid() == 0 else {}
        return {**own, "cwd": self.folder}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """On the port of its last start, or a free one."""
        for _ in range(20):
            port = self.port or _free_port()
            settings = [f"-c{name}={value}" for name, value in {**self._settings, "port": port}.items()]
            with (self.folder / "log").open("ab") as log:
                command = [str(self._programs / "postgres"), "-D", str(self.data), *settings]
                self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_account())
            if self._answers(port):
                self.port = port
                return
        raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def _answers(self, port: int) -> bool:
        assert self._process is not None
        end = time.monotonic() + 300
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self._connected(port).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return True
        return False

    def _connected(self, port: int, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=port, user="postgres", password=PASSWORD, dbname=database, autocommit=True
        )

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return self._connected(self.port, database)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of one statement, none where it has none."""
        with self.connect() as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str) -> None:
        self.run(f'CREATE DATABASE "{name}"')

    def create_account(self, name: str, password: str) -> None:
        """One that may do everything; it may be there."""
        if not self.run(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
            self.run(f"CREATE ROLE \"{name}\" LOGIN SUPERUSER PASSWORD '{password}'")

    @contextmanager
    def short_files(self, size: int) -> Iterator[None]:
        """Files of new sessions have at most so many bytes, as on a disk that is full then."""
        command = ["prlimit", f"--pid={self.pid}"]
        try:
            subprocess.run([*command, f"--fsize={size}:"], check=True, **self._as_account())
            yield
        finally:
            subprocess.run([*command, "--fsize=unlimited:"], check=True, **self._as_account())

    def kill(self) -> None:
        """As a crash ends it: the server's processes follow their parent."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # "immediate": no shutdown, no answer to a client
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def postgres_server(settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """`settings` beside those of the tests, or in their place."""
    server = PostgresServer(settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _programs() -> Path:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not folders:
        raise PostgresMissing("no PostgreSQL in /usr/lib/postgresql; the test needs one; make it by `make servers`")
    return folders[-1].parent


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
