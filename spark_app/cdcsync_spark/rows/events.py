"""Events: the row images of a batch in the order of the binlog, as a sink gets them that keeps
every change.

Why it is right: nothing is folded. An update is its before image and its after image, a changed key
is the same two rows, and images of one transaction stay together in their order. Each image has an
ordinal within its table, which continues the state's counter (`TableState.events`): the commit that
holds n images moves the counter by n, so a replay after a crash counts alike, and the order
survives a change of server, where the names of binlog files begin again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.positions.position import TransactionId
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind


@dataclass(frozen=True)
class Events:
    """`images` (`change.changes_schema`); their `TRANSACTION` counts the rows of `transactions` and
    `committed_at` (seconds since 1970, None where the binlog does not say). The first image has the
    ordinal `first`, each later one the next. `skipped` changes of the first transaction are before
    these."""

    images: pa.Table
    transactions: Sequence[TransactionId]
    committed_at: Sequence[float | None]
    first: int
    skipped: int = 0

    @property
    def num_rows(self) -> int:
        return int(self.images.num_rows)

    def slice(self, begin: int, end: int) -> Events:
        """The images from `begin` up to `end` with their transactions; at least one image."""
        images = self.images.slice(begin, end - begin)
        numbers = images[TRANSACTION]
        first, last = pc.min_max(numbers).as_py().values()
        at = images.column_names.index(TRANSACTION)
        counted = pc.subtract(numbers, pa.scalar(first, numbers.type))
        return replace(
            self,
            images=images.set_column(at, images.schema.field(at), counted),
            transactions=self.transactions[first : last + 1],
            committed_at=self.committed_at[first : last + 1],
            first=self.first + begin,
        )

    def change_numbers(self) -> npt.NDArray[np.int64]:
        """For each image the number of its change among those of its transaction, from 0; the
        images of an update are one change."""
        kinds, numbers = (self.images[name].to_numpy() for name in (KIND, TRANSACTION))
        counted = np.cumsum(kinds != ChangeKind.UPDATE_AFTER)
        begins = np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]
        at = np.maximum.accumulate(np.where(begins, np.arange(len(numbers)), 0))
        return counted - counted[at] + np.where(at == 0, self.skipped, 0)

    def of_transactions(self, values: Sequence[object], kind: pa.DataType) -> pa.ChunkedArray:
        """For each image the one of `values`, a row a transaction, that is its transaction's."""
        strings = pa.array(values, kind)
        return pa.chunked_array([strings.take(part) for part in self.images[TRANSACTION].chunks], kind)
