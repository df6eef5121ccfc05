"""The form of a target's types in memory, and captured rows as the target's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.logical_type import NAMES, LogicalType
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema, captured_schema, in_arrow, projected

COLUMNS = (Column("id", SourceType.parse("int"), False), Column("v", SourceType.parse("varchar(9)", "utf8mb4")))
CAPTURE = Capture(SourceTable(TableId("shop", "t"), COLUMNS), ("id",))
PLAIN = TargetSchema.of(CAPTURE)
ROWS = pa.table({"id": [1, 2], "v": ["a", None]}, schema=captured_schema(CAPTURE))


@pytest.mark.parametrize("text", sorted({*NAMES, "decimal128(20, 2)"}))
def test_each_type_has_the_form_of_its_name(text: str) -> None:
    assert str(in_arrow(LogicalType.parse(text))) == text


def test_a_new_copys_rows_are_those_that_are_read() -> None:
    assert arrow_schema(PLAIN).equals(captured_schema(CAPTURE))
    assert projected(ROWS, PLAIN) is ROWS


def test_a_column_that_is_kept_without_a_source_is_null() -> None:
    gone = TargetColumn("gone", LogicalType("decimal128", 20, 2), None)
    schema = TargetSchema((PLAIN.columns[0], gone, PLAIN.columns[1]), ("id",))
    found = projected(ROWS, schema)
    assert found.schema.equals(arrow_schema(schema))
    assert found.to_pylist() == [{"id": 1, "gone": None, "v": "a"}, {"id": 2, "gone": None, "v": None}]


def test_each_column_takes_the_values_of_its_source() -> None:
    schema = TargetSchema((TargetColumn("w", LogicalType("string"), "v"), PLAIN.columns[0]), ("id",))
    assert projected(ROWS, schema).to_pylist() == [{"w": "a", "id": 1}, {"w": None, "id": 2}]
