"""Which of some keys the log changes between two positions: the judge of whether two reads were comparable.

A dump of its own, under a replica id of its own, from a position to where both a place and another position are passed. Nothing is kept but
the digests of the keys that are asked for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.position import LogOffset, Position
from cdcsync_core.table import Table, TableId
from cdcsync_mysql.connection import Source
from cdcsync_spark.logbatch import LogBatch
from cdcsync_spark.logreader import LogReader, ReaderSettings
from cdcsync_spark.verify.digest import Digester
from cdcsync_spark.verify.keys import DigestSet

_HEARTBEAT_SECONDS = 1.0
_BATCH_BYTES = 32 << 20
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Watched:
    """The keys of one table that are looked for."""

    table: Table
    digester: Digester
    keys: DigestSet


@dataclass
class Touched:
    """`keys`: the digests, as bytes, of the watched keys that the log changes; `stop` is what would stop the table there, a DDL."""

    keys: set[bytes]
    stop: CdcError | None = None


@dataclass(frozen=True)
class LogSearch:
    """Searches the log named `log`. `folder` is scratch space; `patience` in seconds."""

    source: Source
    log: str
    replica_id: int
    folder: Path
    patience: float

    def between(
        self, start: Position, place: LogOffset, goals: list[Position], watched: Mapping[TableId, Watched]
    ) -> dict[TableId, Touched]:
        """What changes from `start` until `place` is passed and all that the `goals` have. Raises CdcError."""
        found = {table: Touched(set()) for table in watched}
        if start.reached(place) and all(start.includes(g) for g in goals):
            return found
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = LogReader(self._settings(start, watched))
        reader.start()
        deadline = time.monotonic() + self.patience
        try:
            while True:
                batch = reader.take()
                if batch is not None:
                    _look(batch, watched, found)
                    if batch.end.reached(place) and all(batch.end.includes(g) for g in goals):
                        return found
                elif time.monotonic() > deadline:
                    raise self._too_long(start, place)
                else:
                    time.sleep(_POLL_SECONDS)
        finally:
            reader.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _settings(self, start: Position, watched: Mapping[TableId, Watched]) -> ReaderSettings:
        return ReaderSettings(
            source=self.source,
            log=self.log,
            replica_id=self.replica_id,
            tables={table: w.table for table, w in watched.items()},
            start=start,
            ahead={},
            heartbeat_seconds=_HEARTBEAT_SECONDS,
            max_batch_bytes=_BATCH_BYTES,
            folder=self.folder,
        )

    def _too_long(self, start: Position, place: LogOffset) -> CdcError:
        return fail(
            Reason.SOURCE_UNREACHABLE,
            f"the log from {start} to {place} was not read within {self.patience:.0f} s",
            needed="a stream that keeps up with the source",
            remedy="verify again when the lag is small",
        )


def _look(batch: LogBatch, watched: Mapping[TableId, Watched], found: dict[TableId, Touched]) -> None:
    if batch.fatal is not None:
        raise batch.fatal
    by_name = {str(table): table for table in watched}
    for part in batch.tables:
        table = by_name[part.table]
        found[table].stop = found[table].stop or part.stop
        if part.file:
            with pa.memory_map(part.file) as source:
                for changes in pa.ipc.open_file(source).read_all().to_batches():
                    digests = watched[table].digester.of(changes)
                    found[table].keys |= {digests[i].tobytes() for i in watched[table].keys.where(digests)}
            Path(part.file).unlink()
    if batch.transactions:
        Path(batch.transactions).unlink()
