"""Statistics may be wide, never narrow: a bound that is too narrow loses a row or doubles it."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_spark.sinks.delta.table.statistics import statistics as delta_statistics
from cdcsync_spark.sinks.lake.files.bounds import INDEXED_COLUMNS, BoundsOfFile
from cdcsync_spark.sinks.lake.files.staging import DataFile


def statistics(values: list[Any], kind: pa.DataType) -> dict[str, Any]:
    return json.loads(delta_statistics(file_of(values, kind)), parse_float=Decimal)


def file_of(values: list[Any], kind: pa.DataType) -> DataFile:
    gathered = BoundsOfFile(pa.schema([("k", kind)]), ("k",))
    for value in values:
        gathered.add(pa.table({"k": pa.array([value], kind)}))
    return DataFile("f", 1, len(values), gathered.bounds())


def bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    found = statistics(values, kind)
    return found["minValues"].get("k"), found["maxValues"].get("k")


US, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        ([3, -1, 2], pa.int64(), -1, 3),
        ([-(2**63), 2**63 - 1], pa.int64(), -(2**63), 2**63 - 1),
        # 00:00:00.000001 and .001999: down to the millisecond, and up
        (
            [dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1999)],
            US,
            "2024-01-01T00:00:00.000",
            "2024-01-01T00:00:00.002",
        ),
        ([dt.datetime(2024, 1, 1, 0, 0, 0, 1000)], UTC, "2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.001Z"),
        # before 1970 the microseconds are negative: -1 lies in millisecond -1, not 0
        ([dt.datetime(1969, 12, 31, 23, 59, 59, 999999)], US, "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"),
        # 9999-12-31T23:59:59.999999 rounded up would be the year 10000
        ([dt.datetime.max], US, None, None),
        ([dt.date(1, 1, 1), dt.date(9999, 12, 31)], pa.date32(), "0001-01-01", "9999-12-31"),
        (["b", "a", ""], pa.string(), "", "b"),
        (["x" * 33], pa.string(), "x" * 32, "x" * 31 + "y"),
        # U+D7FF + 1 is a surrogate: the next text is U+E000
        (["\ud7ff" * 33], pa.string(), "\ud7ff" * 32, "\ud7ff" * 31 + "\ue000"),
        # nothing is greater than the last code point
        (["\U0010ffff" * 33], pa.string(), None, None),
        ([Decimal("0.10"), Decimal("12345678.91")], pa.decimal128(10, 2), Decimal("0.10"), Decimal("12345678.91")),
        # 2^64-1 = 18446744073709551615: 14 digits and one more unit of the last outwards
        ([Decimal(2**64 - 1)], pa.decimal128(20, 0), 18446744073708000000, 18446744073711000000),
        ([Decimal(2**53)], pa.decimal128(20, 0), 2**53, 2**53),
        ([Decimal(-(2**63))], pa.decimal128(20, 0), -9223372036854900000, -9223372036854600000),
        ([True, False], pa.bool_(), None, None),
        ([b"a"], pa.binary(), None, None),
        ([0.5, float("nan")], pa.float64(), None, None),
        ([[1.0]], pa.list_(pa.float32()), None, None),
        ([None, None], pa.int64(), None, None),
    ],
)
def test_bounds(values: list[Any], kind: pa.DataType, low: Any, high: Any) -> None:
    assert bounds(values, kind) == (low, high)


def test_rows_and_nulls_are_counted() -> None:
    found = statistics([1, None, 3, None], pa.int32())
    assert (found["numRecords"], found["nullCount"], found["minValues"]) == (4, {"k": 2}, {"k": 1})


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**33), max_value=10**33), min_size=1
    )
)
def test_decimals_stay_inside_their_bounds_even_as_doubles(values: list[Decimal]) -> None:
    found = bounds(values, pa.decimal128(38, 4))
    assert found[0] <= min(values)
    assert found[1] >= max(values)
    if len(min(values).as_tuple().digits) > 15:
        assert float(found[0]) <= min(values)
    if len(max(values).as_tuple().digits) > 15:
        assert float(found[1]) >= max(values)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1))
def test_texts_stay_inside_their_bounds_by_bytes(values: list[str]) -> None:
    low, high = bounds(values, pa.string())
    assert low is None or low.encode() <= min(v.encode() for v in values)
    assert high is None or high.encode() >= max(v.encode() for v in values)
    assert json.loads(json.dumps([low, high])) == [low, high]


@given(st.lists(st.datetimes(max_value=dt.datetime(9999, 12, 31)), min_size=1))
def test_times_stay_inside_their_bounds(values: list[dt.datetime]) -> None:
    low, high = bounds(values, US)
    assert dt.datetime.fromisoformat(low) <= min(values)
    assert dt.datetime.fromisoformat(high) >= max(values)


def test_late_columns_have_bounds_only_in_the_key() -> None:
    names = [f"c{n}" for n in range(INDEXED_COLUMNS + 2)]
    gathered = BoundsOfFile(pa.schema([(n, pa.int8()) for n in names]), (names[-1],))
    gathered.add(pa.table({n: pa.array([1], pa.int8()) for n in names}))
    found = json.loads(delta_statistics(DataFile("f", 1, 1, gathered.bounds())))
    assert list(found["minValues"]) == [*names[:INDEXED_COLUMNS], names[-1]]
    assert len(found["nullCount"]) == len(names)
