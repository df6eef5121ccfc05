"""A changelog of few rows, and where it is of."""

from __future__ import annotations

import pyarrow as pa

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.json_records import Origin

SCHEMA = changes_schema(pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.string())]))
ORIGIN = Origin(TableId("shop", "orders"), ("id",), "mysql", 7, "cdc", sent=5000)
INSERT, BEFORE, AFTER, DELETE = ChangeKind
Row = tuple[int, str | None]
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5"
TRANSACTIONS = [
    TransactionId(LogOffset("binlog.000001", 200), Gtid.parse(GTID)),
    TransactionId(LogOffset("binlog.000001", 300)),
]
COMMITTED_AT = [1.500123, None]


def changelog(*images: tuple[int, int, Row]) -> Events:
    columns = [list(c) for c in zip(*((k, t, *row) for k, t, row in images), strict=True)] or [[], [], [], []]
    return Events(pa.table(columns, schema=SCHEMA), TRANSACTIONS, COMMITTED_AT, first=1)


CHANGES = changelog(
    (INSERT, 0, (1, "a")),
    (BEFORE, 0, (1, "a")),
    (AFTER, 0, (1, None)),
    (BEFORE, 1, (1, None)),
    (AFTER, 1, (2, "b")),
    (DELETE, 1, (2, "b")),
)
