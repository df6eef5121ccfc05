"""Where a driver gets its splits from: the planner's shards while they continue the target, else
its own plan (rule R4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.runs.run import PlanShard, TableAssignment
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.snapshot.plan_reader import PlanFeed
from cdcsync_spark.snapshot.table import open_table

TABLE = Capture(SourceTable(TableId("shop", "orders"), (Column("id", SourceType.parse("int"), False),)), ("id",))
FIRST, SECOND, LAST = Split(None, (10,)), Split((10,), (20,)), Split((20,), None)


class Stopped(Exception):
    """What `wait` raises when the run is asked to stop."""


class Plan:
    """A plan folder, filled by the planner a shard at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: frontiers from which the driver planned by itself
        self.own: list[Bound] = []
        self.pending: list[tuple[int, PlanShard]] = []
        self.waits = 0

    def feed(self, index: int = 0) -> PlanFeed:
        return PlanFeed(self._plan, self.folder, index, TABLE, 10, self.wait)

    def _plan(self, table: Capture, size: int, frontier: Bound) -> Iterator[Split]:
        assert (table, size) == (TABLE, 10)
        self.own.append(frontier)
        yield Split(frontier, None)

    def write(self, number: int, shard: PlanShard) -> None:
        (self.folder / PlanShard.filename(0, number)).write_text(shard.to_json())

    def wait(self, seconds: float) -> None:
        """Time passes: the planner writes its next shard, or the run is stopped."""
        self.waits += 1
        assert seconds < 1
        if not self.pending:
            raise Stopped
        self.write(*self.pending.pop(0))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path)


def shard(number: int, *splits: Split, frontier: list[Any] | None = None, last: bool = False) -> PlanShard:
    return PlanShard("shop.orders", number, frontier, splits, last)


def test_the_shards_come_in_order(plan: Plan) -> None:
    plan.write(0, shard(0, FIRST))
    plan.write(1, shard(1, SECOND))
    plan.write(2, shard(2, LAST, last=True))
    assert list(plan.feed().splits(None)) == [FIRST, SECOND, LAST]
    assert plan.own == []


def test_splits_are_read_while_the_rest_is_planned(plan: Plan) -> None:
    """The first shard suffices to begin."""
    plan.pending = [(0, shard(0, FIRST)), (1, shard(1, SECOND, LAST, last=True))]
    splits = plan.feed().splits(None)
    assert next(splits) == FIRST
    assert plan.waits == 1
    assert list(splits) == [SECOND, LAST]
    assert plan.waits == 2


def test_a_plan_that_continues_the_target_is_used(plan: Plan) -> None:
    plan.write(0, shard(0, SECOND, LAST, frontier=[10], last=True))
    assert list(plan.feed().splits((10,))) == [SECOND, LAST]
    assert plan.own == []


def test_a_plan_of_another_definition_is_not_used(plan: Plan, tmp_path: Path) -> None:
    """A first snapshot goes on with the definition that its target has; the plan is of a key whose
    columns have changed places since, so its bounds leave gaps between them, or are no literals."""
    columns = (Column("a", SourceType.parse("int"), False), Column("b", SourceType.parse("int"), False))
    before, after = (Capture(SourceTable(TABLE.id, columns), key) for key in (("a", "b"), ("b", "a")))
    sink, lineage = DeltaSink(open_store(str(tmp_path / "lake")), "shop/sync"), Lineage(("server",))
    feed = replace(plan.feed(), own_plan=lambda table, _, __: iter([Split(None, table.key)]))
    open_table(TableAssignment(before, 0), sink, "shop/sync", lineage, 1, feed)
    assert not feed.stale
    plan.write(0, shard(0, FIRST, SECOND, LAST, last=True))
    found = open_table(TableAssignment(after, 0), sink, "shop/sync", lineage, 2, feed)
    assert [list(found.unread_splits()), found.state.capture.key] == [[Split(None, ("a", "b"))], ("a", "b")]
    assert feed.planned() == 1


@pytest.mark.parametrize(("planned", "target"), [(None, (10,)), ([10], None), ([10], (20,)), (["10"], (10,))])
def test_a_plan_that_does_not_continue_the_target_is_not_used(
    plan: Plan, planned: list[Any] | None, target: Bound
) -> None:
    """The target's commit is the truth: a wave was committed and not reported, or the status is
    gone."""
    plan.write(0, shard(0, FIRST, frontier=planned, last=True))
    assert list(plan.feed().splits(target)) == [Split(target, None)]
    assert plan.own == [target]


def test_a_run_that_is_stopped_does_not_wait_for_a_plan(plan: Plan) -> None:
    with pytest.raises(Stopped):
        plan.feed().splits(None)


def test_known_splits_are_counted_once(plan: Plan) -> None:
    """For the progress bar, while the plan grows."""
    feed = plan.feed()
    assert feed.planned() == 0
    plan.write(0, shard(0, FIRST, SECOND))
    assert [feed.planned(), feed.planned()] == [2, 2]
    plan.write(1, shard(1, LAST, last=True))
    assert feed.planned() == 3


def test_a_plan_of_what_the_target_has_already_does_not_count(plan: Plan) -> None:
    """After a lost status the controller plans each table from its beginning: half of all would
    never be read."""
    plan.write(0, shard(0, FIRST, SECOND))
    plan.write(1, shard(1, LAST, last=True))
    feed = plan.feed()
    feed.planned_before, feed.frontier = 1, (10,)
    assert feed.planned() == 0
    assert list(feed.splits((10,))) == [Split((10,), None)]
    assert feed.planned() == 1


@pytest.mark.parametrize("begun", [None, (10,)])
def test_a_plan_that_breaks_off_is_continued_here(plan: Plan, begun: Bound) -> None:
    """What kept the planner from the rest is met here, by the table that it concerns."""
    first = SECOND if begun else FIRST
    plan.write(0, shard(0, first, frontier=list(begun) if begun else None))
    plan.write(1, shard(1, frontier=list(first.end or ()), last=True))
    assert list(plan.feed().splits(begun)) == [first, Split(first.end, None)]
    assert plan.own == [first.end]


def test_a_whole_plan_is_not_continued(plan: Plan) -> None:
    plan.write(0, shard(0, FIRST, SECOND, LAST, last=True))
    assert list(plan.feed().splits(None)) == [FIRST, SECOND, LAST]
    assert plan.own == []
