"""Which images are the last of their keys.

The images of one large transaction may be any number. They are divided by the hash of their keys:
all of a key are in one part, and the parts are looked through one by one. What has an entry an
image lies in files whose pages the kernel drops when memory is needed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_spark.binlog.assembly.spool import disk_error
from cdcsync_spark.sinks.lake.keys.key_codes import KeyCodec

Mask = npt.NDArray[np.bool_]
#: images whose keys are in memory together
ROWS_IN_MEMORY = 1_000_000
#: the column with an image's place in stream order, the last of a table of keys
_PLACE = "_cdc_place"


def last_of_keys(keys: pa.Table, scratch: Path | None, rows_in_memory: int = ROWS_IN_MEMORY) -> Mask:
    """Whether each of `keys`, which are in stream order, is the last one of its bytes. Raises
    TransactionTooLarge where the disk is full."""
    parts = -(-keys.num_rows // rows_in_memory)
    if scratch is None or parts < 2:
        last = np.zeros(keys.num_rows, bool)
        _mark(last, _placed(keys, np.arange(keys.num_rows, dtype=np.int64)))
        return last
    part_of = zeros_in_file(scratch, keys.num_rows, np.uint16)
    last = zeros_in_file(scratch, keys.num_rows, np.bool_)
    batches = keys.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    codec = KeyCodec("", tuple(keys.schema.names), (), 0)
    with np.errstate(invalid="ignore"):  # a hash takes any bits of a number
        for end, batch in zip(ends, batches, strict=True):
            part_of[end - batch.num_rows : end] = codec.codes(batch) % np.uint64(min(parts, 2**16))
    for part in range(min(parts, 2**16)):
        _mark(last, _part(batches, ends, part_of, part, rows_in_memory))
    return last


def _part(
    batches: list[pa.RecordBatch], ends: npt.NDArray[np.int64], part_of: npt.NDArray[np.uint16], part: int, rows: int
) -> pa.Table:
    """The keys of a part with their places. A key may come any number of times: of more than twice
    `rows` images only the last of each key stay."""
    placed, count, most = [], 0, 2 * rows
    for end, batch in zip(ends, batches, strict=True):
        first = end - batch.num_rows
        at = np.flatnonzero(part_of[first:end] == part)
        placed.append(_placed(pa.Table.from_batches([batch.take(pa.array(at))]), first + at))
        count += len(at)
        if count > most:
            placed = [_last(pa.concat_tables(placed))]
            count, most = placed[0].num_rows, max(most, 2 * placed[0].num_rows)
    return pa.concat_tables(placed)


def _mark(last: Mask, placed: pa.Table) -> None:
    last[_last(placed)[_PLACE].to_numpy()] = True


def _placed(keys: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    return keys.append_column(_PLACE, pa.array(places))


def _last(placed: pa.Table) -> pa.Table:
    """The last place of each key."""
    names = placed.schema.names[:-1]
    return (
        placed.group_by(names)
        .aggregate([(_PLACE, "max")])
        .select([*names, f"{_PLACE}_max"])
        .rename_columns([*names, _PLACE])
    )


def zeros_in_file(folder: Path, count: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """An array in a file of `folder` that has no name. Raises TransactionTooLarge where the disk is
    full."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, count * np.dtype(kind).itemsize)
            return np.memmap(file, kind, "r+", shape=(count,))
    except OSError as error:
        raise disk_error(error, str(folder)) from error
