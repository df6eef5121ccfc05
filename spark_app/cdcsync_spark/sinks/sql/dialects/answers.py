"""What a target database may answer: so many rows and bytes, in so much time, and of the types that
were asked for.

Why it exists: libpq reads whatever a server sends (rows, notices, notifications, parameters, a
message as long as it claims to be) into memory, and waits without end for one that sends a byte now
and then. Why it is right: while an answer is read, a thread watches the connection's socket, the
time and the bytes that the kernel counts on it, and shuts the socket down beneath libpq at the end
of either. The socket is held by a descriptor of its own, so no other connection is ever hit. Where
the kernel has no such count, time alone is watched.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_mysql.sessions.question import AnswerLimits
from cdcsync_spark.sinks.sql.dialects.dialect import Kind

#: of an answer that is kept as a whole: a target's columns, a state, names
WHOLE = AnswerLimits(1_000_000, 64 * 2**20)
#: of a row that is read as it comes
ROW_BYTES = 512 * 2**20
#: of any statement but those that copy a table's rows within the server
STATEMENT_SECONDS = 3600
_LOOK_SECONDS = 0.02
#: `tcpi_bytes_received` of Linux's `struct tcp_info`
_COUNT_AT, _COUNT = 128, struct.Struct("=Q")


class AnswerWatch:
    """Watches one connection to the server at `address`, whose owner closes this, too."""

    def __init__(self, address: str, descriptor: int) -> None:
        self._address = address
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._socket.close()

    def shut_down(self) -> None:
        """Whatever reads from the connection ends, in any thread; the server gets a reset once it
        is closed."""
        with self._lock, suppress(OSError):
            if not self._closed:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._socket.shutdown(socket.SHUT_RDWR)

    def received(self) -> int:
        """Bytes since the connection was opened."""
        with self._lock:
            return 0 if self._closed else received(self._socket)

    @contextmanager
    def within(self, seconds: float, size: int) -> Iterator[Answer]:
        """Raises `SinkUnreachable` for an answer beyond the bounds, whatever its reader made of the
        end of the connection."""
        answer = Answer(self, seconds, size)
        try:
            yield answer
        except Exception as error:
            answer.end()
            if answer.excess:
                raise self.beyond(answer.excess) from error
            raise
        finally:
            answer.end()
        if answer.excess:
            raise self.beyond(answer.excess)

    def beyond(self, excess: str) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the database at {self._address} sends {excess}",
            needed="a database server, and answers within the bounds of a sink",
            remedy="check the host and port of the sink, and the server's load; it is tried again",
        )


class Answer:
    """One that is being read. `excess` is empty unless it went beyond its bounds."""

    def __init__(self, watch: AnswerWatch, seconds: float, size: int) -> None:
        self.excess = ""
        self._watch, self._seconds, self._size = watch, seconds, size
        self._ends = time.monotonic() + seconds
        self._most = watch.received() + size
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="answer", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Counts the bytes from here: a row was taken."""
        self._most = self._watch.received() + self._size

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if time.monotonic() > self._ends:
                self.excess = f"no whole answer within {self._seconds:g} s"
            elif self._watch.received() > self._most:
                self.excess = f"an answer of more than {self._size} bytes"
            if self.excess:
                self._watch.shut_down()
                return


def received(connection: socket.socket) -> int:
    """The bytes that a TCP connection has got; 0 where the kernel does not count them."""
    option = getattr(socket, "TCP_INFO", None)
    try:
        info = b"" if option is None else connection.getsockopt(socket.IPPROTO_TCP, option, 256)
    except OSError:
        return 0
    return int(_COUNT.unpack_from(info, _COUNT_AT)[0]) if len(info) >= _COUNT_AT + _COUNT.size else 0


def checked(address: str, rows: Sequence[tuple[Any, ...]], kinds: Sequence[Kind]) -> list[tuple[Any, ...]]:
    """The rows; raises `SinkUnreachable` where one has other columns than were asked for."""
    for row in rows:
        if len(row) != len(kinds) or not all(map(isinstance, row, kinds)):
            raise _unasked(address, f"{len(row)} values ({', '.join(type(value).__name__ for value in row[:20])})")
    return list(rows)


def one_row(address: str, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Raises `SinkUnreachable` for another number of rows."""
    if len(rows) != 1:
        raise _unasked(address, f"{len(rows)} rows")
    return rows[0]


def _unasked(address: str, answer: str) -> CdcError:
    return fail(
        Reason.SINK_UNREACHABLE,
        f"the database at {address} answers with {answer}, which were not asked for",
        needed="a database server",
        remedy="check the host and port of the sink; it is tried again",
    )
