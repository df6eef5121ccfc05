"""The form of a table's changes in stream order.

A batch of changes is an Arrow table: `KIND` (int8, a `ChangeKind`) and `TRANSACTION` (int32, index
into the batch's list of transactions) before the table's captured columns; rows are in the order of
the binlog.
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

KIND = "_cdc_kind"
TRANSACTION = "_cdc_transaction"


class ChangeKind(IntEnum):
    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


def changes_schema(columns: pa.Schema) -> pa.Schema:
    """The schema of a batch of changes over the captured columns."""
    return pa.schema([pa.field(KIND, pa.int8()), pa.field(TRANSACTION, pa.int32()), *columns])
