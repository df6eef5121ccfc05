"""The reader in a thread of this process: no Spark and no other process. Tests and benchmarks
follow a stream with it, and say what Spark costs."""

from __future__ import annotations

from dataclasses import replace

from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.engine.base import Ending

#: for how long a silent binlog is waited for, and the end of the stream with it
_IDLE_SECONDS = 0.2


class ProcessEngine:
    """A `StreamEngine`."""

    def __init__(self) -> None:
        self._reader: BinlogReader | None = None

    def start(self, settings: ReaderSettings) -> None:
        settings.folder.mkdir(exist_ok=True)
        self._reader = BinlogReader(replace(settings, idle_seconds=min(_IDLE_SECONDS, settings.idle_seconds)))
        self._reader.start()

    def next_batch(self, ending: Ending) -> BinlogBatch | None:
        assert self._reader is not None, "started before"
        return None if ending.is_set() else self._reader.next_batch()

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()
