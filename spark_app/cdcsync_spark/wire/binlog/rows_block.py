"""Rows events of one TABLE_MAP as columns: what the decoders read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent, TableMap


class RowsBlock(NamedTuple):
    """Events in their order: `operations`, `sizes` in bytes of their images, and the `transactions`
    that they are of have an item for each; `images` are those of all events, in any pieces."""

    map: TableMap
    operations: npt.NDArray[np.int8]
    sizes: npt.NDArray[np.int64]
    transactions: npt.NDArray[np.int32]
    images: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The size of the images, in bytes."""
        return int(self.sizes.sum())

    def events(self) -> Iterator[RowsEvent]:
        """One by one, without their size in the binlog."""
        joined, at = b"".join(self.images), 0
        for operation, size in zip(self.operations.tolist(), self.sizes.tolist(), strict=True):
            body = joined[at : at + size]
            yield RowsEvent(self.map.table, self.map, Operation(operation), body, size)
            at += size


def blocks_of(events: Sequence[RowsEvent], transactions: Sequence[int]) -> Iterator[RowsBlock]:
    """Events without a defect; those of one TABLE_MAP that follow one another in one block."""
    for _, group in groupby(range(len(events)), lambda i: id(events[i].map)):
        run = list(group)
        yield RowsBlock(
            events[run[0]].map,
            np.array([events[i].operation for i in run], np.int8),
            np.array([len(events[i].body) for i in run], np.int64),
            np.array([transactions[i] for i in run], np.int32),
            tuple(events[i].body for i in run),
        )


def joined(blocks: Sequence[RowsBlock]) -> Iterator[RowsBlock]:
    """The same events, with those of one TABLE_MAP that follow one another in one block."""
    for _, group in groupby(blocks, lambda block: id(block.map)):
        run = list(group)
        yield run[0] if len(run) == 1 else _join(run)


def _join(run: Sequence[RowsBlock]) -> RowsBlock:
    return RowsBlock(
        run[0].map,
        np.concatenate([block.operations for block in run]),
        np.concatenate([block.sizes for block in run]),
        np.concatenate([block.transactions for block in run]),
        tuple(piece for block in run for piece in block.images),
    )
