"""Rows as JSON text, value by value what Python's own library reads back."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.sinks.formats.json_text import Style, json_rows

EXACT = Style()
FLINK = Style(decimals_as_text=False, separator=" ")
DAYS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "escapes": (pa.string(), st.text([chr(i) for i in range(48)] + ["\\", "n", "u", "é", "😀", "\x7f", "\u2028"])),
    "decimal": (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18)),
    "unsigned": (pa.decimal128(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "float": (pa.float32(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    "flag": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), DAYS.map(lambda d: d.date())),
    "datetime": (pa.timestamp("us"), DAYS),
    "instant": (pa.timestamp("us", "UTC"), DAYS.map(lambda d: d.replace(tzinfo=dt.UTC))),
    "bytes": (pa.binary(), st.binary()),
    "vector": (pa.list_(pa.float32()), st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32))),
}


def read_back(text: str, kind: pa.DataType) -> Any:
    """A value as an independent reader of the exact style understands it."""
    value = json.loads(text)
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_list(kind):
        return [float(v) for v in value]
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    return value


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_read_back_equal(name: str) -> None:
    """Also of a slice in the middle of an array, and beside a column of text with NULLs elsewhere;
    floats of 32 bits as the nearest such number."""
    kind, values = VALUES[name]

    @settings(max_examples=40)
    @given(st.lists(st.none() | values, min_size=2))
    def check(wanted: list[Any]) -> None:
        column = pa.array(wanted, kind)
        rows = pa.table({"a": column, "b": ["x" if i % 3 else None for i in range(len(wanted))], "c": column})
        texts = json_rows(rows, EXACT).to_pylist()
        values = [re.fullmatch(r'\{"a":(.*),"b":("x"|null),"c":\1\}', text, re.DOTALL) for text in texts]
        assert pa.array([read_back(v[1], kind) for v in values if v], kind).equals(column)
        assert [v[2] for v in values if v] == ['"x"' if i % 3 else "null" for i in range(len(wanted))]
        assert json_rows(rows.slice(1), EXACT).to_pylist() == texts[1:]

    check()


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(), min_size=1, max_size=4)
)
def test_objects_have_the_columns_in_their_order(row: dict[str, str]) -> None:
    row = {name: value.encode("utf-8", "replace").decode() for name, value in row.items()}
    (text,) = json_rows(pa.table({name: [value] for name, value in row.items()}), EXACT).to_pylist()
    assert list(json.loads(text).items()) == list(row.items())


def test_the_style_of_flink_has_plain_decimals_and_a_space_before_the_time() -> None:
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)
    rows = pa.table(
        {
            "small": pa.array([Decimal("0.000000001")], pa.decimal128(20, 9)),
            "at": pa.array([moment], pa.timestamp("us")),
            "instant": pa.array([moment], pa.timestamp("us", "UTC")),
        }
    )
    assert json_rows(rows, FLINK).to_pylist() == [
        '{"small":0.000000001,"at":"2024-02-29 23:59:59.123456","instant":"2024-02-29 23:59:59.123456Z"}'
    ]


def test_no_rows_are_no_texts() -> None:
    assert json_rows(pa.table({"a": pa.array([], pa.string())}), EXACT).to_pylist() == []


def test_a_type_without_a_form_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError, match="no JSON form of struct"):
        json_rows(pa.table({"a": [{"a": 1}]}), EXACT)
