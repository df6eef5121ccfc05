"""Between a client and a real broker: what the broker answers comes as it is, until it is asked to
lie. Brokers are named by the address of this one, so all connections come here.

with lying_broker(kafka.bootstrap) as broker:
    ...                             # clients connect to broker.address
    broker.lie = dripping           # every answer from now on is one of its kind
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cdcsync_demo.server_process import LOOPBACK

_HOST = LOOPBACK.encode()
#: sends one answer, of which it is given the bytes behind its size; the event is set at the end
Lie = Callable[["LyingBroker", socket.socket, bytes], None]


class LyingBroker:
    def __init__(self, bootstrap: str) -> None:
        self.target = int(bootstrap.rpartition(":")[2])
        self.lie: Lie | None = None
        self.ending = threading.Event()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def close(self) -> None:
        self.ending.set()
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def named(self, answer: bytes, port: int) -> bytes:
        """The answer with `port` as that of each broker: it stands behind the host."""
        return answer.replace(_HOST + struct.pack(">i", self.target), _HOST + struct.pack(">i", port))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self.target))
                self._sockets += [client, server]
                threading.Thread(target=_questions, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError, struct.error):
            while answer := _frame(server):
                (self.lie or honest)(self, client, answer)
        _end(client)


def _questions(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while more := client.recv(1 << 16):
            server.sendall(more)
    _end(server)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb", buffering=0) as stream:
        return _exactly(stream.read, struct.unpack(">i", _exactly(stream.read, 4))[0])


def _exactly(read: Callable[[int], bytes | None], size: int) -> bytes:
    parts = b""
    while len(parts) < size and (more := read(size - len(parts))):
        parts += more
    return parts


def _send(client: socket.socket, answer: bytes) -> None:
    client.sendall(struct.pack(">i", len(answer)) + answer)


def honest(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    _send(client, broker.named(answer, broker.port))


def silent(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    """Nothing."""


def moved(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    """The brokers are where nothing listens."""
    _send(client, broker.named(answer, 1))


def noise(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    _send(client, answer[:4] + random.Random(len(answer)).randbytes(len(answer)))


def counting_too_far(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    """As many entries as there can be, in each form of a count."""
    _send(
        client, answer[:4] + b"\0" + struct.pack(">i", 0) + b"\xff\xff\xff\xff\x07" + struct.pack(">i", 2**31 - 1) * 20
    )


def cut(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    """Half of it."""
    _send(client, broker.named(answer, broker.port)[: max(5, len(answer) // 2)])


def dripping(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    client.sendall(struct.pack(">i", 10_000) + answer[:4])
    while not broker.ending.wait(0.2):
        client.sendall(b"\0")


def without_end(broker: LyingBroker, client: socket.socket, answer: bytes) -> None:
    client.sendall(struct.pack(">i", 99_000_000) + answer[:4])
    while not broker.ending.is_set():
        client.sendall(bytes(1 << 20))


LIES: dict[str, Lie] = {
    lie.__name__: lie for lie in (silent, moved, noise, counting_too_far, cut, dripping, without_end)
}


@contextmanager
def lying_broker(bootstrap: str) -> Iterator[LyingBroker]:
    broker = LyingBroker(bootstrap)
    try:
        yield broker
    finally:
        broker.close()
