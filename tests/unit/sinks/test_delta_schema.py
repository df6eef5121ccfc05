"""The JSON of a table's schema is what delta-rs says, for all types of columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import Schema

from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.rows.arrow_types import _PLAIN
from cdcsync_spark.sinks.delta.table.schema import schema_json
from cdcsync_spark.sinks.history.rows import with_event_columns

_DECIMALS = (pa.decimal128(1, 0), pa.decimal128(20, 3), pa.decimal128(38, 38))


@pytest.mark.parametrize("kind", [*_PLAIN, *_DECIMALS], ids=str)
def test_each_type_as_delta_rs_says_it(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("a", kind), pa.field("b", kind, nullable=False)])
    assert schema_json(schema) == Schema.from_arrow(schema).to_json()


@pytest.mark.parametrize("name", ["é", 'a"b', "a\\b", "a\n\x01b", "a.b c", "\u2028\x7f", "😀", "名"], ids=ascii)
def test_each_name_as_delta_rs_says_it(name: str) -> None:
    schema = pa.schema([pa.field(name, pa.int64())])
    assert schema_json(schema) == Schema.from_arrow(schema).to_json()


def test_a_history_as_delta_rs_says_it() -> None:
    schema = with_event_columns(pa.schema([pa.field("id", pa.int64())]), EventColumns())
    assert schema_json(schema) == Schema.from_arrow(schema).to_json()
