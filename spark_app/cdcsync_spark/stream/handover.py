"""How the source's process hands batches to the driver: one file each, by number, in a folder of
the query.

Why it exists: if Spark carried the descriptions, each micro-batch would run a job to collect one
row, which costs more than half of the JVM's time in a stream that gets a few changes a second.

Why it is right: Spark asks the source for a batch, which is in the folder by then, calls the driver
for it, and asks for the next one when the driver has returned. So what the driver finds are the
batches of its micro-batch. Numbers follow each other; a gap is an error, never passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.errors import Reason, fail
from cdcsync_spark.binlog.batch import BinlogBatch


@dataclass
class Handover:
    """Of one query; each side has its own."""

    folder: Path
    #: how many were put, or taken
    count: int = 0

    def put(self, batch: BinlogBatch) -> int:
        """Its number, from 1."""
        self.count += 1
        beside = self.folder / f"{self.count}.new"
        beside.write_text(batch.to_json(), encoding="utf-8")
        beside.rename(self._file(self.count))
        return self.count

    def take(self) -> list[BinlogBatch]:
        """Those that are there, in their order. Raises InternalError where one is missing."""
        found = sorted(int(path.stem) for path in self.folder.glob("*.json"))
        if found != list(range(self.count + 1, self.count + 1 + len(found))):
            raise fail(
                Reason.INTERNAL_ERROR,
                f"the binlog's source handed over the batches {found} after {self.count} others",
                needed="each batch once, in order",
                remedy="none: the next run goes on from the targets' positions",
            )
        batches = []
        for number in found:
            batches.append(BinlogBatch.from_json(self._file(number).read_text(encoding="utf-8")))
            self._file(number).unlink()
        self.count += len(batches)
        return batches

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.json"
