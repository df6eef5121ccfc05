"""The stream's query in Spark: starts it, hands its batches over, and ends it between two of them.

A micro-batch carries the batches of several intervals, one commit after the other: what is done is
what the targets have, and Spark's checkpoint is never read.

Why it is right: a query is stopped when its call of the driver has returned, so Spark interrupts no
batch in the middle, and a call that comes later applies nothing. What a closed query does not apply
is reread by the next run (R5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.engine.handover import BatchChannel, Ending, SourceEnded
from cdcsync_spark.engine.source import FORMAT, BinlogSource, save_settings
from cdcsync_spark.engine.start import QUERY_OPTIONS
from cdcsync_spark.sinks.contract.writer import Closed

#: Spark gives the process of a source ten seconds to start and to connect; no setting changes that
_MOST_STARTS = 5
#: an active query is asked for so often between two calls: each question is a call of the JVM
_ASKED_SECONDS = 1.0
#: how long a micro-batch asks for further batches
_MICRO_BATCH_SECONDS = 60.0
_NOT_CONNECTED = "Python worker failed to connect back"

#: gives the next batch, see `BatchChannel.next`
Next: TypeAlias = "Callable[[Ending], BinlogBatch | None]"
OnBatch: TypeAlias = "Callable[[Next], None]"
#: starts the query for the nth time
Begin: TypeAlias = "Callable[[OnBatch, int], StreamingQuery]"


def begin_in_spark(spark: SparkSession, scratch: Path, settings: ReaderSettings) -> Begin:
    """Each start has a checkpoint and a folder of batches of its own in `scratch`."""

    def begin(on_batch: OnBatch, number: int) -> StreamingQuery:
        settings.folder.mkdir(exist_ok=True)
        save_settings(settings, scratch / "reader.pickle")
        folder = scratch / f"batches-{number}"
        folder.mkdir()
        batches = BatchChannel(folder)
        spark.dataSource.register(BinlogSource)
        source = spark.readStream.format(FORMAT).option("settings", str(scratch / "reader.pickle"))
        rows = source.option("batches", str(folder)).load()
        return (
            rows.writeStream.foreachBatch(lambda _, __: on_batch(batches.next))
            .options(**QUERY_OPTIONS)
            .option("checkpointLocation", str(scratch / f"checkpoint-{number}"))
            .trigger(processingTime="0 seconds")  # the reader keeps the interval
            .start()
        )

    return begin


class StreamQuery:
    """`apply` is called in Spark's stream thread; its first error ends the query and is `error`."""

    def __init__(self, begin: Begin, apply: Callable[[BinlogBatch], None]) -> None:
        self._begin = begin
        self._apply = apply
        self._query: StreamingQuery | None = None
        self._starts = 0
        self._has_read = False
        self._applying = threading.Lock()
        self._called = threading.Lock()
        self._closing = Ending()
        self._active_at = float("-inf")
        self.error: BaseException | None = None

    def start(self) -> None:
        self._starts += 1
        self._query = self._begin(self._on_batch, self._starts)

    def start_again_if_unread(self) -> None:
        if self._is_unread():
            self.start()

    @property
    def ended(self) -> bool:
        """By itself or by an error, and not to be started again."""
        return self.error is not None or not (self._is_active or self._is_unread())

    def failure(self) -> CdcError | None:
        """Spark's own error."""
        found = self._started.exception()
        return fail(Reason.INTERNAL_ERROR, f"Spark ended the stream: {str(found)[:500]}") if found else None

    def between_batches(self, work: Callable[[], None]) -> None:
        """Does `work` unless a batch is being applied."""
        if self._applying.acquire(blocking=False):
            try:
                work()
            finally:
                self._applying.release()

    def close(self) -> None:
        """Waits for the batch that is being applied: Spark would interrupt it in the middle."""
        self._closing.set()
        with self._called:
            pass
        self._started.stop()

    @property
    def _started(self) -> StreamingQuery:
        assert self._query is not None, "started before"
        return self._query

    @property
    def _is_active(self) -> bool:
        """As of a moment ago. A query whose call of the driver has not returned is active, so a
        stream at rest asks the JVM nothing."""
        if self._called.locked():
            return True
        now = time.monotonic()
        if now - self._active_at >= _ASKED_SECONDS and self._started.isActive:
            self._active_at = now
        return now - self._active_at < _ASKED_SECONDS

    def _is_unread(self) -> bool:
        """Whether the query ended because the machine was too busy to start its source, so that
        nothing was read."""
        if self._has_read or self._starts >= _MOST_STARTS or self._is_active:
            return False
        return _NOT_CONNECTED in str(self._started.exception())

    def _on_batch(self, next_batch: Next) -> None:
        """An error is kept as it is, because Spark turns it into a text."""
        with self._called:
            try:
                self._apply_several(next_batch)
            except Closed:
                return
            except BaseException as e:
                self.error = self.error or e
                raise

    def _apply_several(self, next_batch: Next) -> None:
        until = time.monotonic() + _MICRO_BATCH_SECONDS
        while not self._closing.is_set():
            try:
                batch = next_batch(self._closing)
            except SourceEnded:
                return  # Spark asks it next, and gets the reason
            with self._applying:
                if batch is not None and not self._closing.is_set():
                    self._has_read = True
                    self._apply(batch)
            if time.monotonic() >= until:
                return
