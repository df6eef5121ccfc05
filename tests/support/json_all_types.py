"""A table of every type that JSON has a form for."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.logical_type import DECIMAL, LogicalType
from cdcsync_spark.rows.arrow_types import in_arrow
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events

LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
#: BIT(10), a point with its SRID, an empty and a long value
BINARIES = [b"\x02\xff", struct.pack("<IBI2d", 4326, 1, 1, -180.0, 90.0), b"", bytes(range(256))]
TEXTS = ["", 'a"b\\c/d', "".join(map(chr, range(32))), "\x7f\u2028é😀\U0010ffff", "NULL", "-838:59:59.000000", " x "]
EXTREMES: dict[LogicalType, list[Any]] = {
    LogicalType("bool"): [True, False],
    **{LogicalType(f"int{n}"): [-(2 ** (n - 1)), 2 ** (n - 1) - 1, 0] for n in (8, 16, 32, 64)},
    LogicalType("float"): [16777216.0, -3.4028234663852886e38, 1.401298464324817e-45, -0.0, 0.10000000149011612],
    LogicalType("double"): [1.7976931348623157e308, 5e-324, -0.0, 0.1, 9007199254740993.0],
    LogicalType("string"): TEXTS,
    LogicalType("binary"): BINARIES,
    LogicalType("date32[day]"): [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    LogicalType("timestamp[us]"): [dt.datetime(1, 1, 1), LAST, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    LogicalType("timestamp[us, tz=UTC]"): [
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        LAST.replace(tzinfo=dt.UTC),
    ],
    LogicalType("list<item: float>"): [[], [0.5, -1.0000000116860974e-07, 3.4028234663852886e38]],
    LogicalType(DECIMAL, 20, 0): [Decimal(2**64 - 1), Decimal(2**63), Decimal(0)],
    LogicalType(DECIMAL, 38, 30): [Decimal("99999999.999999999999999999999999999999"), Decimal("-1E-30")],
    LogicalType(DECIMAL, 10, 2): [Decimal("1.10"), Decimal("-0.01"), Decimal("10000000.00")],
}
COUNT = max(map(len, EXTREMES.values())) + 1
#: a column a type, each with its extremes and at the end NULLs
COLUMNS = {str(t): [*values, *[None] * (COUNT - len(values))] for t, values in EXTREMES.items()}
TYPES = {str(t): t for t in EXTREMES}


def all_types() -> Events:
    """An insert for each row of `COLUMNS`."""
    schema = changes_schema(
        pa.schema([pa.field("id", pa.int32()), *[pa.field(n, in_arrow(t)) for n, t in TYPES.items()]])
    )
    kinds, transactions = [ChangeKind.INSERT] * COUNT, [0] * COUNT
    ordered = [kinds, transactions, list(range(COUNT)), *COLUMNS.values()]
    images = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(ordered, schema, strict=True)], schema=schema)
    gtid = Gtid.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:5")
    return Events(images, [TransactionId(LogOffset("binlog.000001", 200), gtid)], [1.5], first=1)
