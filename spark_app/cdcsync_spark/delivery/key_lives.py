"""Whether changes keep a declared key unique, row by row.

A key lives from the image that gives it to a row until the one that takes it away, so its images
alternate. Where two follow each other that both give it, or both take it, two rows have it at once,
and the fold to the last image would lose one of them. What the first image of a key says of the
target is the sink's to check: a key that is given first must not be there.

Images of a key that follow each other without a break are one *life*: the first and the last of
them say all. So lives are joined piece by piece, and memory is that of the keys of one part (see
`last_images`).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.declared_key import inserted_twice, removed_twice
from cdcsync_spark.delivery.last_images import ROWS_IN_MEMORY, Mask, zeros_in_file
from cdcsync_spark.sinks.lake.keys.key_codes import KeyCodec

#: the place of a life's last image; whether its first, and its last image gives the key
_PLACE, _FIRST, _LAST = "_cdc_place", "_cdc_first", "_cdc_last"
_FACTS = (_PLACE, _FIRST, _LAST)
_MOST_PARTS = 2**16


class KeyLives(NamedTuple):
    """Two facts of images in stream order: whether each is the `last` one of its key, and, at
    these, whether the key was `given` by its first one."""

    last: Mask
    given: Mask


def key_lives(
    table: Capture, keys: pa.Table, gives: Mask, scratch: Path | None, rows_in_memory: int = ROWS_IN_MEMORY
) -> KeyLives:
    """`keys` are those of the images, in stream order; `gives` is whether each leaves a row.
    Raises KeyNotUnique, and TransactionTooLarge where the disk is full."""
    parts = min(-(-keys.num_rows // rows_in_memory), _MOST_PARTS)
    if scratch is None or parts < 2:
        lives = KeyLives(np.zeros(keys.num_rows, bool), np.zeros(keys.num_rows, bool))
        _mark(lives, _joined(table, _lives(keys, np.arange(keys.num_rows), gives)))
        return lives
    lives = KeyLives(*(zeros_in_file(scratch, keys.num_rows, np.bool_) for _ in KeyLives._fields))
    batches = keys.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    part_of = zeros_in_file(scratch, keys.num_rows, np.uint16)
    codec = KeyCodec("", table.key, (), 0)
    for end, batch in zip(ends, batches, strict=True):
        part_of[end - batch.num_rows : end] = codec.codes(batch) % np.uint64(parts)
    for part in range(parts):
        _mark(lives, _part(table, batches, ends, part_of == part, gives, rows_in_memory))
    return lives


def _part(
    table: Capture, batches: list[pa.RecordBatch], ends: npt.NDArray[np.int64], of_part: Mask, gives: Mask, rows: int
) -> pa.Table:
    """The lives of a part's keys. A key may have any number of images: of more than twice `rows`
    they are joined."""
    waiting: list[pa.Table] = []
    count, most = 0, 2 * rows
    for end, batch in zip(ends, batches, strict=True):
        first = end - batch.num_rows
        at = np.flatnonzero(of_part[first:end])
        waiting.append(_lives(pa.Table.from_batches([batch.take(pa.array(at))]), first + at, gives[first + at]))
        count += len(at)
        if count > most:
            waiting = [_joined(table, pa.concat_tables(waiting))]
            count = waiting[0].num_rows
            most = max(most, 2 * count)
    return _joined(table, pa.concat_tables(waiting))


def _lives(keys: pa.Table, places: npt.NDArray[np.int64], gives: Mask) -> pa.Table:
    """Each image as a life of its own."""
    given = pa.array(gives.astype(np.uint8))
    for name, values in zip(_FACTS, (pa.array(places), given, given), strict=True):
        keys = keys.append_column(name, values)
    return keys


def _joined(table: Capture, lives: pa.Table) -> pa.Table:
    """One life a key. Raises KeyNotUnique where one does not go on from the one before."""
    names = list(table.key)
    grouped = lives.group_by(names, use_threads=False).aggregate([(name, "list") for name in _FACTS])
    listed = [grouped[f"{name}_list"].combine_chunks() for name in _FACTS]
    sizes = listed[0].value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    place, first, last = (column.flatten().to_numpy(zero_copy_only=False) for column in listed)
    key = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((place, key))
    place, first, last = place[order], first[order], last[order]
    broken = np.flatnonzero((key[1:] == key[:-1]) & (first[1:] == last[:-1]))
    if len(broken):
        at = broken[np.argmin(place[1:][broken])]
        values = [grouped[name][int(key[at])].as_py() for name in names]
        raise (inserted_twice if last[at] else removed_twice)(table, values)
    ends = np.cumsum(sizes)
    joined = grouped.select(names)
    for name, values in zip(_FACTS, (place[ends - 1], first[ends - sizes], last[ends - 1]), strict=True):
        joined = joined.append_column(name, pa.array(values))
    return joined


def _mark(lives: KeyLives, joined: pa.Table) -> None:
    places = joined[_PLACE].to_numpy()
    lives.last[places] = True
    lives.given[places] = joined[_FIRST].to_numpy() > 0
