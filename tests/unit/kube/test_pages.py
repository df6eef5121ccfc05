"""The pages of a pod stay reachable, however many others connect: deadlines for each connection,
and never many."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException
from http.server import ThreadingHTTPServer

import pytest

from cdcsync_kube import pages
from support.semisync import until

Serving = Callable[..., ThreadingHTTPServer]


@pytest.fixture
def serving() -> Iterator[Serving]:
    with ExitStack() as stack:

        def serve(**bounds: float) -> ThreadingHTTPServer:
            found = pages.serve(0, {"/healthz": lambda: (200, "well\n")}, "127.0.0.1", **bounds)
            stack.callback(found.server_close)
            stack.callback(found.shutdown)
            return found

        yield serve


@pytest.fixture
def server(serving: Serving) -> ThreadingHTTPServer:
    return serving()


def answer(server: ThreadingHTTPServer) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/healthz", timeout=600) as found:
        return bytes(found.read())


def is_answered(server: ThreadingHTTPServer) -> bool:
    """False where a loaded machine took longer for it than the deadline."""
    with suppress(OSError, HTTPException):
        return answer(server) == b"well\n"
    return False


def half_request(server: ThreadingHTTPServer) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.server_port), timeout=600)
    client.sendall(b"GET /heal")
    return client


def handlers() -> int:
    return sum("process_request_thread" in t.name for t in threading.enumerate())


def test_a_crowd_of_half_requests_takes_no_place_from_an_honest_one(server: ThreadingHTTPServer) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(half_request(server)) for _ in range(3 * pages._MOST)]
        assert answer(server) == b"well\n"
        for sent_away in crowd[: 2 * pages._MOST]:
            with suppress(ConnectionResetError):
                assert sent_away.recv(1) == b""  # waits for the end, which must come
        # a handler's thread ends after its connection
        until(lambda: handlers() <= pages._MOST + 1, "the handlers of the connections that were closed end")
        assert answer(server) == b"well\n"


def test_a_request_that_drips_has_a_deadline(serving: Serving) -> None:
    """A byte now and then passes every timeout of a single read."""
    server = serving(deadline=1.0)
    with half_request(server) as client:
        client.settimeout(0.2)
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                client.sendall(b"x")
                with suppress(TimeoutError):
                    if client.recv(1) == b"":
                        break
    until(lambda: is_answered(server), "an honest request is answered")
