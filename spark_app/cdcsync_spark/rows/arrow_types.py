"""The form of target types in memory: Arrow's, one for each logical type.

Both readers of the source build their columns with `arrow_type`, and every sink its schema with
`arrow_schema`. What is read has the captured columns (`captured_schema`); what is written has the
target's (`arrow_schema`): `projected` takes the one to the other.
"""

from __future__ import annotations

import pyarrow as pa

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.logical_type import DECIMAL, LogicalType, logical_type
from cdcsync_core.tables.source_table import SourceType
from cdcsync_core.tables.target_schema import TargetSchema

_PLAIN = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.float32())),
)
_ARROW = {str(kind): kind for kind in _PLAIN}


def in_arrow(target: LogicalType) -> pa.DataType:
    if target.name == DECIMAL:
        return pa.decimal128(target.precision, target.scale)
    return _ARROW[target.name]


def arrow_type(source: SourceType) -> pa.DataType:
    """The Arrow type of a source type; raises as `logical_type`."""
    return in_arrow(logical_type(source))


def arrow_schema(schema: TargetSchema) -> pa.Schema:
    """A target's schema. Every field is nullable: a zero date in a NOT NULL column becomes NULL."""
    return pa.schema([pa.field(c.name, in_arrow(c.type)) for c in schema.columns])


def captured_schema(capture: Capture) -> pa.Schema:
    """What is read of a source table: the captured columns in the source's order, all nullable."""
    return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in capture.captured])


def projected(rows: pa.Table, schema: TargetSchema) -> pa.Table:
    """Captured rows as the target's: each column from its source, NULL where it has none."""
    if schema.plain and rows.schema.names == list(schema.names):
        return rows
    return pa.table(
        [
            pa.nulls(rows.num_rows, field.type) if column.source is None else rows[column.source]
            for column, field in zip(schema.columns, arrow_schema(schema), strict=True)
        ],
        schema=arrow_schema(schema),
    )
