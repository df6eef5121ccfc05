"""R2 and R9 with schema changes: from any snapshot between LOW and HIGH, whatever its splits read
and however often runs begin again, the rows and the steps of the binlog end in the source's table.

The model is a table with a key and columns of one type. A split reads a key as of any moment at
which the definition equals that at LOW: that is what the reader of splits proves. Statements come
from the real reader, so a step that may not be repeated is refused by the real rule.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.capture import Capture
from cdcsync_core.chunk import WHOLE, Intervals
from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.evolve import DroppedColumns
from cdcsync_core.lineage import Lineage
from cdcsync_core.position import FilePosition, LogOffset, TransactionId
from cdcsync_core.schema_change import Emptied, Filled, Followed
from cdcsync_core.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.state import Identity, TableState
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.binlog.schema_steps import Policy, SchemaStep, meaning
from cdcsync_spark.stream.applier import Applier, StreamTable
from cdcsync_spark.wire.columns.change import ChangeKind, changes_schema
from cdcsync_spark.wire.columns.typemap import captured_schema
from cdcsync_spark.wire.sql.text import Statement
from cdcsync_spark.wire.sql.tokens import Session
from support.memory_target import MemoryTarget

POLICY = Policy(follow=True, dropped=DroppedColumns.DROP)
INT = SourceType.parse("int")
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
STATEMENTS = (
    "ALTER TABLE t DROP v, ADD v INT DEFAULT {0} AFTER id",
    "ALTER TABLE t DROP v",
    "ALTER TABLE t ADD v INT DEFAULT {0} AFTER id",
    "ALTER TABLE t ADD x INT",
    "ALTER TABLE t DROP x",
    "TRUNCATE t",
    "ALTER TABLE t CHANGE v w INT AFTER w, CHANGE w v INT AFTER id",
    "ALTER TABLE t RENAME COLUMN v TO x",
    "ALTER TABLE t RENAME COLUMN x TO v",
    "ALTER TABLE t DROP w, CHANGE v w INT, ADD v INT DEFAULT {0} AFTER id",
)
Row = dict[str, int | None]
Rows = dict[int, Row]


def at(number: int) -> LogOffset:
    return LogOffset("b.000001", 100 + number)


@dataclass
class Source:
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
        statement = Statement("shop", sql, Session(1 << 21, "utf8mb4", True, 101100))
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

    def _add(self, done: Statement | tuple[int, Row | None], capture: Capture, content: Rows) -> None:
        self.done.append(done)
        self.captures.append(capture)
        self.contents.append(content)

    def batch(self, number: int, folder: Path) -> BinlogBatch:
        """The transaction after `number` others, alone."""
        start, end, done = FilePosition(at(number)), FilePosition(at(number + 1)), self.done[number]
        if isinstance(done, Statement):
            step = SchemaStep(done, TransactionId(end.at))
            return BinlogBatch(start, end, None, "", (TableBatch(NAME, "", 0, 0, end, None, step),))
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


@st.composite
def sources(draw: st.DrawFn) -> Source:
    made = Source()
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            made.run(draw(st.sampled_from(STATEMENTS)).format(draw(st.integers(50, 53))))
            continue
        names = [c.name for c in made.captures[-1].columns if c.name != "id"]
        row = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(names, st.integers(0, 9))))
        made.write(draw(st.integers(1, 4)), row)
    return made


def snapshot(source: Source, data: st.DataObject, high: int) -> MemoryTarget:
    """Each key is read at a moment up to `high` whose definition reads as the first one."""
    moments = [i for i in range(high + 1) if FIRST.reads_as(source.captures[i])]
    rows: dict[tuple[int, ...], dict[str, int | None]] = {}
    for key in range(1, 5):
        row = source.contents[data.draw(st.sampled_from(moments))].get(key)
        if row is not None:
            rows[(key,)] = {"id": key, **row}
    low = FilePosition(at(0))
    state = TableState(
        Identity("default/t", Lineage.of("log"), NAME),
        FIRST,
        TargetSchema.of(FIRST),
        epoch=1,
        finished=Intervals().add(WHOLE),
        low=low,
        high=at(high),
        position=low,
    )
    return MemoryTarget(state, rows)


@settings(max_examples=60)
@given(source=sources(), data=st.data())
def test_rows_and_steps_end_in_the_table_of_the_source(source: Source, data: st.DataObject) -> None:
    """A run begins at or before what the table has, and ends anywhere."""
    last = len(source.done)
    high = data.draw(st.integers(0, last))
    target, reached = snapshot(source, data, high), 0
    ends = data.draw(st.lists(st.integers(0, last), max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        batches = [source.batch(number, Path(folder)) for number in range(last)]
        for epoch, end in enumerate([*ends, last], start=2):
            first = data.draw(st.integers(0, reached))
            table = run(target, epoch, batches[first : max(end, first)], first)
            if table.error is not None:
                check_stop(table, source, high)
                return
            reached = max(reached, end)
            if reached >= high:
                check(target, source, reached)


def run(target: MemoryTarget, epoch: int, batches: list[BinlogBatch], first: int) -> StreamTable:
    assert target.state is not None
    table = StreamTable(NAME, target, target.state, 0.0, policy=POLICY)  # type: ignore[arg-type]
    applier = Applier({NAME: table}, epoch, FilePosition(at(first)), lambda: 0.0)
    for batch in batches:
        applier.apply(batch)
    return table


def check(target: MemoryTarget, source: Source, number: int) -> None:
    found = {key[0]: {n: v for n, v in row.items() if n != "id"} for key, row in target.rows.items()}
    assert found == source.contents[number]
    assert target.state is not None
    assert target.state.capture == source.captures[number]
    assert target.state.schema.names == tuple(c.name for c in source.captures[number].columns)


def check_stop(table: StreamTable, source: Source, high: int) -> None:
    """Only for a step up to HIGH that moves values between columns; it is not in the target."""
    assert table.error is not None
    assert table.error.reason is Reason.SCHEMA_CHANGE_REFUSED
    position = table.state.position
    assert isinstance(position, FilePosition)
    behind = source.done[position.at.offset - 100 : high]
    assert any(isinstance(done, Statement) and ("CHANGE" in done.sql or "RENAME" in done.sql) for done in behind)
