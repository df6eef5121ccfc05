"""A server of HTTP that gives the answers of a list, and notes what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class JsonAnswers:
    """Use as a context manager. `answers` has, for each path without its query, what is given for
    it, status and body, one after another, the last one again and again; a text is sent as it is.
    `early` is how many bytes of each answer are not sent."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.asked: list[Asked] = []
        self.early, self.seconds, self.location = 0, 0.0, ""
        #: so that no answer outlives its test: a thread that begins or ends while another test
        #: stops tracemalloc can end the process (CPython before 3.13.2)
        self.closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._scheme = "https" if context else "http"
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def url(self, host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self._server.server_address[1]}"

    def of(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path.partition("?")[0] == path]

    def next(self, path: str) -> tuple[int, bytes]:
        answers = self.answers.get(path, [(404, "no such page")])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        return status, body.encode() if isinstance(body, str) else json.dumps(body).encode()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


def _handler(answers: JsonAnswers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            answers.asked.append(Asked(self.command, self.path, dict(self.headers), self.rfile.read(length)))
            answers.closed.wait(answers.seconds)
            early = answers.early
            status, body = answers.next(self.path.partition("?")[0])
            self.send_response(status)
            if answers.location:
                self.send_header("Location", answers.location)
            self.send_header("Content-Length", str(len(body)))
            with suppress(OSError):
                self.end_headers()
                self.wfile.write(body[: len(body) - early])
            self.close_connection = bool(early)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler
