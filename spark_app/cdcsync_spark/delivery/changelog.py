"""A table's part of a batch as a value: what was changed, by which transactions.

Why it exists: a sink that upserts needs the last image of a key only, one that keeps events needs
all images in order with the transactions that they belong to. Both begin here, and no sink reads
the files of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.positions.position import Position
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, read_transactions
from cdcsync_spark.rows.changes import TRANSACTION


class Changelog(NamedTuple):
    """`images` in the order of the binlog (`change.changes_schema`); their `TRANSACTION` counts the
    rows of `transactions`. `scratch` is a folder for what is made of them and does not fit in
    memory; None where they are few."""

    images: pa.Table
    transactions: Transactions = Transactions()
    scratch: Path | None = None

    def without(self, position: Position) -> Changelog:
        """The changes of transactions that `position` does not cover."""
        covered = np.flatnonzero(self.transactions.covered(position)).astype(np.int32)
        if not len(covered):
            return self
        left_out = pc.is_in(self.images[TRANSACTION], pa.array(covered, pa.int32()))
        return self._replace(images=self.images.filter(pc.invert(left_out)))


@contextmanager
def open_changelog(part: TableBatch, batch: BinlogBatch) -> Iterator[Changelog]:
    """Opens the changes of a part that has rows. The images are in a mapped file, and good inside
    only."""
    with pa.memory_map(part.file) as source:
        images, transactions = pa.ipc.open_file(source).read_all(), read_transactions(batch.transactions)
        yield Changelog(images, transactions, Path(part.file).parent)
