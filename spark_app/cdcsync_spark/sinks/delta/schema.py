"""A table's schema in Delta's JSON."""

from __future__ import annotations

from deltalake import Schema

from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.wire.columns.typemap import arrow_schema


def delta_schema(schema: TargetSchema) -> str:
    return Schema.from_arrow(arrow_schema(schema)).to_json()
