"""Columns of data files by their Parquet field ids, for formats whose readers go by those: a file
may have a column under another name, or not at all.

A column that a file lacks has its default in each row. A name is never looked for: where another
column had it before, its values are not this one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdcsync_core.errors import RUN_AGAIN, Reason, fail
from cdcsync_core.quoting import quoted

FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class FieldIds:
    """The ids of a table's columns, by their names, and the values of those that have a default in
    files that lack them."""

    ids: Mapping[str, int]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def in_file(self, path: str, file: pa.Schema) -> FileNames:
        """Raises SinkConflict for a file whose columns have no ids: all of them would be NULL."""
        names = {int(f.metadata[FIELD_ID]): f.name for f in file if f.metadata and FIELD_ID in f.metadata}
        if not names:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the columns of the data file {quoted(path)} have no field ids",
                needed="files that were written for this table",
                remedy=f"let Spark rewrite the table's data files, {RUN_AGAIN}",
            )
        return FileNames({name: names[number] for name, number in self.ids.items() if number in names}, self.defaults)


@dataclass(frozen=True)
class FileNames:
    """What a file calls the columns that it has."""

    names: Mapping[str, str]
    defaults: Mapping[str, Any]

    def of(self, columns: Sequence[str]) -> list[str]:
        return [self.names[name] for name in columns if name in self.names]

    def batch(self, read: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Rows of the file as those of the table."""
        return pa.RecordBatch.from_arrays([self._column(read, f) for f in schema], schema=schema)

    def _column(self, read: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name in self.names:
            return read.column(self.names[field.name]).cast(field.type)
        return pa.repeat(pa.scalar(self.defaults.get(field.name), field.type), read.num_rows)
