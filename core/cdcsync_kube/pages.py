"""The small HTTP server of a pod: its metrics, and whether it is well.

Why it is right: any pod of the cluster may connect. A connection has a deadline for request and
answer together, however it drips, and there are never more than a few: a further one takes the
place of the oldest. An honest request is answered in milliseconds, so it is the newest then, and no
crowd of idle connections keeps a probe from its answer.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

#: seconds for a request and its answer
_DEADLINE = 10.0
#: connections at once, each of which has a thread
_MOST = 32
#: labels and the value
Sample = tuple[Mapping[str, str], float]


def family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Metric:
    """All that is known of one metric; `kind` is `gauge`, or `counter` of a name that ends in
    `_total`."""
    metric = Metric(name.removesuffix("_total") if kind == "counter" else name, about, kind)
    for labels, value in samples:
        metric.add_sample(name, dict(labels), value)
    return metric


def exposition(families: Iterable[Metric]) -> str:
    """The page that Prometheus reads; a metric of which nothing is known is left out."""
    registry = CollectorRegistry()
    registry.register(_Families(tuple(f for f in families if f.samples)))
    return generate_latest(registry).decode()


@dataclass(frozen=True, eq=False)
class _Families(Collector):
    families: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], deadline: float) -> None:
        self._deadline = deadline
        self._open: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open[request] = time.monotonic()
            for oldest in list(self._open)[:-_MOST]:
                self._end(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called twice a second."""
        with self._guard:
            for request, since in list(self._open.items()):
                if time.monotonic() - since > self._deadline:
                    self._end(request)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes, or is sent away, is no fault of ours."""

    def _end(self, request: socket.socket) -> None:
        """Its thread reads an end and closes it."""
        del self._open[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


def serve(
    port: int,
    pages: Mapping[str, Callable[[], tuple[int, str]]],
    address: str = "",
    deadline: float = _DEADLINE,
) -> ThreadingHTTPServer:
    """Serves `pages` (path -> status and text) in a thread; port 0 chooses one, no address is all
    of them; `deadline` is in seconds, of a request and its answer. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = deadline

        def do_GET(self) -> None:
            page = pages.get(self.path)
            status, text = page() if page else (404, "not found\n")
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Probes are not logged."""

    server = _BoundedServer((address, port), Handler, deadline)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
