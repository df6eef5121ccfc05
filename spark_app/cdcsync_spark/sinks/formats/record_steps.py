"""Which records a changelog is, whatever their form: their order, their operations, their images.

Why it is right: order holds per key only. So an update that changes the key is a delete of the old
key and a create of the new one, each of its own image; everything else is one record a change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind
from cdcsync_spark.sinks.formats.json_text import single

_BEFORE, _AFTER = ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER

Indices = npt.NDArray[np.int64]

CREATE, UPDATE, DELETE = range(3)


class Steps(NamedTuple):
    """A record each: what it is (`op`), whether it is a tombstone, which image its key is of, and
    its images before and after, NULL where it has none."""

    op: pa.Array
    tombstone: pa.Array
    image: pa.Array
    before: pa.Array
    after: pa.Array


def record_steps(keys: pa.Array, kinds: Indices, *, tombstones: bool) -> Steps:
    """One record a change, two of an update that changes the key, and tombstones behind deletes."""
    moved = moved_before(keys, kinds)
    deletes = (kinds == ChangeKind.DELETE) | moved
    updates = (kinds == _AFTER) & ~np.concatenate([[False], moved[:-1]])
    creates = ~deletes & ~updates & (kinds != _BEFORE)
    counts = np.where(deletes, 1 + tombstones, creates | updates)
    image = np.repeat(np.arange(len(kinds)), counts)
    op = np.repeat(np.select([deletes, updates], [DELETE, UPDATE], CREATE), counts)
    tombstone = np.concatenate([[False], image[1:] == image[:-1]]) if len(image) else np.zeros(0, bool)
    before = pa.array(np.where(op == UPDATE, image - 1, image), mask=op == CREATE)
    return Steps(pa.array(op), pa.array(tombstone), pa.array(image), before, pa.array(image, mask=op == DELETE))


def moved_before(keys: pa.Array, kinds: Indices) -> npt.NDArray[np.bool_]:
    """The before images whose update changes the key; the after image is the next one."""
    at = np.flatnonzero(kinds == _BEFORE)
    moved = np.zeros(len(kinds), bool)
    moved[at] = pc.not_equal(keys.take(pa.array(at)), keys.take(pa.array(at + 1))).to_numpy(zero_copy_only=False)
    return moved


def kinds_of(images: pa.Table) -> Indices:
    return single(images[KIND]).to_numpy(zero_copy_only=False).astype(np.int64)


def columns_of(images: pa.Table) -> pa.Table:
    return images.drop_columns([KIND, TRANSACTION])


def microseconds(seconds: float | None) -> int:
    """Zero where the binlog does not say when. A float has them exactly until the year 2112."""
    return round((seconds or 0) * 1_000_000)
