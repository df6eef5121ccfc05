"""What differs between SQL databases: its connections, names, types, literals and fastest
load.

All else is the same for each: which statement comes when, the state's row, staged rows, retry
(`writer`). A dialect is one module, and one value for each server; it is picklable and holds no
secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Protocol

import pyarrow as pa

from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn

#: the kind of `Dialect.obstacles` that names a column of the primary key
PRIMARY_KEY = "primary key"
#: the type of a column of an answer
Kind = type | UnionType


class ConnectionLost(Exception):
    """The connection broke. A transaction whose COMMIT was sent may have been made or not."""


class AlreadyThere(Exception):
    """A row or a table of that name was created meanwhile."""


@dataclass(frozen=True)
class SqlName:
    """A table of the database: `schema` is what MySQL calls a database."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


class SqlSession(Protocol):
    """One connection. Each method raises `ConnectionLost`, or the `CdcError` of what the server
    refuses. A statement outside of `begin` and `commit` is a transaction of its own. `opened_at` is
    of the monotonic clock."""

    opened_at: float

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """How many rows it has changed. `%` is doubled in `sql` where there are `values`. Raises
        `AlreadyThere` for a key or a table that is there."""
        ...

    def copy(self, sql: str) -> None:
        """Runs a statement that copies the rows of a table, which may take far longer than any
        other."""
        ...

    def fetch(self, kinds: Sequence[Kind], sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows, whose columns are of these types; raises `SinkUnreachable` for others."""
        ...

    def stream(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a statement in lists of bounded memory, as they come."""
        ...

    def begin(self, *, snapshot: bool = False) -> None:
        """`snapshot`: all that is read in it is of one moment. Any other raises `SinkUnreachable`
        where the server is read-only by now."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never raises."""
        ...

    def load(self, table: str, rows: pa.Table) -> None:
        """Inserts the rows, by the columns' names; `table` is a quoted name."""
        ...

    def close(self) -> None:
        """Never raises; in any thread."""
        ...


class Dialect(Protocol):
    """One database server as a sink."""

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        ...

    @property
    def state_schema(self) -> str:
        """Where the states and the staged rows are."""
        ...

    @property
    def alters_in_transactions(self) -> bool:
        """Whether statements that create, rename and drop tables are part of a transaction."""
        ...

    def open(self) -> SqlSession: ...

    def place(self, table: TableId) -> SqlName:
        """Where the target of a source table is."""
        ...

    def stored(self, name: str) -> str:
        """What the database makes of a name: one that is too long for it is shortened."""
        ...

    def quoted(self, name: str) -> str: ...

    def create_schema(self, session: SqlSession, schema: str) -> None:
        """Where it is missing."""
        ...

    def bookkeeping(self) -> Sequence[str]:
        """Statements that create the tables `states` and `helpers` in the state's schema where they
        are missing."""
        ...

    def column_types(
        self, session: SqlSession, columns: Sequence[tuple[TargetColumn, SourceType | None]], key: Sequence[str]
    ) -> list[str]:
        """The types of columns, each of which takes the values of a source type, or None where no
        column of the source fills it. Raises `CdcError` for one that the database has no exact
        type for."""
        ...

    def literal(self, value: Value) -> str: ...

    def with_digits(self, number: str, digits: int) -> str:
        """The expression of the text of a number, which is the expression `number` or its text,
        with so many digits after its point."""
        ...

    def read_expression(self, column: TargetColumn) -> str:
        """What is selected to read the column's exact values."""
        ...

    def to_arrow(self, column: TargetColumn, values: Sequence[Any]) -> pa.Array:
        """What was read by `read_expression`."""
        ...

    def temporary(self, name: str) -> str:
        """The quoted name of a session's own table."""
        ...

    def temporary_tables(self, name: str, columns: str) -> tuple[str, str]:
        """The statements that drop a session's own table, and create it again."""
        ...

    @property
    def row_number(self) -> tuple[str, ...]:
        """The definition of a column that numbers rows, where the server may refuse a table without
        a key; else none."""
        ...

    def merge(self, table: str, rows: str, names: Sequence[str], key: Sequence[str]) -> str:
        """The statement that updates and inserts the rows of the temporary table `rows`."""
        ...

    def delete(self, table: str, keys: str, key: Sequence[str]) -> str:
        """The statement that deletes the keys of the temporary table `keys`."""
        ...

    def marked(self, mark: str) -> str:
        """What ends the definition of a table that `mark` finds under any name, where it is needed:
        where `alters_in_transactions` is False."""
        ...

    def mark(self, session: SqlSession, table: SqlName) -> str:
        """What the table was created with; empty where there is none, or no table."""
        ...

    def columns(self, session: SqlSession, table: SqlName) -> list[str]:
        """The names of a table's columns in their order; none where there is no table."""
        ...

    def definitions(self, session: SqlSession, table: SqlName) -> dict[str, str]:
        """What the server says of each column's type."""
        ...

    def is_defined(self, declared: str, shown: str) -> bool:
        """Whether a column that `column_types` declares is as `definitions` shows it."""
        ...

    def obstacles(self, session: SqlSession, table: SqlName) -> list[tuple[str, str]]:
        """What might make other rows of ours, or lose them: its kind and its name, such as a
        trigger. Of the kind `PRIMARY_KEY` are the columns of the primary key, and what makes it
        less than a key of these columns."""
        ...

    def references(self, session: SqlSession, schema: str, tables: Collection[str]) -> dict[str, list[str]]:
        """Asks for each of these tables of the schema which foreign keys of others would go with it
        to another name, where `obstacles` does not have them. May take long."""
        ...

    def unseen(self, session: SqlSession) -> Sequence[str]:
        """What this account may not ask the server for, in words."""
        ...

    def refuse_server(self, session: SqlSession, schemas: Sequence[str]) -> None:
        """Raises `CdcError` where no table can be written, or not be checked, in these schemas."""
        ...

    def hold(self, table: str) -> str:
        """The statement after which no other session can alter the table until the transaction
        ends, as after one that writes to it."""
        ...

    def swap(self, session: SqlSession, new: SqlName, to: SqlName, old: SqlName | None) -> None:
        """`new` takes the name `to`, and the table there, where there is one, that of `old`: at
        once, or not at all. All are in one schema."""
        ...
