"""The stream's source in Spark: whole batches of the binlog, which the driver receives by a socket.

`spark.readStream.format("cdcsync_log")` with option `settings`, a pickled `ReaderSettings` in a
file of the run's scratch folder. The reader lives in Spark's one long-lived source process; what a
batch is goes to the driver by `engine.handover` (option `batches`, its folder), its rows stay in
files. A run's checkpoint is never read by another run, so an offset only counts.

Spark imports this module in a process that only makes the source, too, and waits for it; so what
reads the binlog is imported where it reads.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import LongType, StructField, StructType

from cdcsync_core.errors import Reason, fail

if TYPE_CHECKING:
    from cdcsync_spark.binlog.batch import BinlogBatch
    from cdcsync_spark.binlog.settings import ReaderSettings
    from cdcsync_spark.engine.handover import BatchSource

FORMAT = "cdcsync_log"
#: not as text, for which the JVM would load its parser of SQL
_SCHEMA = StructType([StructField("batch", LongType())])


class BinlogSource(DataSource):
    """One column `batch`, the number of batches so far."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return _SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return BatchStreamReader(str(self.options["settings"]), str(self.options["batches"]))


class BatchStreamReader(SimpleDataSourceStreamReader):
    def __init__(self, settings: str, batches: str) -> None:
        self._settings, self._batches = settings, batches
        self._source: BatchSource | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"v": 1, "batch": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        number = self._running().read()
        if number == start["batch"]:
            return iter([]), start
        return iter([(number,)]), {"v": 1, "batch": number}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        if start == end:
            return iter([])  # Spark begins with an empty batch where there is nothing yet
        raise fail(
            Reason.INTERNAL_ERROR,
            f"Spark asks for the batches {start} to {end} of an earlier run",
            needed="a fresh checkpoint for every run",
            remedy="remove the run's scratch folder",
        )

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to keep: the targets know what they have."""

    def _running(self) -> BatchSource:
        if self._source is None:
            from cdcsync_spark.binlog.reader import BinlogReader
            from cdcsync_spark.engine.collector import QuietCollector
            from cdcsync_spark.engine.handover import BatchSource

            collector, reader = QuietCollector(), BinlogReader(load_settings(self._settings))

            def next_batch() -> BinlogBatch | None:
                batch = reader.next_batch()
                collector.between_batches()
                return batch

            self._source = BatchSource(Path(self._batches), next_batch)
            reader.start()
        return self._source


def save_settings(settings: ReaderSettings, path: Path) -> None:
    path.write_bytes(pickle.dumps(settings))


def load_settings(path: str) -> ReaderSettings:
    settings: ReaderSettings = pickle.loads(Path(path).read_bytes())  # noqa: S301 (this run's own file)
    return settings
