"""Steps of a table's schema, as every sink that takes them promises: the rows that are there have
the new columns with the values of their origins, state and rows in one commit."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cdcsync_core.capture import Capture
from cdcsync_core.schema_change import Converted, Filled, Kept, Origin
from cdcsync_spark.sinks.base import Empty, Evolve, Sink, Target, Upsert
from contract.sinkcase import Row, batch, content, in_order, keys_of, make_table, rows_of, step, whole_snapshot

BEFORE = {"id": "int(11)", "note": "varchar(20)", "price": "decimal(40,2)", "late": "time", "big": "int(10) unsigned"}
TABLE = make_table(BEFORE, ["id"])
ROWS: list[Row] = [
    (1, "a", "1.50", "-12:00:00", 7),
    (2, None, None, None, None),
    (3, "c", "0.00", "838:59:59", 4294967295),
]


def after(**columns: str) -> Capture:
    return make_table(columns, ["id"])


KEPT = [Kept(name) for name in BEFORE]
#: the columns after a step, their origins, a row and what becomes of it
STEPS: dict[str, tuple[Capture, list[Origin], list[Row]]] = {
    "nothing": (TABLE, [*KEPT], ROWS),
    "a column added": (after(**BEFORE, x="int(11)"), [*KEPT, Filled()], [(*r, None) for r in ROWS]),
    "a column added and filled": (
        after(id="int(11)", x="varchar(9)", **{k: v for k, v in BEFORE.items() if k != "id"}),
        [KEPT[0], Filled("new"), *KEPT[1:]],
        [(r[0], "new", *r[1:]) for r in ROWS],
    ),
    "reordered": (
        make_table(dict(reversed(BEFORE.items())), ["id"]),
        [*reversed(KEPT)],
        [tuple(reversed(r)) for r in ROWS],
    ),
    "dropped": (after(id="int(11)", note="varchar(20)"), KEPT[:2], [r[:2] for r in ROWS]),
    "names exchanged": (
        after(id="int(11)", note="decimal(40,2)", price="varchar(20)"),
        [Kept("id"), Kept("price"), Kept("note")],
        [(r[0], r[2], r[1]) for r in ROWS],
    ),
    "dropped and added again": (TABLE, [KEPT[0], Filled(), *KEPT[2:]], [(r[0], None, *r[2:]) for r in ROWS]),
    "converted": (
        after(id="bigint(20)", note="text", price="decimal(50,4)", late="time(3)", big="bigint(20) unsigned"),
        [Converted("id"), Kept("note"), Converted("price", 4), Converted("late", 3), Converted("big")],
        [
            (1, "a", "1.5000", "-12:00:00.000", Decimal(7)),
            (2, None, None, None, None),
            (3, "c", "0.0000", "838:59:59.000", Decimal(4294967295)),
        ],
    ),
}


@pytest.fixture(autouse=True)
def takes_steps(sink: Sink) -> None:
    if not sink.capabilities.changes >= {Evolve, Empty}:
        pytest.skip("a sink without steps")


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
