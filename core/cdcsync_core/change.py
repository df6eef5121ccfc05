"""Changes of one table in stream order, and their fold to the last image per key.

A batch of changes is an Arrow table: `KIND` (int8, a `ChangeKind`) and `TRANSACTION` (int32, index
into the batch's list of transactions) before the table's captured columns; rows are in the order of
the log. A changed key is a delete of the old key and an insert of the new one, which the before
image gives for free: folding needs no knowledge of the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import CdcError, Reason, fail

KIND = "_cdc_kind"
TRANSACTION = "_cdc_transaction"


class ChangeKind(IntEnum):
    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


class Folded(NamedTuple):
    """`upserts`: the last images, one row per key, with the captured columns; `deletes`: the keys
    that end deleted, with the key columns. No key is in both."""

    upserts: pa.Table
    deletes: pa.Table


def changes_schema(columns: pa.Schema) -> pa.Schema:
    """The schema of a batch of changes over the captured columns."""
    return pa.schema([pa.field(KIND, pa.int8()), pa.field(TRANSACTION, pa.int32()), *columns])


def fold(changes: pa.Table, key: Sequence[str]) -> Folded:
    """Per key (compared byte for byte) the last change in stream order wins.

    `changes` is as described above, `key` the chunk key's columns. Raises TypeUnsupported for a
    NULL in the key.
    """
    for name in key:
        if changes[name].null_count:
            raise _null_key(name)
    ordered = changes.select(list(key)).append_column("_i", pa.array(np.arange(changes.num_rows, dtype=np.int64)))
    last = np.zeros(changes.num_rows, dtype=bool)
    last[ordered.group_by(list(key)).aggregate([("_i", "max")])["_i_max"].to_numpy()] = True
    # A filter goes piece by piece; `take` would join them, and one array holds no more than 2 GiB
    # of text.
    newest = changes.filter(pa.array(last))
    removed = pc.is_in(newest[KIND], pa.array([ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE], pa.int8()))
    upserts = newest.filter(pc.invert(removed)).drop_columns([KIND, TRANSACTION])
    return Folded(upserts, newest.filter(removed).select(list(key)))


def _null_key(column: str) -> CdcError:
    """It would match no row of the target, and be inserted again at every replay."""
    return fail(
        Reason.TYPE_UNSUPPORTED,
        f"a row whose key column {column} holds a zero or partial date",
        needed="dates of the calendar in the key",
        remedy="correct the row on the source, then read the table again (spec.resnapshot)",
    )
