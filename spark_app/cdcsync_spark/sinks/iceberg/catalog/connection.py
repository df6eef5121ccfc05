"""Requests to one server of a catalog, over connections that are kept.

Why it exists: PyIceberg's session waits without end, follows redirections with its credentials, and
resolves names by itself. Why it is right: a connection goes to an address that the operator's
policy was asked about; a request ends by a clock, because at its deadline the connection is shut
down beneath whatever reads from it (a socket's own timeout bounds each wait for bytes only); of an
answer a bounded number of bytes is read. A redirection is an answer like any other. A request that
was not sent is told from one that may have been carried out. A kept connection that the server has
closed, or that has rested long, is not used again, so that a commit does not end with an unknown
outcome for nothing.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from cdcsync_core.account_texts import without_texts
from cdcsync_core.errors import RUN_AGAIN, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.networks import networks_of_the_run, parse_networks
from cdcsync_lake.checked_proxy import connect_checked

#: of the spec, which describes a catalog
FIELD = "spec.sink.iceberg.catalog"
#: what to do where a certificate is refused
UNTRUSTED = (
    f"correct the Secret of {FIELD}.tls.caSecretRef to the authority of the catalog's certificate, "
    "or the host of the uri to one that the certificate names"
)
#: of one answer: the metadata of a table with some tens of thousands of snapshots
ANSWER_BYTES = 64 * 2**20
#: seconds after which a connection is not used again, below what servers and balancers wait
_RESTED = 15.0
_IDLE = 4


@dataclass(frozen=True)
class Request:
    """Headers and body may hold a credential, which is never shown."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    body: bytes = field(repr=False)

    def without(self, texts: Iterable[str]) -> HttpAnswer:
        """The same, should the server have repeated them, as they are or as texts of JSON."""
        body, forms = self.body.decode(errors="surrogateescape"), {f for t in texts for f in (t, json.dumps(t)[1:-1])}
        return HttpAnswer(self.status, without_texts(body, forms).encode(errors="surrogateescape"))


class NoAnswer(Exception):
    """No whole answer came. `sent`: the server may have carried the request out. `untrusted`: its
    certificate is refused. `too_large`: the answer is."""

    def __init__(self, found: str, *, sent: bool, untrusted: bool = False, too_large: bool = False) -> None:
        self.found, self.sent, self.untrusted, self.too_large = found, sent, untrusted, too_large
        super().__init__(found)


class CatalogServer:
    """The server of `url`, which `spec_field` of the spec names; `context` is asked for each
    connection by TLS. A process that was forked has connections of its own."""

    def __init__(self, url: str, spec_field: str, context: Callable[[], ssl.SSLContext], seconds: float) -> None:
        self._url, self._field, self._context, self._seconds = urlsplit(url), spec_field, context, seconds
        self._idle: list[_Link] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        # they are held by the call, so that no collector takes a socket before it is closed
        weakref.finalize(self, _close_all, self._idle)

    def ask(self, request: Request) -> HttpAnswer:
        """Raises NoAnswer, and CdcError where the policy refuses an address."""
        link, end = self._rested() or self._link(), time.monotonic() + self._seconds
        watch = threading.Timer(self._seconds, link.end)
        watch.daemon = True
        watch.start()
        try:
            answer, reusable = link.ask(request)
        except NoAnswer as error:
            link.close()
            if link.over or time.monotonic() >= end:
                raise NoAnswer(f"it did not answer within {self._seconds:g} s", sent=error.sent) from None
            raise
        except BaseException:
            link.close()
            raise
        finally:
            watch.cancel()
        self._keep(link, reusable)
        return answer

    def _rested(self) -> _Link | None:
        """A kept connection that the server has not closed."""
        with self._lock:
            if self._process != os.getpid():
                self._idle.clear()
                self._process = os.getpid()
            while self._idle:
                link = self._idle.pop()
                if link.usable():
                    return link
                link.close()
        return None

    def _keep(self, link: _Link, reusable: bool) -> None:
        with self._lock:
            if reusable and not link.over and len(self._idle) < _IDLE:
                link.since = time.monotonic()
                self._idle.append(link)
                return
        link.close()

    def _link(self) -> _Link:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return _Link(HTTPSConnection(host, port, timeout=self._seconds, context=self._context()), self._field)
        return _Link(HTTPConnection(host, port, timeout=self._seconds), self._field)


class _Link:
    """One connection; `over`: it was ended at a deadline."""

    def __init__(self, http: HTTPConnection, spec_field: str) -> None:
        self.over, self.since = False, 0.0
        self._http, self._field = http, spec_field
        self._lock = threading.Lock()
        self._own: socket.socket | None = None
        cast(Any, http)._create_connection = self._connect

    def ask(self, request: Request) -> tuple[HttpAnswer, bool]:
        """The answer, and whether the connection may be used again."""
        sent = False
        try:
            if self._http.sock is None:
                self._http.connect()
            sent = True
            self._http.request(request.method, request.path, request.body, dict(request.headers))
            answer = self._http.getresponse()
            body = answer.read(ANSWER_BYTES + 1)
        except ssl.SSLCertVerificationError as error:
            refused = f"its certificate is refused: {quoted(error.verify_message)}"
            raise NoAnswer(refused, sent=False, untrusted=True) from None
        except (OSError, HTTPException) as error:
            raise NoAnswer(quoted(str(error)) if str(error) else type(error).__name__, sent=sent) from None
        if answer.length and len(body) <= ANSWER_BYTES:
            raise NoAnswer("its answer ends early", sent=sent)
        if len(body) > ANSWER_BYTES:
            raise NoAnswer(f"its answer has more than {ANSWER_BYTES} bytes", sent=sent, too_large=True)
        if self.over:
            raise NoAnswer("it did not answer in time", sent=sent)
        return HttpAnswer(answer.status, body), answer.isclosed() and self._http.sock is not None

    def usable(self) -> bool:
        """Nothing is to be read between two requests but a server's end."""
        if self._http.sock is None or self.over or time.monotonic() - self.since > _RESTED:
            return False
        poll = select.poll()
        poll.register(self._http.sock, select.POLLIN)
        return not poll.poll(0)

    def _connect(self, address: tuple[str, int], seconds: float, _source: object = None) -> socket.socket:
        connected = connect_checked(self._field, *address, parse_networks(networks_of_the_run()), seconds)
        with self._lock:
            if not self.over:
                self._own = connected.dup()
                return connected
        connected.close()
        raise TimeoutError("the time has passed")

    def end(self) -> None:
        """Whoever reads from the connection reads no more."""
        with self._lock:
            self.over = True
            if self._own is not None:
                _shut_down(self._own)

    def close(self) -> None:
        self._http.close()
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()


def host_of(url: str) -> str:
    """As a request's header names it."""
    parts = urlsplit(url)
    return parts.netloc.removesuffix(":443" if parts.scheme == "https" else ":80")


def trusting(ca: Path | None) -> ssl.SSLContext:
    """Certificates of the authority in the file `ca`, or of those that the machine knows."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError:
        raise fail(
            Reason.SPEC_INVALID,
            f"no readable certificate in {ca.parent.name}/{ca.name}" if ca else "no readable certificates",
            needed="a PEM file with the authority of the catalog",
            remedy=f"correct the Secret of {FIELD}.tls.caSecretRef, {RUN_AGAIN}",
        ) from None


def _close_all(links: list[_Link]) -> None:
    for link in links:
        link.close()


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
