"""Programs that pretend to be a Kafka broker, each wrong in its own way, on loopback.

A request of Kafka's protocol is a size of four bytes, then the kind of question, its version and a
number, two, two and four bytes long; an answer is a size, that number, and the rest.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdcsync_demo.server_process import LOOPBACK

#: kinds of questions: what is spoken, and who the brokers are
API_VERSIONS, METADATA = 18, 3
_KINDS = (0, 1, 2, METADATA, 10, API_VERSIONS, 19, 22, 24, 25, 26, 32, 60, 75)
_MEBIBYTE = bytes(1 << 20)
#: its first label is longer than a label may be, so no name service is asked for it
UNKNOWN_HOST = f"{'no-such-host' * 6}.invalid"

Behaviour = Callable[[socket.socket], None]


def silent(client: socket.socket) -> None:
    """Takes what comes and answers nothing."""
    while client.recv(1 << 16):
        pass


def closing(client: socket.socket) -> None:
    """Ends the connection at the first question."""
    client.recv(1 << 16)


def garbage(client: socket.socket) -> None:
    rng = random.Random(1)
    while client.recv(1 << 16):
        client.sendall(rng.randbytes(4000))


def of_two_gibibytes(client: socket.socket) -> None:
    """An answer that is announced with the largest size that there is."""
    client.recv(1 << 16)
    client.sendall(struct.pack(">i", 2**31 - 1))
    _send_without_end(client)


def of_a_hundred_megabytes(client: socket.socket) -> None:
    """The largest answers that a client takes, without end, none of which it asked for."""
    client.recv(1 << 16)
    while True:
        client.sendall(struct.pack(">i", 99_000_000))
        for _ in range(94):
            client.sendall(_MEBIBYTE)
        client.sendall(bytes(99_000_000 - 94 * len(_MEBIBYTE)))


def dripping(client: socket.socket) -> None:
    """An answer whose bytes come one by one."""
    client.recv(1 << 16)
    client.sendall(struct.pack(">i", 10_000))
    while True:
        client.sendall(b"\0")
        time.sleep(0.2)


def hanging_later(client: socket.socket) -> None:
    """Says what it speaks, and answers nothing else."""
    for kind, version, number in _questions(client):
        if kind == API_VERSIONS:
            _answer(client, number, _spoken(version))


def lying(client: socket.socket) -> None:
    """Says what it speaks; all other answers are noise."""
    rng = random.Random(2)
    for kind, version, number in _questions(client):
        body = _spoken(version) if kind == API_VERSIONS else rng.randbytes(rng.randint(0, 400))
        _answer(client, number, body)


def counting_too_far(client: socket.socket) -> None:
    """Says what it speaks; other answers announce as many entries as there can be."""
    for kind, version, number in _questions(client):
        most = b"\0" + struct.pack(">i", 0) + b"\xff\xff\xff\xff\x07" + struct.pack(">i", 2**31 - 1) * 20
        _answer(client, number, _spoken(version) if kind == API_VERSIONS else most)


def naming_another(client: socket.socket) -> None:
    """Says that the brokers are one of a name that has no address."""
    host, port, rack, cluster = (
        _text(UNKNOWN_HOST.encode()),
        struct.pack(">i", 9092),
        struct.pack(">h", -1),
        _text(b"c"),
    )
    count = number_of_the_broker = struct.pack(">i", 1)
    brokers = count + number_of_the_broker + host + port + rack
    for kind, version, number in _questions(client):
        if kind == API_VERSIONS:
            _answer(client, number, _spoken(version))
        elif kind == METADATA:
            _answer(client, number, struct.pack(">i", 0) + brokers + cluster + number_of_the_broker + bytes(8))


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


BEHAVIOURS: dict[str, Behaviour] = {
    behaviour.__name__: behaviour
    for behaviour in (
        silent,
        closing,
        garbage,
        of_two_gibibytes,
        of_a_hundred_megabytes,
        dripping,
        hanging_later,
        lying,
        counting_too_far,
        naming_another,
    )
}


@contextmanager
def hostile_broker(behaviour: Behaviour) -> Iterator[str]:
    """Its address."""
    with socket.create_server((LOOPBACK, 0), backlog=64) as server:
        threading.Thread(target=_serve, args=(server, behaviour), daemon=True).start()
        try:
            yield f"{LOOPBACK}:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)  # wakes `accept`, as closing it does not


def _serve(server: socket.socket, behaviour: Behaviour) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_behave, args=(client, behaviour), daemon=True).start()


def _behave(client: socket.socket, behaviour: Behaviour) -> None:
    with client:
        try:
            behaviour(client)
        except OSError:
            return  # the client has left


def _questions(client: socket.socket) -> Iterator[tuple[int, int, int]]:
    """Kind, version and number of each."""
    while len(size := _received(client, 4)) == 4:
        question = _received(client, struct.unpack(">i", size)[0])
        yield struct.unpack(">hhi", question[:8])


def _received(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := client.recv(size - len(found))):
        found += more
    return found


def _answer(client: socket.socket, number: int, body: bytes) -> None:
    client.sendall(struct.pack(">ii", 4 + len(body), number) + body)


def _spoken(version: int) -> bytes:
    """Each kind in its versions 0 to 8, in the form that the version of the question has."""
    kinds = b"".join(struct.pack(">hhh", kind, 0, 8) + (b"\0" if version >= 3 else b"") for kind in _KINDS)
    if version >= 3:
        return struct.pack(">h", 0) + bytes([len(_KINDS) + 1]) + kinds + struct.pack(">i", 0) + b"\0"
    return struct.pack(">hi", 0, len(_KINDS)) + kinds + (struct.pack(">i", 0) if version >= 1 else b"")


def _send_without_end(client: socket.socket) -> None:
    while True:
        client.sendall(_MEBIBYTE)
