"""How the source's process hands batches to the driver: by a socket in a folder of the query, when
the driver asks.

Why it exists: if Spark carried the descriptions, each micro-batch would run a job to collect one
row. And a micro-batch takes 20 CPU ms of the JVM however little it carries; so while one lasts, the
driver asks the source for the batches of several intervals.

Why it is right: Spark asks the source only while the driver is not called, and the driver only
while it is, so they take turns. A batch that was read for Spark is kept until the driver asks, and
is the first one that it gets. So each batch is given once, in the order of the binlog. A side that
fails is noticed by the other one's next call: the driver's ends its micro-batch, and then Spark's
ends the query. The next run goes on from the targets' positions.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.engine.base import Ending

_SOCKET = "batches"
_ASK = b"\n"


class SourceEnded(Exception):
    """The source's process does not answer."""


class BatchSource:
    """The source's side; `next_batch` waits for a while and gives None where the binlog has not
    moved."""

    def __init__(self, folder: Path, next_batch: Callable[[], BinlogBatch | None]) -> None:
        self._next_batch = next_batch
        self._kept: BinlogBatch | None = None
        self._count = 0
        self._turn = threading.Lock()
        self._failed: BaseException | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        with _short(folder) as short:
            self._listener.bind(f"{short}/{_SOCKET}")
        self._listener.listen(1)
        threading.Thread(target=self._serve, name="handover", daemon=True).start()

    def read(self) -> int:
        """The number of batches so far, with the one that waits for the driver. Raises what has
        ended the answers to the driver."""
        with self._turn:
            if self._failed is not None:
                raise self._failed
            if self._kept is None:
                self._kept = self._next_batch()
                self._count += self._kept is not None
            return self._count

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rwb") as channel:
                while channel.readline():
                    batch = self._take()
                    channel.write((batch.to_json() if batch else "").encode() + b"\n")
                    channel.flush()
            self._failed = SourceEnded("the driver has closed its socket")
        except BaseException as error:  # noqa: BLE001 (Spark gets it with its next call)
            self._failed = error

    def _take(self) -> BinlogBatch | None:
        with self._turn:
            batch, self._kept = self._kept, None
            return batch or self._next_batch()


class BatchChannel:
    """The driver's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._asked = False

    def next(self, ending: Ending) -> BinlogBatch | None:
        """The next batch; None where the binlog has not moved, and when `ending` is set. Raises
        SourceEnded."""
        try:
            line = self._answer(ending)
        except OSError as error:
            raise SourceEnded(str(error)) from error
        return BinlogBatch.from_json(line.decode()) if line else None

    def _answer(self, ending: Ending) -> bytes:
        connection = self._connected()
        if not self._asked:
            connection.sendall(_ASK)
            self._asked = True
        either = select.poll()
        for waited_for in (connection, ending):
            either.register(waited_for, select.POLLIN)
        while b"\n" not in self._received:
            either.poll()
            if ending.is_set():
                return b""
            part = connection.recv(1 << 20)
            if not part:
                raise ConnectionError("closed")
            self._received += part
        line, _, rest = self._received.partition(b"\n")
        self._received, self._asked = rest, False
        return bytes(line)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX)
            with _short(self._folder) as short:
                connection.connect(f"{short}/{_SOCKET}")
            self._socket = connection
        return self._socket


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A path of the folder within the 108 bytes that a socket's may have."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
