"""One exchange by HTTP that ends in time.

Why it exists: the timeout of a socket bounds each wait for bytes, so a server that sends one now
and then holds its client without end, in a handshake, in headers or in a body. Why it is right: at
the deadline the connection is shut down beneath whatever reads from it. It is held by a descriptor
of its own, because TLS takes the first one over.
"""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.request
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, Self, cast

from cdcsync_core.resource.networks import networks_of_the_run, parse_networks
from cdcsync_lake.checked_proxy import connect_checked


class Deadline:
    """Use as a context manager around what its `handlers` do, which connect with no address that
    the operator's policy refuses to the spec's `field`. `over`: the time has passed."""

    def __init__(self, seconds: float, field: str = "") -> None:
        self.over = False
        self._field, self._networks = field, parse_networks(networks_of_the_run())
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            held, self._held = self._held, []
        for sock in held:
            sock.close()

    def handlers(self, context: ssl.SSLContext | None) -> list[urllib.request.BaseHandler]:
        """What gives an opener connections that end at the deadline; `context` verifies by TLS,
        None: as urllib does. No proxy of the environment gets a request with a password."""
        return [urllib.request.ProxyHandler({}), _HttpHandler(self), _HttpsHandler(self, context)]

    def connect(self, address: tuple[str, int], seconds: float, _source: object = None) -> socket.socket:
        """As `socket.create_connection`, to an address that was checked."""
        return connect_checked(self._field, *address, self._networks, seconds)

    def hold(self, sock: socket.socket) -> None:
        own = sock.dup()
        with self._lock:
            self._held.append(own)
            if self.over:  # TLS would leave open what it cannot take over
                raise TimeoutError("the deadline has passed")

    def _end(self) -> None:
        with self._lock:
            self.over = True
            for sock in self._held:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Timed(HTTPConnection):
    deadline: Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.hold(self.sock)


class _TimedByTls(HTTPSConnection, _Timed):
    """Connects as `_Timed` does before its handshake."""


def _factory(kind: type[_Timed], deadline: Deadline) -> Any:
    def connection(*args: Any, **options: Any) -> _Timed:
        unconnected = kind(*args, **options)
        unconnected.deadline = deadline
        cast(Any, unconnected)._create_connection = deadline.connect
        return unconnected

    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_factory(_Timed, self._deadline), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._deadline, self._verifying = deadline, context

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_factory(_TimedByTls, self._deadline), req, context=self._verifying)
