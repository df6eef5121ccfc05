"""What a target has, apart from what is read of the source (rule R9)."""

from __future__ import annotations

import pytest

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.logical_type import NAMES, LogicalType
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema

COLUMNS = tuple(Column(n, SourceType.parse(t)) for n, t in {"b": "int", "a": "bigint unsigned", "x": "blob"}.items())
CAPTURE = Capture(SourceTable(TableId("shop", "t"), COLUMNS), ("a", "b"), frozenset({"x"}))
INT = LogicalType("int32")


def test_a_new_copy_has_the_captured_columns_under_their_names() -> None:
    schema = TargetSchema.of(CAPTURE)
    assert schema.columns == (
        TargetColumn("b", INT, "b"),
        TargetColumn("a", LogicalType("decimal128", 20, 0), "a"),
    )
    assert schema.key == ("a", "b")
    assert schema.plain


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ([TargetColumn("a", INT, "a")], ("b",)),
        ([TargetColumn("a", INT, "a"), TargetColumn("b", INT, None)], ("a", "b")),
        ([TargetColumn("a", INT, "a"), TargetColumn("a", INT, None)], ("a",)),
    ],
    ids=["unknown", "a key that nothing fills", "a name twice"],
)
def test_a_key_is_of_columns_that_are_filled(columns: list[TargetColumn], key: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must name filled columns"):
        TargetSchema(tuple(columns), key)


@pytest.mark.parametrize("text", sorted({*NAMES, "decimal128(20, 0)", "decimal128(38, 38)"}))
def test_a_type_comes_back_from_its_text(text: str) -> None:
    assert str(LogicalType.parse(text)) == text


@pytest.mark.parametrize("text", ["", "int", "decimal128", "decimal128(39, 0)", "decimal128(0, 0)", "timestamp[ns]"])
def test_no_other_type_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="not a type of a target"):
        LogicalType.parse(text)
