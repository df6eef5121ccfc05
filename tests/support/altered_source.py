"""A source in memory whose table is written and altered: what it was after each transaction, and
the binlog as the reader hands it over.

What a statement does to rows is taken from the origins of the columns that the real reader of
statements finds. A statement that is not followed is given with what it made (`replace`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.position import FilePosition, Place, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.evolve import DroppedColumns
from cdcsync_core.tables.schema_change import Emptied, Filled, Followed
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.binlog.schema.steps import FollowPolicy, SchemaStep, meaning
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session

BINLOG: BinlogId = "mariadb:1"
POLICY = FollowPolicy(follow=True, dropped=DroppedColumns.DROP)
#: as MariaDB declares it, so that a column that is added again is equal to the one before
INT = SourceType.parse("int(11)")
NAME = "shop.t"
FIRST = Capture(
    SourceTable(
        TableId("shop", "t"),
        (Column("id", INT, False), Column("v", INT), Column("w", INT)),
        "utf8mb4",
        frozenset(),
        "",
        frozenset(),
    ),
    ("id",),
    key_index="PRIMARY",
)
Row = dict[str, int | None]
Rows = dict[int, Row]


def at(number: int) -> Place:
    return Place("b.000001", 100 + number, BINLOG)


def statement_of(sql: str) -> Statement:
    return Statement("shop", sql, Session(1 << 21, "utf8mb4", True, 101100))


@dataclass
class AlteredSource:
    """What the table was after each transaction (number 0: before the first), and what each one
    did: a statement, or a key with its next row."""

    captures: list[Capture] = field(default_factory=lambda: [FIRST])
    contents: list[Rows] = field(default_factory=lambda: [{1: {"v": 1, "w": 2}, 2: {"v": None, "w": 4}}])
    done: list[Statement | tuple[int, Row | None]] = field(default_factory=list)

    def write(self, key: int, row: Row | None) -> None:
        content = {k: r for k, r in self.contents[-1].items() if k != key}
        self._add((key, row), self.captures[-1], content if row is None else content | {key: row})

    def run(self, sql: str) -> None:
        """What a server does with it, by the origins of columns; a statement that it would
        refuse is not run."""
        statement = statement_of(sql)
        found = meaning(self.captures[-1], statement, POLICY)
        if isinstance(found, CdcError):
            return
        if isinstance(found, Emptied):
            self._add(statement, found.after, {})
        if isinstance(found, Followed):
            origins = [(c.name, o) for c, o in zip(found.after.columns, found.origins, strict=True) if c.name != "id"]
            rows = {
                key: {name: o.value if isinstance(o, Filled) else row[o.source] for name, o in origins}
                for key, row in self.contents[-1].items()
            }
            self._add(statement, found.after, rows)  # type: ignore[arg-type]

    def made(self, sql: str, capture: Capture, content: Rows) -> None:
        """A statement with what it makes, whatever it means."""
        self._add(statement_of(sql), capture, content)

    def _add(self, done: Statement | tuple[int, Row | None], capture: Capture, content: Rows) -> None:
        self.done.append(done)
        self.captures.append(capture)
        self.contents.append(content)

    def _step(self, number: int, done: Statement, start: FilePosition, end: FilePosition) -> TableBatch:
        """A stop where the statement is not followed."""
        found = meaning(self.captures[number], done, POLICY)
        if isinstance(found, CdcError):
            return TableBatch(NAME, "", 0, 0, start, found)
        return TableBatch(NAME, "", 0, 0, end, None, SchemaStep(done, TransactionId(end.at)))

    def batch(self, number: int, folder: Path) -> BinlogBatch:
        """The transaction after `number` others, alone."""
        start, end, done = FilePosition(at(number)), FilePosition(at(number + 1)), self.done[number]
        if isinstance(done, Statement):
            return BinlogBatch(start, end, None, "", (self._step(number, done, start, end),))
        names, path = folder / f"{number}.json", folder / f"{number}.arrow"
        write_transactions(str(names), Transactions([TransactionId(end.at)], [None]))
        key, row = done
        capture = self.captures[number]
        schema = changes_schema(captured_schema(capture))
        image = {"id": key, **(row or {})}
        kind = ChangeKind.DELETE if row is None else ChangeKind.INSERT
        values = [int(kind), 0, *(image.get(c.name) for c in capture.captured)]
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(pa.table([pa.array([v], f.type) for v, f in zip(values, schema, strict=True)], schema))
        return BinlogBatch(start, end, None, str(names), (TableBatch(NAME, str(path), 1, 0, end),))
