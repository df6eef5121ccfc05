"""Batches of a table with a declared key, from their files to a Delta table or one of a SQL
database: the table stops at a second row of a key, in this run and in the next, and others flow
on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.positions.position import FilePosition, Place
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionId
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.sinks.contract.sink import Sink, Target
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from contract.conftest import DATABASES, SELDOM, served
from contract.sinkcase import WATERMARK, content, make_table, whole_snapshot

INSERT, BEFORE, AFTER, DELETE = ChangeKind
KEYED = make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], name="keyed")
DECLARED = replace(make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], name="log"), declared=True)
ROWS = [(1, "one"), (2, "two"), (3, "three")]
Image = tuple[ChangeKind, int, str]

pytestmark = pytest.mark.parametrize(
    ("sink", "store"),
    [pytest.param("delta", "local", id="delta"), *(served(name, name in SELDOM) for name in DATABASES)],
    indirect=True,
)


def _place(offset: int) -> Place:
    return Place(WATERMARK.file, offset, "mysql:uuid")


@dataclass
class StreamedTables:
    """Both tables with `ROWS`."""

    folder: Path
    sink: Sink

    def __post_init__(self) -> None:
        for table in (KEYED, DECLARED):
            whole_snapshot(self.target(table), ROWS, table)
        self.run(1, FilePosition(WATERMARK))

    def target(self, table: Capture) -> Target:
        return self.sink.target(table.id)

    def run(self, epoch: int, reader: FilePosition) -> None:
        tables = {
            str(t.id): StreamTable(str(t.id), self._writer(t), self._state(t), committed=0.0) for t in (KEYED, DECLARED)
        }
        together = self.sink.capabilities.together
        self.reader = reader
        self.applier = Applier(tables, epoch, reader, lambda: 0.0, commit_all=self.sink.commit_all, together=together)

    def _writer(self, table: Capture) -> Writer:
        return self.target(table).writer(self.folder)

    def _state(self, table: Capture) -> TableState:
        state = self.target(table).last_commit()
        assert state is not None
        return state

    def apply(self, end: int, **images: Sequence[Image]) -> None:
        """A batch of one transaction: the images of each table, by its name."""
        self.apply_all({end: images})

    def apply_all(self, transactions: Mapping[int, Mapping[str, Sequence[Image]]]) -> None:
        """A batch of the transactions that end there."""
        ends, end = [*transactions], max(transactions)
        file = str(self.folder / f"{end}.json")
        write_transactions(file, Transactions([TransactionId(_place(e)) for e in ends], [None] * len(ends)))
        after = FilePosition(_place(end))
        names = sorted({name for images in transactions.values() for name in images})
        parts = tuple(self._part(name, [t.get(name, ()) for t in transactions.values()], end, after) for name in names)
        batch = BinlogBatch(self.reader, after, 1.0, file, parts)
        self.applier.apply(BinlogBatch.from_json(batch.to_json()))
        self.reader = after

    def _part(self, name: str, transactions: Sequence[Sequence[Image]], end: int, after: FilePosition) -> TableBatch:
        file, schema = str(self.folder / f"{name}-{end}.arrow"), changes_schema(captured_schema(KEYED))
        rows = [(kind, at, key, note) for at, images in enumerate(transactions) for kind, key, note in images]
        with pa.OSFile(file, "wb") as opened, pa.ipc.new_file(opened, schema) as writer:
            columns = zip(*rows, strict=True)
            writer.write_table(pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema))
        return TableBatch(f"shop.{name}", file, len(rows), 0, after, None)

    def table(self, name: str) -> StreamTable:
        return self.applier.tables[f"shop.{name}"]


@pytest.fixture
def streamed(sink: Sink, tmp_path: Path) -> StreamedTables:
    return StreamedTables(tmp_path, sink)


def test_what_keeps_the_key_is_applied(streamed: StreamedTables) -> None:
    streamed.apply(
        1000,
        log=[(DELETE, 1, "one"), (INSERT, 1, "again"), (BEFORE, 2, "two"), (AFTER, 4, "two"), (INSERT, 2, "new")],
    )
    streamed.apply(2000, log=[(BEFORE, 4, "two"), (AFTER, 4, "changed"), (DELETE, 3, "three")])
    streamed.apply(3000, log=[(INSERT, 3, "back")])
    assert streamed.table("log").error is None
    assert content(streamed.target(DECLARED)) == [(1, "again"), (2, "new"), (3, "back"), (4, "changed")]


def test_what_is_applied_already_is_no_second_row(streamed: StreamedTables) -> None:
    """A run begins before the place where the one before it was killed: it skips what is there and
    applies the rest, in which a second row is one still."""
    batches: dict[int, dict[str, list[Image]]] = {
        1000: {"log": [(INSERT, 5, "five"), (DELETE, 1, "one")]},
        2000: {"log": [(INSERT, 1, "again"), (BEFORE, 5, "five"), (AFTER, 6, "five")]},
    }
    first = {1000: batches[1000]}
    streamed.apply_all(first)
    streamed.run(2, FilePosition(WATERMARK))
    streamed.apply_all(first)
    streamed.run(3, FilePosition(WATERMARK))
    streamed.apply_all(batches)
    assert streamed.table("log").error is None
    applied = content(streamed.target(DECLARED))
    assert applied == [(1, "again"), (2, "two"), (3, "three"), (6, "five")]
    streamed.run(4, FilePosition(WATERMARK))
    streamed.apply_all({**batches, 3000: {"log": [(INSERT, 6, "second")]}})
    error = streamed.table("log").error
    assert error is not None
    assert error.reason is Reason.KEY_NOT_UNIQUE
    assert content(streamed.target(DECLARED)) == applied


@pytest.mark.parametrize(
    ("images", "key"),
    [
        ([(INSERT, 2, "second")], "2"),
        ([(BEFORE, 1, "one"), (AFTER, 2, "one")], "2"),
        ([(INSERT, 5, "new"), (INSERT, 5, "second")], "5"),
        # UPDATE log SET id = id + 1
        ([(BEFORE, 1, "one"), (AFTER, 2, "one"), (BEFORE, 2, "two"), (AFTER, 3, "two")], "[23]"),
    ],
    ids=["insert", "move", "within the batch", "shift"],
)
def test_a_second_row_of_a_key_stops_the_table_alone(streamed: StreamedTables, images: list[Image], key: str) -> None:
    streamed.apply(1000, log=[(INSERT, 9, "nine")])
    before = content(streamed.target(DECLARED))
    for epoch in (1, 2):
        streamed.apply(2000, keyed=[(INSERT, 2, "last")], log=images)
        table = streamed.table("log")
        assert table.error is not None
        assert (table.error.reason, table.error.table) == (Reason.KEY_NOT_UNIQUE, "shop.log")
        assert re.search(f"id={key},", table.error.found)
        assert content(streamed.target(DECLARED)) == before
        assert table.state.position == FilePosition(_place(1000))
        assert content(streamed.target(KEYED)) == sorted([(1, "one"), (2, "last"), (3, "three")], key=repr)
        streamed.run(epoch + 1, FilePosition(_place(1000)))
