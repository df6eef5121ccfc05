"""Every type of a target in every JSON form: the extremes, read back as the manual's page of the
formats tells a reader to, with numbers that are never parsed to a double."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.logical_type import DECIMAL, NAMES, LogicalType
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.rows.arrow_types import in_arrow
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.json_records import FORMS, Origin

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
#: where `changelog-json` differs: decimals are numbers, and a space separates date and time
ROW_OF = {
    "debezium-json": lambda v: v["after"],
    "changelog-json": lambda v: v["data"],
    "canal-json": lambda v: v["data"][0],
    "upsert-json": lambda v: v,
}


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


def _value(read: Any, kind: LogicalType) -> Any:
    """As the page of the formats says; `read` has every number as its digits."""
    if read is None or isinstance(read, bool):
        return read
    name = kind.name
    if name.startswith("int"):
        return int(read)
    if name == DECIMAL:
        return Decimal(read)
    if name in ("float", "double"):
        return _float(read, name)
    if name.startswith("list"):
        return [_float(v, "float") for v in read]
    if name == "binary":
        return base64.b64decode(read, validate=True)
    if name.startswith("date"):
        return dt.date.fromisoformat(read)
    return dt.datetime.fromisoformat(read) if name.startswith("timestamp") else read


def _float(digits: str, name: str) -> float:
    """The nearest number of the type."""
    value = float(digits)
    return float(struct.unpack("<f", struct.pack("<f", value))[0]) if name == "float" else value


def test_the_extremes_are_of_every_type() -> None:
    assert {t.name for t in EXTREMES} == {*NAMES, DECIMAL}


@pytest.mark.parametrize("form", FORMS)
def test_every_type_is_read_back_equal(form: str) -> None:
    origin = Origin(TableId("shop", "orders"), ("id",), "mysql", 7, "cdc", sent=5000)
    records = FORMS[form](all_types(), origin)
    rows = [ROW_OF[form](json.loads(v, parse_int=str, parse_float=str)) for v in records.values.to_pylist()]
    assert len(rows) == COUNT
    assert all(set(row) == {"id", *COLUMNS} for row in rows), "a NULL is a member, never an absent one"
    for name, kind in TYPES.items():
        found = [_value(row[name], kind) for row in rows]
        assert list(map(repr, found)) == list(map(repr, COLUMNS[name])), f"{form}: {name}"


@pytest.mark.parametrize(("form", "quotes"), [(f, f != "changelog-json") for f in FORMS])
def test_decimals_are_texts_but_for_changelog_json(form: str, quotes: bool) -> None:
    origin = Origin(TableId("shop", "orders"), ("id",), "mysql", 7, "cdc", sent=5000)
    value = FORMS[form](all_types(), origin).values[0].as_py().decode()
    wanted = '"decimal128(20, 0)":"18446744073709551615"' if quotes else '"decimal128(20, 0)":18446744073709551615'
    assert wanted in value
