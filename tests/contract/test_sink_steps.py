"""Steps of a table's schema, as every sink promises: the rows that are there have the new columns
with the values of their origins, state and rows in one commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.state import TableState
from cdcsync_core.tables.logical_type import LogicalType
from cdcsync_core.tables.schema_change import Kept
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema
from cdcsync_spark.rows.arrow_types import projected
from cdcsync_spark.sinks.contract.changes import Commit, Empty, Evolve, Upsert
from cdcsync_spark.sinks.contract.sink import Target
from contract.sinkcase import batch, content, in_order, keys_of, rows_of, step, whole_snapshot
from contract.stepcase import BEFORE, KEPT, ROWS, STEPS, TABLE, after


@pytest.mark.parametrize("name", STEPS)
def test_rows_have_the_new_columns_with_the_values_of_their_origins(target: Target, name: str) -> None:
    table, origins, rows = STEPS[name]
    whole_snapshot(target, ROWS, TABLE)
    state = target.commit(1, step(1, table, origins))
    assert target.last_commit() == state
    assert target.open_snapshot().schema.names == [c.name for c in table.captured]
    assert content(target) == in_order(rows)


@pytest.mark.parametrize("name", STEPS)
def test_the_stream_goes_on_after_a_step(target: Target, name: str) -> None:
    """Rows were deleted and changed before it, too."""
    table, origins, rows = STEPS[name]
    whole_snapshot(target, [*ROWS, (4, "gone", None, None, 1), (5, "old", None, None, 2)], TABLE)
    target.commit(1, batch(1, Upsert(rows_of(TABLE, []), keys_of(TABLE, [(4,), (5,)]))))
    target.commit(1, step(2, table, origins))
    assert content(target) == in_order(rows)
    names = [c.name for c in table.captured]
    changed = tuple(2 if n == "id" else v for n, v in zip(names, rows[0], strict=True))
    target.commit(1, batch(3, Upsert(rows_of(table, [changed]), keys_of(table, [(1,)]))))
    assert content(target) == in_order([changed, rows[2]])


def test_a_replayed_step_is_a_no_op_by_the_state(target: Target) -> None:
    whole_snapshot(target, ROWS, TABLE)
    table, origins, rows = STEPS["names exchanged"]
    first = target.commit(1, step(1, table, origins))
    assert target.commit(1, step(1, table, origins)) == first
    assert content(target) == in_order(rows)


def test_emptied_and_filled_again(target: Target) -> None:
    before = whole_snapshot(target, ROWS, TABLE)
    state = target.commit(1, batch(1, Empty()))
    assert (content(target), state.commit_number) == ([], before.commit_number + 1)
    target.commit(1, batch(2, Upsert(rows_of(TABLE, ROWS[:1]), keys_of(TABLE, [(2,)]))))
    assert content(target) == ROWS[:1]


def test_a_name_that_comes_back_brings_no_values_back(target: Target) -> None:
    whole_snapshot(target, ROWS, TABLE)
    without = after(**{k: v for k, v in BEFORE.items() if k != "note"})
    target.commit(1, step(1, without, [k for k in KEPT if k.source != "note"]))
    table, origins, rows = STEPS["dropped and added again"]
    target.commit(1, step(2, table, origins))
    assert content(target) == in_order(rows)


def test_a_dropped_column_that_is_kept_is_null_in_what_is_written_from_then_on(target: Target) -> None:
    """Rows that are not written again keep its values."""
    whole_snapshot(target, ROWS, TABLE)
    without = after(**{k: v for k, v in BEFORE.items() if k != "note"})
    kept = TargetColumn("note", LogicalType("string"), None)
    schema = TargetSchema((*TargetSchema.of(without).columns, kept), ("id",))
    origins = (*(k for k in KEPT if k.source != "note"), Kept("note"))

    def drop(found: TableState) -> Commit:
        state = replace(found, capture=without, schema=schema, commit_number=found.commit_number + 1, epoch=1)
        return Commit(state, Evolve(origins))

    target.commit(1, drop)
    changed = rows_of(without, [(3, "9.00", None, 1), (4, None, None, None)])

    def write(found: TableState) -> Commit:
        state = replace(found, commit_number=found.commit_number + 1)
        return Commit(state, Upsert(projected(changed, found.schema), keys_of(without, [])))

    assert target.commit(1, write).schema == schema
    assert content(target) == in_order([
        (1, "1.50", "-12:00:00", 7, "a"),
        (2, None, None, None, None),
        (3, "9.00", None, 1, None),
        (4, None, None, None, None),
    ])  # fmt: skip
