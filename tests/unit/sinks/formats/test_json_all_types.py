"""Every type of a target in every JSON form: the extremes, read back as the manual's page of the
formats tells a reader to, with numbers that are never parsed to a double."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from cdcsync_core.tables.logical_type import DECIMAL, NAMES, LogicalType
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.formats.json_records import FORMS, Origin
from support.json_all_types import COLUMNS, COUNT, EXTREMES, TYPES, all_types

#: where `changelog-json` differs: decimals are numbers, and a space separates date and time
ROW_OF = {
    "debezium-json": lambda v: v["after"],
    "changelog-json": lambda v: v["data"],
    "canal-json": lambda v: v["data"][0],
    "upsert-json": lambda v: v,
}


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
