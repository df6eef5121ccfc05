"""Takes batches from an engine and applies them, in a thread of its own: the driver reports while a
commit takes its time.

Why it is right: the thread ends between two batches, never within one, and a batch that comes when
it is to end is not applied. What is not applied is reread by the next run (R5).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.engine.base import Ending, StreamEngine
from cdcsync_spark.sinks.contract.writer import Closed


class BatchLoop:
    """`error` is the first one of `apply`, `failure` the engine's; either ends the loop."""

    def __init__(self, engine: StreamEngine, apply: Callable[[BinlogBatch], None]) -> None:
        self._engine = engine
        self._apply = apply
        self._closing = Ending()
        self._applying = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stream-batches", daemon=True)
        self.error: BaseException | None = None
        self.failure: BaseException | None = None

    def start(self, settings: ReaderSettings) -> None:
        self._engine.start(settings)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the thread has ended, by itself or by an error."""
        return not self._thread.is_alive()

    def between_batches(self, work: Callable[[], None]) -> None:
        """Does `work` unless a batch is being applied."""
        if self._applying.acquire(blocking=False):
            try:
                work()
            finally:
                self._applying.release()

    def close(self) -> None:
        """Waits for the batch that is being applied, and stops the engine."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._engine.stop()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                batch = self._engine.next_batch(self._closing)
            except BaseException as e:  # noqa: BLE001 (raised again by the run)
                self.failure = e
                return
            if batch is not None and not self._applied(batch):
                return

    def _applied(self, batch: BinlogBatch) -> bool:
        with self._applying:
            if self._closing.is_set():
                return False
            try:
                self._apply(batch)
            except Closed:  # the run ends
                return False
            except BaseException as e:  # noqa: BLE001 (raised again by the run)
                self.error = e
                return False
        return True
