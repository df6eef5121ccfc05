"""Connections of the official client's pool that end in time.

Why it exists: the timeout of a socket bounds each wait for bytes, so a server that sends one now
and then holds its client without end, in a handshake, in headers or in a body. Why it is right: at
the deadline the connection is shut down beneath whatever reads from it. It is held by a descriptor
of its own, because TLS takes the first one over.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

_thread = threading.local()


class TimedCall:
    """Use as a context manager around one call of this thread by a pool that is `timed`. `over`:
    the time has passed. Entering raises OSError where the process gets no thread, because the call
    would have no end."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        try:
            self._timer.start()
        except RuntimeError as error:
            raise BlockingIOError(errno.EAGAIN, f"no thread for the deadline of a call ({error})") from None
        _thread.deadline = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        _thread.deadline = None
        with self._lock:
            held, self._held = self._held, []
        for sock in held:
            sock.close()

    def hold(self, sock: socket.socket) -> None:
        own = socket.socket(fileno=os.dup(sock.fileno()))
        with self._lock:
            self._held.append(own)
            if self.over:
                _shut_down(own)

    def _end(self) -> None:
        with self._lock:
            self.over = True
            for sock in self._held:
                _shut_down(sock)


def timed(manager: PoolManager) -> PoolManager:
    """The same pool, whose connections end at the deadline of the call."""
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _hold(sock: socket.socket) -> None:
    deadline: TimedCall | None = getattr(_thread, "deadline", None)
    if deadline is not None:
        deadline.hold(sock)


class _PooledConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        """Is held before the handshake."""
        sock = super()._new_conn()
        _hold(sock)
        return sock

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:
            _hold(self.sock)
        super().request(*arguments, **options)


class _PooledTlsConnection(HTTPSConnection, _PooledConnection):
    """Connects as `_PooledConnection` does before its handshake."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _PooledConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _PooledTlsConnection
