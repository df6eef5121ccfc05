"""Rows of a table in the order of their key, block by block. The table may be memory-mapped: in
memory are its keys, 8 bytes a row, and a block of rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: bytes of rows that are gathered at a time
BLOCK_BYTES = 16 * 2**20

Places = npt.NDArray[np.int64]


def order_of(keys: pa.Table) -> Places:
    """The places of the rows of `keys`, ascending by all columns."""
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names])
    return np.asarray(order.to_numpy()).view(np.int64)


def in_order(rows: pa.Table, order: Places, block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows at the places `order`."""
    if rows.nbytes <= block_bytes:
        yield from rows.combine_chunks().take(pa.array(order)).to_batches()
        return
    batches = rows.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    block = max(1, len(order) * block_bytes // rows.nbytes)
    for start in range(0, len(order), block):
        yield from _taken(batches, ends, order[start : start + block])


def _taken(batches: list[pa.RecordBatch], ends: Places, places: Places) -> list[pa.RecordBatch]:
    """Batch by batch: `take` of a table would join all its batches first."""
    batch_of = np.searchsorted(ends, places, "right")
    grouped = np.argsort(batch_of, kind="stable")
    numbers, starts = np.unique(batch_of[grouped], return_index=True)
    parts = []
    for number, at in zip(numbers, np.split(grouped, starts[1:]), strict=True):
        first = ends[number] - batches[number].num_rows
        parts.append(batches[number].take(pa.array(places[at] - first)))
    if len(parts) == 1:
        return parts
    back = np.empty(len(places), np.int64)
    back[grouped] = np.arange(len(places))
    together: list[pa.RecordBatch] = pa.Table.from_batches(parts).combine_chunks().take(pa.array(back)).to_batches()
    return together
