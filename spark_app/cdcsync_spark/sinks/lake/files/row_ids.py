"""Columns that rows have besides the table's where a format gives each row an identity: its id, and
the number of the commit that gave it its values.

They go with the rows from where those are read, or their places are located, to the new file.
NULL is what the file's own metadata say of the row. A format that has no such identity never adds
them.
"""

from __future__ import annotations

import pyarrow as pa

#: in memory; no column of a source has a NUL in its name
ROW_ID, LAST_UPDATED = "\0row id", "\0last updated"
FIELDS = (pa.field(ROW_ID, pa.int64()), pa.field(LAST_UPDATED, pa.int64()))
_NAMES = frozenset(field.name for field in FIELDS)


def without_identity(schema: pa.Schema) -> pa.Schema:
    """The columns that are the table's."""
    if _NAMES.isdisjoint(schema.names):
        return schema
    return pa.schema([field for field in schema if field.name not in _NAMES])
