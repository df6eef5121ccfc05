"""The fold of a changelog to the last image per key: what a sink that upserts is given.

A changed key is a delete of the old key and an insert of the new one, which the before image gives:
folding needs no knowledge of the operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.key_lives import key_lives
from cdcsync_spark.delivery.last_images import ROWS_IN_MEMORY, Mask, last_of_keys
from cdcsync_spark.delivery.mapped import mapped
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind

#: of a batch's images, up to which what is kept of them is in memory
_IN_MEMORY_BYTES = 64 << 20


class Upserts(NamedTuple):
    """`upserts`: the last images, one row per key, with the captured columns; `deletes`: the keys
    that end deleted, with the key columns. No key is in both. `new` as in
    `sinks.contract.changes.Upsert`."""

    upserts: pa.Table
    deletes: pa.Table
    new: Mask | None = None

    @property
    def num_rows(self) -> int:
        return int(self.upserts.num_rows + self.deletes.num_rows)


def fold(
    changes: Changelog,
    key: Sequence[str],
    *,
    declared: Capture | None = None,
    in_memory_bytes: int = _IN_MEMORY_BYTES,
    rows_in_memory: int = ROWS_IN_MEMORY,
) -> Upserts:
    """Per key (compared byte for byte) the last change in stream order wins.

    `key` are the columns that identify a row; `declared` is the table where they are declared, and
    all before images are there. Of images of more than `in_memory_bytes` what is
    kept is in a file, and the keys of `rows_in_memory` are in memory at a time. Raises
    TypeUnsupported for a NULL in the key, KeyNotUnique, TransactionTooLarge where the disk is full.
    """
    images = changes.images
    refuse_null_keys(images, key)
    scratch = changes.scratch if images.nbytes > in_memory_bytes else None
    keys, given = images.select(list(key)), None
    if declared is None:
        last = last_of_keys(keys, scratch, rows_in_memory)
    else:
        last, given = key_lives(declared, keys, ~_removes(images[KIND]), scratch, rows_in_memory)
    updated, deleted = _ends(images, last)
    upserts = _filtered(images.drop_columns([KIND, TRANSACTION]), updated, scratch)
    new = None if given is None else np.concatenate([given[_mask(updated)], given[_mask(deleted)]])
    return Upserts(upserts, _filtered(keys, deleted, scratch), new)


def _mask(values: pa.BooleanArray) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _removes(kinds: pa.Array | pa.ChunkedArray) -> Mask:
    """Whether each image leaves no row."""
    return np.isin(kinds.to_numpy(), [ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE])


def _ends(images: pa.Table, last: Mask) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Masks of the last images that leave a row, and of those that leave none: a bit an image."""
    updated, deleted, first = [], [], 0
    for kinds in images[KIND].chunks:
        removes = _removes(kinds)
        ends = np.asarray(last[first : first + len(kinds)])
        updated.append(pa.array(ends & ~removes))
        deleted.append(pa.array(ends & removes))
        first += len(kinds)
    none = pa.array([], pa.bool_())
    return pa.concat_arrays([none, *updated]), pa.concat_arrays([none, *deleted])


def _filtered(rows: pa.Table, mask: pa.BooleanArray, scratch: Path | None) -> pa.Table:
    """The rows of one transaction may be more than fit in memory: they stay in their mapped file
    where all are wanted, else many go to one in `scratch`. A filter goes piece by piece; `take`
    would join them, and one array holds no more than 2 GiB of text."""
    if mask.true_count == len(mask):
        return rows
    if not mask.true_count:
        return rows.slice(0, 0)
    return rows.filter(mask) if scratch is None else mapped(scratch, rows.schema, _filtered_batches(rows, mask))


def _filtered_batches(rows: pa.Table, mask: pa.BooleanArray) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in rows.to_batches():
        yield batch.filter(mask.slice(first, batch.num_rows))
        first += batch.num_rows


def refuse_null_keys(images: pa.Table, key: Sequence[str]) -> None:
    """Raises TypeUnsupported."""
    for name in key:
        if images[name].null_count:
            raise _null_key(name)


def _null_key(column: str) -> CdcError:
    """It would match no row of the target, and be inserted again at every replay."""
    return fail(
        Reason.TYPE_UNSUPPORTED,
        f"a row whose key column {column} holds a zero or partial date",
        needed="dates of the calendar in the key",
        remedy=f"correct the row on the source, then {RESNAPSHOT}",
    )
