"""A table's schema in Delta's JSON."""

from __future__ import annotations

from deltalake import Schema

from cdcsync_core.capture import Capture
from cdcsync_spark.wire.columns.typemap import captured_schema


def delta_schema(table: Capture) -> str:
    return Schema.from_arrow(captured_schema(table)).to_json()
