"""Sources that mean harm: each serves every client in one way, on a port of its own, and counts
what it could send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: a handshake (protocol 10, MySQL 8.0.0) whose plugin is mysql_native_password; capabilities 0xA208
#: and 0x0008 are PROTOCOL_41 | SECURE_CONNECTION | TRANSACTIONS | CONNECT_WITH_DB and PLUGIN_AUTH,
#: 0x0800 is SSL
_HEAD = b"\x0a8.0.0\x00\x01\x00\x00\x00saltsalt\x00"
_TAIL = b"\x2d\x02\x00\x08\x00\x15" + bytes(10) + b"saltsaltsalt\x00mysql_native_password\x00"
_PLAIN, _WITH_TLS = _HEAD + b"\x08\xa2" + _TAIL, _HEAD + b"\x08\xaa" + _TAIL
OK = b"\x00\x00\x00\x02\x00\x00\x00"
_LONGEST = 0xFFFFFF
#: one column `c` of type VARCHAR: catalog def; empty schema and tables; name; 12 bytes of fixed
#: fields
COLUMN = b"\x03def\x00\x00\x00\x01c\x01c\x0c\x2d\x00\x14\x00\x00\x00\xfd\x00\x00\x00\x00\x00"
END = b"\xfe\x00\x00\x02\x00"
_DRIP_SECONDS = 0.05


class Hostile:
    """`way` gets each client's socket; `sent` counts bytes, `met` clients."""

    def __init__(self, way: Callable[[Hostile, socket.socket], None]) -> None:
        self._way = way
        self.sent = 0
        self.ending = threading.Event()
        self.met = threading.Semaphore(0)

    @contextmanager
    def listening(self, host: str = "127.0.0.1") -> Iterator[int]:
        """The port, at which pods find it where `host` is an address that they reach."""
        with socket.create_server((host, 0), backlog=64) as listener:
            threads = [threading.Thread(target=self._accept, args=(listener,))]
            threads[0].start()
            try:
                yield listener.getsockname()[1]
            finally:
                self.ending.set()
                listener.shutdown(socket.SHUT_RDWR)
                threads[0].join(120)

    def _accept(self, listener: socket.socket) -> None:
        clients = []
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.settimeout(30)
                clients.append(threading.Thread(target=self._serve, args=(client,)))
                clients[-1].start()
                self.met.release()
        for thread in clients:
            thread.join(600)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self._way(self, client)

    def send(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        self.sent += len(data)

    def packet(self, client: socket.socket, number: int, payload: bytes) -> None:
        self.send(client, len(payload).to_bytes(3, "little") + bytes([number & 0xFF]) + payload)

    def drip(self, client: socket.socket) -> None:
        """A byte now and then, without end."""
        while not self.ending.wait(_DRIP_SECONDS):
            self.send(client, b"\x00")


def endless_packets(server: Hostile, client: socket.socket) -> None:
    """Before the login: packets of the full size, which are to be joined."""
    for number in range(10_000):
        if server.ending.is_set():
            return
        server.packet(client, number, bytes(_LONGEST))


def dripping_greeting(server: Hostile, client: socket.socket) -> None:
    server.send(client, b"\xff\x7f\x00\x00")
    server.drip(client)


def dripping_handshake(server: Hostile, client: socket.socket) -> None:
    """Begins a record of TLS's handshake that never ends."""
    server.packet(client, 0, _WITH_TLS)
    client.recv(4096)
    server.send(client, b"\x16\x03\x03\x3f\xff")
    server.drip(client)


def silence(server: Hostile, client: socket.socket) -> None:
    server.ending.wait()


def endless_rows(server: Hostile, client: socket.socket) -> None:
    """Any login is right, and each statement's answer has no end."""
    log_in(server, client)
    while client.recv(65536):
        for number, payload in enumerate((b"\x01", COLUMN, END), start=1):
            server.packet(client, number, payload)
        row = (2).to_bytes(3, "little")
        for start in range(0, 10_000_000, 256):
            if server.ending.is_set():
                return
            numbers = ((4 + start + i) & 0xFF for i in range(256))
            server.send(client, b"".join(row + bytes([n]) + b"\x01x" for n in numbers))


def rows_then_silence(server: Hostile, client: socket.socket) -> None:
    """Any login is right; the answer to the first statement is long, and never ends."""
    log_in(server, client)
    client.recv(65536)
    for number, payload in enumerate((b"\x01", COLUMN, END), start=1):
        server.packet(client, number, payload)
    for number in range(20_000):
        server.packet(client, 4 + number, b"\x64" + bytes(100))
    server.ending.wait()


def one_endless_value(server: Hostile, client: socket.socket) -> None:
    """The same, in one row."""
    log_in(server, client)
    while client.recv(65536):
        for number, payload in enumerate((b"\x01", COLUMN, END), start=1):
            server.packet(client, number, payload)
        for number in range(10_000):
            if server.ending.is_set():
                return
            server.packet(client, 4 + number, bytes(_LONGEST))


def answering(*payloads: bytes, drips: bool = False) -> Callable[[Hostile, socket.socket], None]:
    """Any login is right, and each statement after it gets these packets, and nothing more."""

    def way(server: Hostile, client: socket.socket) -> None:
        log_in(server, client)
        while client.recv(65536):
            for number, payload in enumerate(payloads, start=1):
                server.packet(client, number, payload)
            if drips:
                server.send(client, b"\xff\x00\x00" + bytes([len(payloads) + 1]))
                server.drip(client)

    return way


def log_in(server: Hostile, client: socket.socket) -> None:
    server.packet(client, 0, _PLAIN)
    client.recv(65536)
    server.packet(client, 2, OK)
    client.recv(65536)  # the character set; autocommit is on by the status
    server.packet(client, 1, OK)


_PAGE = (
    b"<ListBucketResult><Name>lake</Name><IsTruncated>true</IsTruncated>"
    b"<NextContinuationToken>more</NextContinuationToken><Contents><Key>cdc/_cdcsync.probe/x</Key>"
    b"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag><Size>1</Size></Contents></ListBucketResult>"
)


def endless_pages(server: Hostile, client: socket.socket) -> None:
    """A listing of which there is always more."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(_PAGE)
    while not server.ending.is_set() and client.recv(65536):
        server.send(client, head + _PAGE)


def internal_page(server: Hostile, client: socket.socket) -> None:
    """What a server of another kind answers."""
    client.recv(65536)
    body = b"role: admin-of-the-cluster <Code>Password</Code><Message>hunter2</Message>"
    server.send(client, b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
