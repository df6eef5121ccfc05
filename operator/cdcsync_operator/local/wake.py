"""An event that a signal's handler may set, too.

Why it is right: a handler runs between any two steps of the main thread, which may hold the lock of
a `threading.Event`. Here it only sends a byte to a socket, and who waits for the socket wakes.
Source: https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress


class Wake:
    """To be waited for by one thread; set by any."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def set(self) -> None:
        with suppress(BlockingIOError):  # thousands of bytes are unread: it is set
            self._write.send(b"\0")

    def wait(self, seconds: float) -> bool:
        """Whether it is set within so many seconds."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._read.recv(65536):
                pass
