"""Targets as another program reads them: by the SQL of delta-rs, which knows deletion vectors. Its
`to_pyarrow_table` refuses them, and its `count` passes them over."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def query(table: DeltaTable, sql: str) -> pa.Table:
    """The result of `sql` over the table `t`."""
    found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
    return found.cast(pa.schema([pa.field(f.name, _VIEWS.get(f.type, f.type)) for f in found.schema]))


def rows_of(table: DeltaTable) -> pa.Table:
    """All rows of the table's version."""
    return query(table, "SELECT * FROM t")
