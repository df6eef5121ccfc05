"""What each table needs, cell by cell, and which kind of run serves it (R5)."""

from __future__ import annotations

import itertools

import pytest

from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import only_tables
from cdcsync_core.runs.table_status import POSITIONED, TableStatus
from cdcsync_operator.decision.needs import NEEDS, Content, Need, content, need, needs
from cdcsync_operator.decision.runs.kinds import RUNS
from unit.controller.harness import ControllerHarness

RESTING = {TablePhase.FAILED, TablePhase.UNASSIGNED}


@pytest.mark.parametrize(("phase", "found"), list(itertools.product(TablePhase, Content)))
def test_every_cell(phase: TablePhase, found: Content) -> None:
    if phase in RESTING:
        expected = Need.NOTHING
    elif phase not in POSITIONED or found is Content.OUTDATED:
        expected = Need.SNAPSHOT
    else:
        expected = Need.STREAM if found is Content.CURRENT else Need.CATCH_UP
    assert NEEDS[phase][found] is expected


@pytest.mark.parametrize(
    ("generation", "asked", "streamed", "expected"),
    [
        (0, 1, {"shop.a": 0}, Content.OUTDATED),
        (1, 1, {"shop.a": 0}, Content.BEHIND),
        (0, 0, {}, Content.BEHIND),
        (1, 1, {"shop.a": 1}, Content.CURRENT),
        (2, 0, {"shop.a": 2}, Content.CURRENT),
        (0, 0, None, Content.CURRENT),
    ],
)
def test_content_is_what_the_resource_asks_for_and_the_stream_has(
    generation: int, asked: int, streamed: dict[str, int] | None, expected: Content
) -> None:
    assert content(TableStatus(name="shop.a", generation=generation), asked, streamed) is expected


def test_no_table_changes_what_another_one_needs() -> None:
    """R5: the needs of all tables are those of each alone."""
    harness = ControllerHarness()
    tables = [TableStatus(name=f"shop.{p.value}", phase=p) for p in TablePhase]
    together = needs(harness.resource.spec, only_tables(harness.status, tables), {})
    alone = [
        needs(harness.resource.spec, only_tables(harness.status, [t]), {}) for t in sorted(tables, key=lambda t: t.name)
    ]
    assert together.unread == tuple(found for n in alone for found in n.unread)
    assert together.behind == tuple(found for n in alone for found in n.behind)
    assert together.streamable == tuple(found for n in alone for found in n.streamable)


def test_every_need_is_served_by_one_kind_of_run() -> None:
    """A verification serves none: it moves no table."""
    served = [rule.serves for kind, rule in RUNS.items() if kind.copies]
    assert sorted([*served, Need.NOTHING]) == sorted(Need)
    assert RUNS[RunKind.VERIFY].serves is Need.NOTHING
    assert set(RUNS) == set(RunKind)


@pytest.mark.parametrize("kind", [kind for kind in RunKind if kind.copies])
def test_a_run_leaves_a_table_where_it_needs_the_next_one(kind: RunKind) -> None:
    """While a run works its table needs it; what it leaves needs the stream, which has no end."""
    rule = RUNS[kind]
    found = Content.BEHIND if kind is RunKind.CATCH_UP else Content.CURRENT
    assert NEEDS[rule.during][found] is rule.serves
    assert NEEDS[rule.after][Content.CURRENT] is Need.STREAM
    assert need(TableStatus(name="t", phase=rule.after), 0, None) is Need.STREAM
