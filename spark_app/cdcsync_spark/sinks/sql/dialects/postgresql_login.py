"""Logins to PostgreSQL, bounded by the clock and by the bytes that the server sends.

Why it exists: the time-out of libpq is asked between two messages alone, and a server that sends
parameters without end fills the memory. Why it is right: a login is made in a thread of its own,
which is given up at the end of its time; what it opens afterwards is closed by it. A server can
ask for a password's hash of thousands of millions of rounds (SCRAM), which libpq computes in one
call that nothing interrupts. That call is made without Python's lock, so that who waits for the
login goes on at its end; the thread ends with the hash, or with the process.
"""

from __future__ import annotations

import ctypes
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psycopg
import psycopg_binary
from psycopg import pq
from psycopg.conninfo import make_conninfo

from cdcsync_spark.sinks.sql.dialects.answers import received

LOGIN_SECONDS = 30.0
#: before the login's end; a server's parameters and errors are a few KiB
_LOGIN_BYTES = 2**20
_LOOK_SECONDS = 0.1
#: OPENSSL_INIT_NO_ATEXIT
_NO_ATEXIT = 0x80000
_LATE = f"no login within {LOGIN_SECONDS:g} s"
Connection = psycopg.Connection[tuple[Any, ...]]


def _connect_poll() -> Any:
    """`PQconnectPoll` of the library that psycopg has loaded, whose own call of it holds Python's
    lock. OpenSSL's tables stay at the end of the process: a hash may still be computed by them."""
    folder = Path(psycopg_binary.__file__).parent.with_name("psycopg_binary.libs")
    openssl, libpq = (ctypes.CDLL(str(next(folder.glob(f"{name}-*")))) for name in ("libcrypto", "libpq"))
    openssl.OPENSSL_init_crypto(ctypes.c_uint64(_NO_ATEXIT), None)
    libpq.PQconnectPoll.argtypes, libpq.PQconnectPoll.restype = [ctypes.c_void_p], ctypes.c_int
    return libpq.PQconnectPoll


_CONNECT_POLL = _connect_poll()


class LoginFailed(Exception):
    """What the server, or libpq, has as the cause; what it sends is not bounded."""


class PostgresLogin:
    """One that is made in a thread of its own."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._conninfo = make_conninfo(**parameters)
        self._lock = threading.Lock()
        self._given_up = False
        self._connection: pq.abc.PGconn | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="login", daemon=True)

    def made(self) -> Connection:
        """Raises `LoginFailed`."""
        ends = time.monotonic() + LOGIN_SECONDS
        self._thread.start()
        self._thread.join(LOGIN_SECONDS)
        with self._lock:
            self._given_up = True
            if self._connection is None:
                late = self._error is None or time.monotonic() >= ends
                raise LoginFailed(_LATE if late else str(self._error)) from self._error
        connection = psycopg.Connection(self._connection)
        connection.autocommit = True
        return connection

    def _run(self) -> None:
        try:
            connection = self._polled()
        except Exception as error:  # noqa: BLE001 (raised by who waits for it)
            with self._lock:
                self._error = error
            return
        with self._lock:
            if not self._given_up:
                self._connection = connection
                return
        connection.finish()

    def _polled(self) -> pq.abc.PGconn:
        connection = pq.PGconn.connect_start(self._conninfo.encode())
        ends = time.monotonic() + LOGIN_SECONDS
        try:
            while (status := self._poll(connection)) != pq.PollingStatus.OK:
                while not _ready(connection, status):
                    if time.monotonic() > ends:
                        raise LoginFailed(_LATE)
        except BaseException:
            connection.finish()
            raise
        connection.nonblocking = 1
        return connection

    def _poll(self, connection: pq.abc.PGconn) -> pq.PollingStatus:
        status = pq.PollingStatus(_CONNECT_POLL(cast("Any", connection).pgconn_ptr))
        if connection.status == pq.ConnStatus.BAD or status == pq.PollingStatus.FAILED:
            raise LoginFailed(connection.get_error_message("utf-8"))
        if _received(connection) > _LOGIN_BYTES:
            raise LoginFailed(f"more than {_LOGIN_BYTES} bytes before the login")
        return status


def _ready(connection: pq.abc.PGconn, status: pq.PollingStatus) -> bool:
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT)
    return bool(poll.poll(_LOOK_SECONDS * 1000))


def _received(connection: pq.abc.PGconn) -> int:
    """libpq may open another socket meanwhile."""
    with suppress(OSError), socket.socket(fileno=socket.dup(connection.socket)) as own:
        return received(own)
    return 0
