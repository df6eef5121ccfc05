"""A proxy of HTTP that opens tunnels, and counts them."""

from __future__ import annotations

import select
import socket
import socketserver
import threading
from contextlib import suppress
from typing import Any, Self


class ConnectProxy:
    def __init__(self) -> None:
        self.tunnels = 0
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                method, target, _ = self.rfile.readline().decode().split()
                assert method == "CONNECT"
                while self.rfile.readline().strip():
                    pass
                host, _, port = target.rpartition(":")
                proxy.tunnels += 1
                with socket.create_connection((host, int(port))) as other, suppress(OSError):
                    self.connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    _relay(self.connection, other)

        return Handler


def _relay(one: Any, other: Any) -> None:
    while True:
        ready, _, _ = select.select([one, other], [], [])
        for source in ready:
            content = source.recv(65536)
            if not content:
                return
            (other if source is one else one).sendall(content)
