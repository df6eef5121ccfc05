"""A source that invents keys without end: a relay to a real server, which answers the planner's
questions by itself.

Why it is right: a plan of uneven keys asks for the key at an offset from the one before it, by an
index that it names; that statement is known by its words. The real server gets all others, so a
preflight finds a server that is fit and a table that can be captured.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from support.hostile import COLUMN, END, Hostile
from support.servers import Server

_QUERY = 0x03


def inventing(server: Server, size: int = 700) -> Callable[[Hostile, socket.socket], None]:
    """Keys of so many random bytes, as hexadecimal digits."""

    def serve(hostile: Hostile, client: socket.socket) -> None:
        with socket.create_connection((server.host, server.port)) as real:
            back = threading.Thread(target=_forward, args=(real, client))
            back.start()
            try:
                _answer(hostile, client, real, size)
            finally:
                with suppress(OSError):
                    real.shutdown(socket.SHUT_RDWR)
                back.join(120)

    return serve


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


def _answer(hostile: Hostile, client: socket.socket, real: socket.socket, size: int) -> None:
    """What the client asks, packet by packet, until it goes."""
    chance = random.Random(size)
    while head := _exactly(client, 4):
        payload = _exactly(client, int.from_bytes(head[:3], "little"))
        if head[3] == 0 and payload[:1] == bytes([_QUERY]) and b"FORCE INDEX" in payload and b"OFFSET" in payload:
            key = chance.randbytes(size).hex().encode()
            row = b"\xfc" + len(key).to_bytes(2, "little") + key
            for number, part in enumerate((b"\x01", COLUMN, END, row, END), start=1):
                hostile.packet(client, number, part)
        else:
            real.sendall(head + payload)


def _exactly(client: socket.socket, size: int) -> bytes:
    """Empty at the end of what comes."""
    found = b""
    while len(found) < size:
        part = client.recv(size - len(found))
        if not part:
            return b""
        found += part
    return found
