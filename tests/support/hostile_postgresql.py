"""PostgreSQL servers that mean harm, by the listener of `hostile`: any login is right and every SET
succeeds; what each other statement gets differs."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping

from support.hostile import Hostile

Way = Callable[[Hostile, socket.socket], None]
_TEXT, _NUMBER = 25, 20


def message(kind: bytes, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """`length` is what the message claims to have, which is what it has by default."""
    return kind + struct.pack("!i", 4 + (len(payload) if length is None else length)) + payload


def column(kind: int = _TEXT, *, count: int = 1) -> bytes:
    """The description of `count` columns `c`."""
    return message(b"T", struct.pack("!h", count) + count * (b"c\0" + struct.pack("!ihihih", 0, 0, kind, -1, -1, 0)))


def row(*values: bytes) -> bytes:
    return message(b"D", struct.pack("!h", len(values)) + b"".join(struct.pack("!i", len(v)) + v for v in values))


def error(text: bytes, state: bytes = b"42601") -> bytes:
    return message(b"E", b"SERROR\0VERROR\0C" + state + b"\0M" + text + b"\0\0")


def notice(text: bytes) -> bytes:
    return message(b"N", b"SNOTICE\0VNOTICE\0C00000\0M" + text + b"\0\0")


READY = message(b"Z", b"I")
LOGGED_IN = message(b"R", struct.pack("!i", 0))
SET = message(b"C", b"SET\0")
PARSED = message(b"1") + message(b"2")


def done(tag: bytes) -> bytes:
    return message(b"C", tag + b"\0") + READY


def _log_in(server: Hostile, client: socket.socket) -> None:
    client.recv(65536)
    server.send(client, LOGGED_IN + message(b"S", b"client_encoding\0UTF8\0") + READY)


def answering(answer: bytes, *, repeated: bytes = b"", drips: bool = False) -> Way:
    """Each statement that is no SET gets `answer`, then `repeated` without end."""
    return by_statement({b"": (answer, repeated)}, drips=drips)


def by_statement(answers: Mapping[bytes, tuple[bytes, bytes]], *, drips: bool = False) -> Way:
    """Each statement that is no SET gets the answer of the first of these words that it has, and
    then another part of it without end."""

    def way(server: Hostile, client: socket.socket) -> None:
        _log_in(server, client)
        while statement := client.recv(65536):
            head = PARSED if statement.startswith(b"P") else b""  # by its parts, where it has parameters
            if b"SET " in statement[:80]:
                server.send(client, head + SET + READY)
                continue
            answer, repeated = next(given for word, given in answers.items() if word in statement)
            server.send(client, head + answer)
            while repeated and not server.ending.is_set():
                server.send(client, repeated)
            if drips:
                server.drip(client)

    return way


def unread(answer: bytes) -> Way:
    """Reads nothing of what comes after `answer`."""

    def way(server: Hostile, client: socket.socket) -> None:
        _log_in(server, client)
        while b"SET " in client.recv(65536)[:80]:
            server.send(client, SET + READY)
        server.send(client, answer)
        server.ending.wait()

    return way


def before_the_login(first: bytes, *, repeated: bytes = b"", drips: bool = False) -> Way:
    """Answers the first message of a client."""

    def way(server: Hostile, client: socket.socket) -> None:
        client.recv(65536)
        server.send(client, first)
        while repeated and not server.ending.is_set():
            server.send(client, repeated)
        if drips:
            server.drip(client)

    return way


def asking_for_a_password(kind: int, received: list[bytes]) -> Way:
    """The authentication `kind`: 3 asks for the password itself, 5 for its MD5. What a client sends
    for it is appended to `received`."""

    def way(server: Hostile, client: socket.socket) -> None:
        client.recv(65536)
        server.send(client, message(b"R", struct.pack("!i", kind) + (b"salt" if kind == 5 else b"")))
        received.append(client.recv(65536))

    return way


def scram(*, rounds: int) -> Way:
    """Asks for the login by SCRAM with a password that takes so many rounds."""

    def way(server: Hostile, client: socket.socket) -> None:
        client.recv(65536)
        server.send(client, message(b"R", struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0"))
        first = client.recv(65536)
        nonce = first[first.index(b"r=") + 2 :]
        server.send(client, message(b"R", struct.pack("!i", 11) + b"r=%bx,s=c2FsdHNhbHQ=,i=%d" % (nonce, rounds)))

    return way
