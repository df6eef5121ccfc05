"""What becomes of a target's rows by each kind of change: statements of the transaction that
changes its state, or a new table that takes its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from cdcsync_core.errors import RUN_AGAIN, Reason, fail
from cdcsync_core.state import TableState
from cdcsync_core.tables.declared_key import inserted_twice
from cdcsync_core.tables.schema_change import Kept
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import (
    AdvancePosition,
    Append,
    Commit,
    Empty,
    Evolve,
    Replace,
    Staged,
    StagedPart,
    Upsert,
)
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.sql import tables
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import count, table_name

#: the kind of the parts that this sink stages
KIND = "sql"
#: how the names of tables of staged rows begin
STAGED_ROWS = "rows_"
CAPABILITIES = Capabilities(frozenset((Append, Upsert, Replace, Evolve, Empty, AdvancePosition)), together=True)
_ROWS, _KEYS, _NEW = "cdcsync_rows_", "cdcsync_keys_", "cdcsync_new_"


def staged_part(table: SqlName, rows: int) -> StagedPart:
    return StagedPart(KIND, rows, json.dumps([table.schema, table.table]))


@dataclass(frozen=True)
class TablePublication:
    """One commit on the state `current` of the table `target`, by the session that makes it;
    `number` is its alone among those of the transaction."""

    dialect: Dialect
    session: SqlSession
    target: SqlName
    current: TableState
    commit: Commit
    number: int

    @property
    def replaces_table(self) -> bool:
        """Whether a new table takes the target's place (`fill`)."""
        return isinstance(self.commit.change, Replace | Evolve | Empty) or self._retypes

    @property
    def _retypes(self) -> bool:
        """Whether another definition of the source gives the same columns other types here, such as
        a longer VARCHAR."""
        before, after = self.current, self.commit.state
        if not isinstance(self.commit.change, AdvancePosition) or before.capture == after.capture:
            return False
        return tables.types(self.dialect, self.session, before) != tables.types(self.dialect, self.session, after)

    def prepare(self) -> None:
        """Before the transaction, so that it holds locks for a short time."""
        for name, rows, columns in self._temporary():
            tables.create_temporary(self.dialect, self.session, name, self.commit.state, columns)
            self.session.load(self.dialect.temporary(name), rows)

    def run(self) -> None:
        """In the transaction. Raises KeyNotUnique."""
        if isinstance(self.commit.change, Append):
            self._insert(self.commit.change.staged, self.target)
        for name, _, _ in self._temporary():
            if name.startswith(_NEW):
                self._refuse_there(name)
            else:
                self.session.run(self._merge(name))

    def clear(self) -> None:
        """After the transaction."""
        for name, _, _ in self._temporary():
            drop, _ = self.dialect.temporary_tables(name, "")
            self.session.run(drop)

    @property
    def needs_target(self) -> bool:
        """Whether anything is made of the target's rows or columns of before."""
        return not isinstance(self.commit.change, Replace)

    def fill(self, new: SqlName) -> None:
        """Fills the table that takes the target's place."""
        change, state = self.commit.change, self.commit.state
        if isinstance(change, Replace):
            self._insert(change.staged, new)
        elif not isinstance(change, Empty):
            origins = change.origins if isinstance(change, Evolve) else [Kept(c) for c in state.schema.names]
            self.session.copy(tables.take_rows(self.dialect, self.target, new, state.schema, origins))

    def staged_rows(self) -> list[SqlName]:
        """The tables of staged rows that the commit has published; a staged copy is none."""
        change = self.commit.change
        staged = change.staged if isinstance(change, Append | Replace) else ()
        names = (SqlName(*json.loads(part.body)) for part in staged)
        return [name for name in names if name.table.startswith(STAGED_ROWS)]

    def _insert(self, staged: Staged, to: SqlName) -> None:
        for part in self._tables(staged):
            self.session.copy(tables.copy_rows(self.dialect, part, to, self.commit.state.schema))

    def _tables(self, staged: Staged) -> Iterator[SqlName]:
        for part in staged:
            if part.kind != KIND:
                raise fail(
                    Reason.INTERNAL_ERROR,
                    f"rows that were staged as {part.kind!r}",
                    needed=f"rows that this sink staged, as {KIND!r}",
                    remedy="report this with the driver log",
                    table=self.current.identity.table,
                )
            table = SqlName(*json.loads(part.body))
            self._refuse_lost(part, table)
            yield table

    def _refuse_lost(self, part: StagedPart, table: SqlName) -> None:
        rows = count(self.dialect, self.session, table)
        if rows != part.rows:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the staged rows of {table} are not whole: {rows} rows of {part.rows}",
                needed="the rows until they are published",
                remedy=f"keep other programs away from the schema {self.dialect.state_schema}, {RUN_AGAIN}",
                table=self.current.identity.table,
            )

    def _temporary(self) -> Iterator[tuple[str, pa.Table, tuple[str, ...]]]:
        """The session's own tables: their names, rows and columns. Each is used before the next."""
        change, schema = self.commit.change, self.commit.state.schema
        if not isinstance(change, Upsert):
            return
        fields = arrow_schema(schema)
        keys = pa.schema([fields.field(name) for name in schema.key])
        for kind, rows, columns in (
            (_NEW, _new_keys(change, keys), keys),
            (_KEYS, change.deletes, keys),
            (_ROWS, change.upserts, fields),
        ):
            if rows.num_rows:
                yield f"{kind}{self.number}", rows.select(columns.names).cast(columns), tuple(columns.names)

    def _refuse_there(self, new: str) -> None:
        """No other commit of the table is made meanwhile: its state's row is locked."""
        schema = self.commit.state.schema
        columns = [column for name in schema.key if (column := schema.column(name)) is not None]
        sql = tables.keys_there(self.dialect, self.dialect.temporary(new), self.target, columns)
        for row in self.session.fetch([object] * len(columns), sql):
            key = [self.dialect.to_arrow(c, [value])[0].as_py() for c, value in zip(columns, row, strict=True)]
            raise inserted_twice(self.commit.state.capture, key)

    def _merge(self, name: str) -> str:
        table, schema = table_name(self.dialect, self.target), self.commit.state.schema
        if name.startswith(_KEYS):
            return self.dialect.delete(table, self.dialect.temporary(name), schema.key)
        return self.dialect.merge(table, self.dialect.temporary(name), schema.names, schema.key)


def _new_keys(change: Upsert, keys: pa.Schema) -> pa.Table:
    """Keys that the target must not have."""
    if change.new is None:
        return keys.empty_table()
    given = pa.concat_tables([rows.select(keys.names).cast(keys) for rows in (change.upserts, change.deletes)])
    return given.filter(pa.array(change.new))
