"""The reader in Spark: a streaming query whose source is `engine.source`.

Spark calls the driver for a micro-batch (`foreachBatch`), and the driver takes the batches of
several intervals while the call lasts: what is done is what the targets have, and Spark's
checkpoint is never read.

Why it is right: a batch is applied by the stream's own thread, and the call returns only between
two of them, so Spark interrupts no batch in the middle. A query is stopped when its call has
returned, and a call that comes later returns at once. What a stopped query has read and not given
is reread by the next run (R5).
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.engine.base import Ending
from cdcsync_spark.engine.handover import BatchChannel, SourceEnded
from cdcsync_spark.engine.source import FORMAT, BinlogSource, save_settings
from cdcsync_spark.engine.start import QUERY_OPTIONS

#: Spark gives the process of a source ten seconds to start and to connect; no setting changes that
_MOST_STARTS = 5
#: whether the query is active is asked so often between two calls: each question is one of the JVM
_ASKED_SECONDS = 2.0
#: how long a call of the driver takes further batches
_MICRO_BATCH_SECONDS = 60.0
_NOT_CONNECTED = "Python worker failed to connect back"


class Begun(NamedTuple):
    query: StreamingQuery
    batches: BatchChannel


#: starts the query for the nth time; Spark calls the function for each micro-batch
Begin: TypeAlias = "Callable[[Callable[[], None], ReaderSettings, int], Begun]"


@contextmanager
def open_spark_engine(starting: Future[SparkSession], scratch: Path) -> Iterator[SparkEngine]:
    """In the session that `starting` gives, which ends with the run."""
    with starting.result() as spark:
        yield SparkEngine(partial(_begin, spark, scratch))


def _begin(
    spark: SparkSession, scratch: Path, on_call: Callable[[], None], settings: ReaderSettings, number: int
) -> Begun:
    """Each start has a checkpoint and a folder of batches of its own in `scratch`."""
    settings.folder.mkdir(exist_ok=True)
    save_settings(settings, scratch / "reader.pickle")
    folder = scratch / f"batches-{number}"
    folder.mkdir()
    spark.dataSource.register(BinlogSource)
    source = spark.readStream.format(FORMAT).option("settings", str(scratch / "reader.pickle"))
    rows = source.option("batches", str(folder)).load()
    query = (
        rows.writeStream.foreachBatch(lambda _, __: on_call())
        .options(**QUERY_OPTIONS)
        .option("checkpointLocation", str(scratch / f"checkpoint-{number}"))
        .trigger(processingTime="0 seconds")  # the reader keeps the interval
        .start()
    )
    return Begun(query, BatchChannel(folder))


class SparkEngine:
    """A `StreamEngine`. A query that ended because the machine was too busy to start its source is
    started again."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._begun: Begun | None = None
        self._settings: ReaderSettings | None = None
        self._starts = 0
        self._has_read = False
        self._call = _Call()

    def start(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._start()

    def _start(self) -> None:
        assert self._settings is not None
        self._starts += 1
        self._begun = self._begin(self._call.serve, self._settings, self._starts)

    def next_batch(self, ending: Ending) -> BinlogBatch | None:
        if self._call.lasts_too_long():
            self._call.end()
        if not self._awaited_call(ending):
            return None
        try:
            batch = self._started.batches.next(ending)
        except SourceEnded:
            self._call.end()  # Spark asks the source next, and gets the reason
            return None
        self._has_read = self._has_read or batch is not None
        return batch

    def stop(self) -> None:
        self._call.close()
        if self._begun is not None:
            self._begun.query.stop()

    @property
    def _started(self) -> Begun:
        assert self._begun is not None, "started before"
        return self._begun

    def _awaited_call(self, ending: Ending) -> bool:
        """Whether a call lasts now. Raises CdcError where none will come."""
        while not self._call.wait(ending, _ASKED_SECONDS):
            if ending.is_set():
                return False
            if not self._started.query.isActive:
                self._start_again()
        return True

    def _start_again(self) -> None:
        failure = str(self._started.query.exception())
        if self._has_read or self._starts >= _MOST_STARTS or _NOT_CONNECTED not in failure:
            raise _ended(failure)
        self._start()


class _Call:
    """Spark's call of the driver, which lasts from `serve` in Spark's thread until `end`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._returned = threading.Lock()
        self._lasts = self._closed = False
        self._begun_at = 0.0
        self._read, self._write = socket.socketpair()

    def serve(self) -> None:
        """In Spark's thread: returns when the call is to end."""
        with self._returned, self._changed:
            self._lasts, self._begun_at = not self._closed, time.monotonic()
            if self._lasts:
                self._write.send(b"\n")
            self._changed.wait_for(lambda: not self._lasts)

    def wait(self, ending: Ending, seconds: float) -> bool:
        """Whether a call lasts, at once or within `seconds`; False when `ending` is set."""
        if not self._lasts:
            either = select.poll()
            for waited_for in (self._read, ending):
                either.register(waited_for, select.POLLIN)
            either.poll(seconds * 1000)
        return self._lasts and not ending.is_set()

    def lasts_too_long(self) -> bool:
        return self._lasts and time.monotonic() - self._begun_at >= _MICRO_BATCH_SECONDS

    def end(self) -> None:
        with self._changed:
            if self._lasts:
                self._read.recv(1)
            self._lasts = False
            self._changed.notify_all()

    def close(self) -> None:
        """When the call has returned; one that comes later returns at once."""
        with self._changed:
            self._closed, self._lasts = True, False
            self._changed.notify_all()
        with self._returned:
            pass


def _ended(failure: str) -> CdcError:
    return fail(Reason.INTERNAL_ERROR, f"Spark ended the stream: {failure[:500]}")
