"""The rows of a target as of one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.state import TableState
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import table_name


class SqlSnapshot:
    """See `TargetSnapshot`: a transaction whose moment is that of `state`. One scan at a time; the
    transaction ends with this object."""

    ends_with_session = True

    def __init__(self, dialect: Dialect, session: SqlSession, table: SqlName, state: TableState) -> None:
        self._dialect, self._session, self._table, self._state = dialect, session, table, state

    def __del__(self) -> None:
        self._session.close()

    @property
    def state(self) -> TableState:
        return self._state

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self._state.schema)

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        names = list(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, key_filter))

    def _batches(self, names: list[str], key_filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        read = names if key_filter is None else list(self.schema.names)
        columns = [column for name in read if (column := self._state.schema.column(name)) is not None]
        expressions = ", ".join(map(self._dialect.read_expression, columns))
        for rows in self._session.stream(f"SELECT {expressions} FROM {table_name(self._dialect, self._table)}"):
            values = zip(*rows, strict=True)
            arrays = [self._dialect.to_arrow(column, list(v)) for column, v in zip(columns, values, strict=True)]
            table = pa.table(arrays, schema=pa.schema([self.schema.field(column.name) for column in columns]))
            matching = table if key_filter is None else table.filter(key_filter)
            yield from matching.select(names).to_batches()
