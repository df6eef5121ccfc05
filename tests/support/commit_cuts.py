"""A TCP relay to a database server that breaks a connection in its COMMIT: before the server gets
it, or after the server has answered and the client has not.

    with cuts_to(server.host, server.port) as relay:
        relay.cut(landed=True)      # the next COMMIT is made, and its answer is lost
        relay.cuts                  # how many were broken so far
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.relay import Relay

#: a packet of MySQL and one of PostgreSQL, and what PostgreSQL prepares, to be run by its name
_QUERIES = (b"\x07\0\0\0\x03COMMIT", b"Q\0\0\0\x0bCOMMIT\0")
_PREPARED = re.compile(rb"P....([^\0]+)\0COMMIT\0", re.DOTALL)


class CommitCuts(Relay):
    """Made by `cuts_to`. One cut at a time waits for a COMMIT."""

    def __init__(self, host: str, port: int) -> None:
        self._landed: bool | None = None
        self._choosing = threading.Lock()
        self.cuts = 0
        super().__init__(host, port)

    def cut(self, *, landed: bool) -> None:
        with self._choosing:
            self._landed = landed

    def _pump(self, source: socket.socket, target: socket.socket, asks: bool, held: threading.Event) -> None:
        """`held`: the next answer of the connection is to be lost."""
        prepared = set[bytes]()
        try:
            while not self._closed.is_set():
                data = self._received(source)
                if data is None:
                    continue
                if not data or (held.is_set() and not asks):
                    return
                prepared.update(_PREPARED.findall(data) if asks else ())
                landed = self._take(data, prepared) if asks else None
                if landed is False:
                    return
                if landed:
                    held.set()
                target.sendall(data)
        except OSError:
            return
        finally:
            for connection in (source, target):
                _end(connection)

    def _take(self, data: bytes, prepared: set[bytes]) -> bool | None:
        """Whether the COMMIT in `data` is to be made; None where it is none, or goes through."""
        runs_prepared = data[:1] == b"B" and any(b"\0" + name + b"\0" in data[:80] for name in prepared)
        if not (data.startswith(_QUERIES) or runs_prepared or _PREPARED.search(data)):
            return None
        with self._choosing:
            landed, self._landed = self._landed, None
            self.cuts += landed is not None
        return landed


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@contextmanager
def cuts_to(host: str, port: int) -> Iterator[CommitCuts]:
    """On loopback, at a free port."""
    relay = CommitCuts(host, port)
    try:
        yield relay
    finally:
        relay.close()
