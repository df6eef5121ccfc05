"""The small HTTP server of a pod: its metrics, and whether it is well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(port: int, pages: Mapping[str, Callable[[], tuple[int, str]]], address: str = "") -> ThreadingHTTPServer:
    """Serves `pages` (path -> status and text) in a thread; port 0 chooses one, no address is all of them. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
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
