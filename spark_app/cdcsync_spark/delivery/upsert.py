"""The fold of a changelog to the last image per key: what a sink that upserts is given.

A changed key is a delete of the old key and an insert of the new one, which the before image gives:
folding needs no knowledge of the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.wire.columns.change import KIND, TRANSACTION, ChangeKind


class Upserts(NamedTuple):
    """`upserts`: the last images, one row per key, with the captured columns; `deletes`: the keys
    that end deleted, with the key columns. No key is in both."""

    upserts: pa.Table
    deletes: pa.Table

    @property
    def num_rows(self) -> int:
        return int(self.upserts.num_rows + self.deletes.num_rows)


def fold(changes: Changelog, key: Sequence[str]) -> Upserts:
    """Per key (compared byte for byte) the last change in stream order wins.

    `key` are the columns that tell rows apart. Raises TypeUnsupported for a
    NULL in the key.
    """
    images = changes.images
    refuse_null_keys(images, key)
    ordered = images.select(list(key)).append_column("_i", pa.array(np.arange(images.num_rows, dtype=np.int64)))
    last = np.zeros(images.num_rows, dtype=bool)
    last[ordered.group_by(list(key)).aggregate([("_i", "max")])["_i_max"].to_numpy()] = True
    # A filter goes piece by piece; `take` would join them, and one array holds no more than 2 GiB
    # of text.
    newest = images.filter(pa.array(last))
    removed = pc.is_in(newest[KIND], pa.array([ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE], pa.int8()))
    upserts = newest.filter(pc.invert(removed)).drop_columns([KIND, TRANSACTION])
    return Upserts(upserts, newest.filter(removed).select(list(key)))


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
