"""The keys of one file's rows, in scratch space, for the comparison with keys whose hash is the
same. No knowledge of Delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_spark.sinks.lake.keys.key_codes import same_keys
from cdcsync_spark.sinks.lake.keys.scratch import read_ahead

Indices = npt.NDArray[np.int64]


class _Piece(NamedTuple):
    """Rows of one stored batch: `here` where they are in it, `at` which of those asked for."""

    batch: pa.RecordBatch
    here: Indices
    at: Indices


class StoredKeys:
    """An Arrow file; memory-mapped if the keys are many."""

    def __init__(self, content: pa.Buffer) -> None:
        self.move(content)

    def move(self, content: pa.Buffer) -> None:
        """The same keys, which are elsewhere now."""
        reader = pa.ipc.open_file(content) if content.size else None
        self.content = content
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)] if reader else []
        self._ends = np.cumsum([b.num_rows for b in self._batches])

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.content.size)

    def equal(self, rows: npt.NDArray[np.uint32], keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Whether row `rows[i]` holds key `i` of `keys`."""
        same = np.zeros(len(rows), bool)
        pieces = list(self._pieces(rows))
        for column in range(keys.num_columns if pieces else 0):
            _read_column_ahead([(piece.batch.column(column), piece.here) for piece in pieces])
        for batch, here, at in pieces:
            same[at] = same_keys(batch.take(pa.array(here)), keys.take(pa.array(at)))
        return same

    def _pieces(self, rows: npt.NDArray[np.uint32]) -> Iterator[_Piece]:
        batch_of = np.searchsorted(self._ends, rows, "right")
        for number in np.unique(batch_of):
            at = np.flatnonzero(batch_of == number)
            batch = self._batches[number]
            yield _Piece(batch, rows[at] - (self._ends[number] - batch.num_rows), at)


def _read_column_ahead(parts: Sequence[tuple[pa.Array, Indices]]) -> None:
    """Values of a fixed width; of others first where they begin and end."""
    kind = parts[0][0].type
    varying = pa.types.is_string(kind) or pa.types.is_binary(kind)
    bits, bytes_read = (32, 8) if varying else (kind.bit_width, -(-kind.bit_width // 8))
    read_ahead(np.concatenate([a.buffers()[1].address + rows * bits // 8 for a, rows in parts]), bytes_read)
    if varying:
        starts, sizes = zip(*(_extents(array, rows) for array, rows in parts), strict=True)
        read_ahead(np.concatenate(starts), np.concatenate(sizes))


def _extents(array: pa.Array, rows: Indices) -> tuple[Indices, Indices]:
    """Addresses and bytes of texts."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)
    starts = ends[rows].astype(np.int64)
    return starts + (data.address if data else 0), ends[rows + 1] - starts
