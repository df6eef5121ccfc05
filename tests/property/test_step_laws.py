"""R2 and R9 with schema changes: from any snapshot between LOW and HIGH, whatever its splits read
and however often runs begin again, the rows and the steps of the binlog end in the source's table.

The model is a table with a key and columns of one type. A split reads a key as of any moment at
which the definition equals that at LOW: that is what the reader of splits proves. Statements come
from the real reader, so a step that may not be repeated is refused by the real rule.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import Reason
from cdcsync_core.positions.chunk import WHOLE, Intervals
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.altered_source import BINLOG, FIRST, NAME, POLICY, AlteredSource, at
from support.memory_target import MemoryTarget

STATEMENTS = (
    "ALTER TABLE t DROP v, ADD v INT DEFAULT {0} AFTER id",
    "ALTER TABLE t DROP v",
    "ALTER TABLE t ADD v INT DEFAULT {0} AFTER id",
    "ALTER TABLE t ADD x INT",
    "ALTER TABLE t DROP x",
    "TRUNCATE t",
    "ALTER TABLE t CHANGE w v INT AFTER id, CHANGE v w INT",
    "ALTER TABLE t RENAME COLUMN v TO x",
    "ALTER TABLE t RENAME COLUMN x TO v",
    "ALTER TABLE t DROP w, CHANGE v w INT, ADD v INT DEFAULT {0} AFTER id",
)


@st.composite
def sources(draw: st.DrawFn) -> AlteredSource:
    source = AlteredSource()
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            source.run(draw(st.sampled_from(STATEMENTS)).format(draw(st.integers(50, 53))))
            continue
        names = [c.name for c in source.captures[-1].columns if c.name != "id"]
        row = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(names, st.integers(0, 9))))
        source.write(draw(st.integers(1, 4)), row)
    return source


def snapshot(source: AlteredSource, data: st.DataObject, high: int) -> MemoryTarget:
    """Each key is read at a moment up to `high` whose definition reads as the first one."""
    moments = [i for i in range(high + 1) if FIRST.reads_as(source.captures[i])]
    rows: dict[tuple[int, ...], dict[str, int | None]] = {}
    for key in range(1, 5):
        row = source.contents[data.draw(st.sampled_from(moments))].get(key)
        if row is not None:
            rows[(key,)] = {"id": key, **row}
    low = FilePosition(at(0))
    state = TableState(
        Identity("default/t", Lineage.of(BINLOG), NAME),
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
def test_rows_and_steps_end_in_the_table_of_the_source(source: AlteredSource, data: st.DataObject) -> None:
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


def check(target: MemoryTarget, source: AlteredSource, number: int) -> None:
    found = {key[0]: {n: v for n, v in row.items() if n != "id"} for key, row in target.rows.items()}
    assert found == source.contents[number]
    assert target.state is not None
    assert target.state.capture == source.captures[number]
    assert target.state.schema.names == tuple(c.name for c in source.captures[number].columns)


def check_stop(table: StreamTable, source: AlteredSource, high: int) -> None:
    """Only for a step up to HIGH that moves values between columns; it is not in the target."""
    assert table.error is not None
    assert table.error.reason is Reason.SCHEMA_CHANGE_REFUSED
    position = table.state.position
    assert isinstance(position, FilePosition)
    behind = source.done[position.at.offset - 100 : high]
    assert any(isinstance(done, Statement) and ("CHANGE" in done.sql or "RENAME" in done.sql) for done in behind)
