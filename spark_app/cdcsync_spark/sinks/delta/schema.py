"""A table's schema in Delta's JSON."""

from __future__ import annotations

from deltalake import Schema

from cdcsync_core.table import Table
from cdcsync_core.typemap import arrow_schema


def delta_schema(table: Table) -> str:
    return Schema.from_arrow(arrow_schema(table)).to_json()
