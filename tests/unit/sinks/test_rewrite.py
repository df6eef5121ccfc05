"""Rows of files under another schema: value by value, row by row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.tables.logical_type import LogicalType
from cdcsync_core.tables.schema_change import Converted, Filled, Kept, Origin
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema
from cdcsync_spark.sinks.lake.files.rewrite import needed, rewritten


def target(**columns: str) -> TargetSchema:
    return TargetSchema(tuple(TargetColumn(n, LogicalType.parse(t), n) for n, t in columns.items()), ("id",))


def rows(batches: list[pa.RecordBatch], after: TargetSchema, *origins: Origin) -> list[dict[str, Any]]:
    return [row for batch in rewritten(batches, after, origins) for row in batch.to_pylist()]


IDS = pa.array([3, 1, 2], pa.int32())


def test_rows_keep_their_order_and_columns_have_one_origin() -> None:
    """Two names that are exchanged, a value for all rows, a column that is gone."""
    batch = pa.record_batch({"id": IDS, "a": ["x", None, "z"], "b": ["1", "2", None], "gone": [1, 2, 3]})
    after = target(b="string", id="int32", a="string", n="int64")
    origins = (Kept("a"), Kept("id"), Kept("b"), Filled(7))
    assert rows([batch.slice(0, 1), batch.slice(1)], after, *origins) == [
        {"b": "x", "id": 3, "a": "1", "n": 7},
        {"b": None, "id": 1, "a": "2", "n": 7},
        {"b": "z", "id": 2, "a": None, "n": 7},
    ]
    assert needed(origins) == ["a", "id", "b"]


@pytest.mark.parametrize(
    ("values", "kind", "digits", "wanted"),
    [
        (pa.array([-128, None, 127], pa.int8()), "int64", 0, [-128, None, 127]),
        (pa.array([0, None, 2**32 - 1], pa.int64()), "decimal128(20, 0)", 0, [Decimal(0), None, Decimal(2**32 - 1)]),
        (
            pa.array([Decimal("-1.50"), None, Decimal("9.99")], pa.decimal128(3, 2)),
            "decimal128(6, 4)",
            0,
            [Decimal("-1.5000"), None, Decimal("9.9900")],
        ),
        (
            pa.array([Decimal("-1.5"), None, Decimal("0.000000001")], pa.decimal128(20, 9)),
            "string",
            10,
            ["-1.5000000000", None, "0.0000000010"],
        ),
        (
            pa.array([0.1, None, -3.4e38], pa.float32()),
            "double",
            0,
            [0.10000000149011612, None, -3.3999999521443642e38],
        ),
        (
            pa.array([dt.date(1000, 1, 1), None, dt.date(9999, 12, 31)]),
            "timestamp[us]",
            0,
            [dt.datetime(1000, 1, 1), None, dt.datetime(9999, 12, 31)],
        ),
        (pa.array([Decimal(5), None, Decimal(-7)], pa.decimal128(3, 0)), "string", 0, ["5", None, "-7"]),
        (pa.array([Decimal(5), None, Decimal(-7)], pa.decimal128(3, 0)), "string", 2, ["5.00", None, "-7.00"]),
        (pa.array(["-838:59:59", None, "00:00:00"]), "string", 3, ["-838:59:59.000", None, "00:00:00.000"]),
        (pa.array(["12:00:00.5", None, "12:00:00.1"]), "string", 3, ["12:00:00.500", None, "12:00:00.100"]),
        (pa.array(["1.25", None, "-0.50"]), "string", 30, ["1.25" + "0" * 28, None, "-0.50" + "0" * 28]),
    ],
)
def test_wider_types_have_the_same_values(values: pa.Array, kind: str, digits: int, wanted: list[Any]) -> None:
    batch = pa.record_batch({"id": IDS, "c": values})
    found = rows([batch], target(id="int32", c=kind), Kept("id"), Converted("c", digits))
    assert [row["c"] for row in found] == wanted


def test_nothing_is_lost_by_a_conversion_that_does_not_fit() -> None:
    batch = pa.record_batch({"id": IDS, "c": pa.array([1, 2, 2**40])})
    with pytest.raises(pa.ArrowInvalid):
        rows([batch], target(id="int32", c="int32"), Kept("id"), Converted("c"))
