"""What follows the binlog for a stream: the seam between the stream and Spark.

An engine runs a `BinlogReader` somewhere and gives its batches, each once and in the order of the
binlog. Why it is right: an engine keeps nothing that counts. A stream that ends begins again at the
positions of its targets (R5), with a new engine, so that an engine may lose whatever it has read.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.settings import ReaderSettings


class Ending:
    """An event that a wait for a batch ends with, too."""

    def __init__(self) -> None:
        self._set = False
        self._read, self._write = socket.socketpair()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._write.close()

    def fileno(self) -> int:
        """The descriptor that can be read once it is set."""
        return self._read.fileno()


class StreamEngine(Protocol):
    """The methods are called in this order; `next_batch` by one thread."""

    def start(self, settings: ReaderSettings) -> None:
        """Begins to read."""

    def next_batch(self, ending: Ending) -> BinlogBatch | None:
        """The next batch, when the one before is applied. None where the binlog has not moved for a
        while, and once `ending` is set. Raises CdcError where no batch will come any more."""

    def stop(self) -> None:
        """Ends the reader and its connection to the source."""


#: opens an engine for a run, and ends what belongs to it after the run
OpenEngine: TypeAlias = "Callable[[], AbstractContextManager[StreamEngine]]"
