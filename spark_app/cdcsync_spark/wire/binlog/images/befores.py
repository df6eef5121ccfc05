"""Which before images of updates are needed where changes are folded by key.

Why it is right: per key the last image wins (rule R2), and nothing comes between an update's before
image and its after image. Where both have the same key the after image follows for that key, so the
before image is never the last one. Only where the key changes it says which key is gone. What is
compared are the bytes of the binlog, under one TABLE_MAP: equal bytes are equal values, whatever
the type; should different bytes ever be the same value, an image stays that is folded away later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow.compute as pc

from cdcsync_spark.wire.binlog.images.image import Layout, Raw
from cdcsync_spark.wire.binlog.images.lockstep import columns
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Lanes

_WORDS = (1, 2, 4, 8)


def needed(lanes: Lanes, starts: Cursors, befores: Flags, layouts: Sequence[Layout], key: Collection[int]) -> Flags:
    """Which of the rows that begin at `starts` are needed; `befores` are before images, each with
    its after image behind it, and `key` the places of the key's columns."""
    old = np.flatnonzero(befores)
    same = np.ones(len(old), bool)
    pairs = zip(columns(lanes, starts[old], layouts), columns(lanes, starts[old + 1], layouts), strict=True)
    for i, (before, after) in zip(range(max(key) + 1), pairs, strict=False):
        if i in key:
            same &= _equal(before, after)
    return _without(old[same], len(starts))


def needed_values(befores: Flags, key: Sequence[Raw]) -> Flags:
    """As `needed`, of the raw values of the key's columns."""
    old = np.flatnonzero(befores)
    same = [i for i in old if all(values[i] == values[i + 1] for values in key)]
    return _without(np.array(same, np.int64), len(befores))


def _without(rows: Cursors, count: int) -> Flags:
    stays = np.ones(count, bool)
    stays[rows] = False
    return stays


def _equal(a: Cells, b: Cells) -> Flags:
    """Both NULL, or the same bytes."""
    same = _same_numbers(a, b) if a.lengths is None else _same_strings(a, b)
    if a.valid is None and b.valid is None:
        return same
    here, there = _is_value(a), _is_value(b)
    return np.where(here & there, same, here == there)


def _is_value(cells: Cells) -> Flags:
    return np.ones(len(cells.at), bool) if cells.valid is None else cells.valid


def _same_numbers(a: Cells, b: Cells) -> Flags:
    """Whether numbers of one width are equal; what a NULL has means nothing."""
    one, other = (c.lanes.items(c.at, c.width, c.shift) for c in (a, b))
    if a.width in _WORDS:
        return one.view(f"u{a.width}") == other.view(f"u{a.width}")
    bytewise = one.view(np.uint8) == other.view(np.uint8)
    same: Flags = bytewise.reshape(-1, a.width).all(axis=1)
    return same


def _same_strings(a: Cells, b: Cells) -> Flags:
    one, other = (c.lanes.slices(c.starts, c.sizes) for c in (a, b))
    same: Flags = pc.equal(one, other).to_numpy(zero_copy_only=False)
    return same
