"""Python values over a socket between processes that were forked from one another."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">Q")


def send(connection: socket.socket, value: object) -> None:
    """Raises OSError, and whatever `pickle` raises before anything is sent."""
    content = pickle.dumps(value)
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive(connection: socket.socket) -> Any:
    """Raises EOFError where the other end is closed, and OSError."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return pickle.loads(_exactly(connection, length))  # noqa: S301 (of this program's own process)


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    return bytes(content)
