"""The small HTTP server of a pod: its metrics, and whether it is well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

#: seconds for a request to arrive
_PATIENCE = 10.0
#: labels and the value
Sample = tuple[Mapping[str, str], float]


def family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Metric:
    """All that is known of one metric; `kind` is `gauge`, or `counter` of a name that ends in `_total`."""
    found = Metric(name.removesuffix("_total") if kind == "counter" else name, about, kind)
    for labels, value in samples:
        found.add_sample(name, dict(labels), value)
    return found


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


def serve(port: int, pages: Mapping[str, Callable[[], tuple[int, str]]], address: str = "") -> ThreadingHTTPServer:
    """Serves `pages` (path -> status and text) in a thread; port 0 chooses one, no address is all of them. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

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
            """Probes are not news."""

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
