"""The plan's shards: whole, in key order, early, and never in the way of the driver's own plan (R3,
R4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.runs.run import PlanShard
from cdcsync_core.tables.capture import Capture
from cdcsync_operator.reconcile.planning import MAX_SPLITS, PlanFolder, Planner, Splits, TablePlan
from unit.local.harness import table


def splits(count: int, start: Bound = None) -> Iterator[Split]:
    first = 0 if start is None else int(start[0])
    bounds = [start, *((i,) for i in range(first + 1, count)), None]
    return itertools.starmap(Split, itertools.pairwise(bounds))


def shards(folder: Path) -> list[PlanShard]:
    return [PlanShard.from_json(p.read_text()) for p in sorted(folder.glob("*.json"))]


def planned(folder: Path, *plans: TablePlan, make: Splits = lambda _, start: splits(2500, start)) -> Planner:
    planner = Planner("run", PlanFolder(folder), plans, lambda: nullcontext(make))
    planner.run()
    return planner


def test_shards_are_bounded_numbered_and_end_with_the_open_split(tmp_path: Path) -> None:
    planned(tmp_path, TablePlan(0, table("s.a"), None), TablePlan(1, table("s.b"), None))
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{t:05d}-{n:05d}.json" for t in (0, 1) for n in (0, 1, 2)]
    first = [s for s in shards(tmp_path) if s.table == "s.a"]
    assert [len(s.splits) for s in first] == [MAX_SPLITS, MAX_SPLITS, 500]
    assert [s.last for s in first] == [False, False, True]
    joined = [split for s in first for split in s.splits]
    assert joined == list(splits(2500))


def test_each_shard_names_the_frontier_that_it_continues(tmp_path: Path) -> None:
    planned(tmp_path, TablePlan(0, table("s.a"), (7,)))
    first, second, *_ = shards(tmp_path)
    assert first.frontier == [7]
    assert first.splits[0].start == (7,)
    assert second.frontier == list(first.splits[-1].end or ())


def test_a_lost_connection_is_made_again_where_the_plan_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Bound] = []

    def unreliable(_: Capture, start: Bound) -> Iterator[Split]:
        starts.append(start)
        for number, split in enumerate(splits(2500, start)):
            if number == 1200 and len(starts) == 1:
                raise fail(Reason.SOURCE_UNREACHABLE, "gone")
            yield split

    planner = Planner("run", PlanFolder(tmp_path), (TablePlan(0, table("s.a"), None),), lambda: nullcontext(unreliable))
    monkeypatch.setattr(planner._stopping, "wait", lambda _: False)
    planner.run()
    assert starts == [None, (1000,)]
    assert [s for shard in shards(tmp_path) for s in shard.splits] == list(splits(2500))
    assert planner.error is None


def test_one_connection_plans_all_tables_until_it_fails(tmp_path: Path) -> None:
    """A table that cannot be planned may have cost the connection, so the next one gets another."""
    connections: list[list[str]] = []

    def make(table: Capture, start: Bound) -> Iterator[Split]:
        connections[-1].append(table.id.name)
        if table.id.name == "c":
            raise fail(Reason.NO_SUCH_TABLE, "gone")
        return splits(3, start)

    @contextmanager
    def connect() -> Iterator[Splits]:
        connections.append([])
        yield make
        connections[-1].append("closed")

    tables = tuple(TablePlan(i, table(f"s.{name}"), None) for i, name in enumerate("abcd"))
    planner = Planner("run", PlanFolder(tmp_path), tables, connect)
    planner.run()
    assert connections == [["a", "b", "c"], ["d", "closed"]]
    assert [(s.table, len(s.splits)) for s in shards(tmp_path)] == [("s.a", 3), ("s.b", 3), ("s.c", 0), ("s.d", 3)]
    assert planner.error is None


def test_a_source_that_stays_away_is_given_up_for_one_table_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is tried as often as any other, with pauses that grow."""
    pauses: list[float] = []

    @contextmanager
    def connect() -> Iterator[Splits]:
        raise fail(Reason.SOURCE_UNREACHABLE, "gone")
        yield

    tables = (TablePlan(0, table("s.a"), None), TablePlan(1, table("s.b"), None))
    planner = Planner("run", PlanFolder(tmp_path), tables, connect)
    monkeypatch.setattr(planner._stopping, "wait", pauses.append)
    planner.run()
    assert pauses == [1, 2, 3, 4, 5] * 2
    assert [(s.table, s.splits, s.last) for s in shards(tmp_path)] == [("s.a", (), True), ("s.b", (), True)]
    assert planner.error is None


def test_a_planner_that_is_stopped_writes_nothing_more(tmp_path: Path) -> None:
    def lost(_: Capture, __: Bound) -> Iterator[Split]:
        planner.stop()
        raise fail(Reason.SOURCE_UNREACHABLE, "gone")

    tables = (TablePlan(0, table("s.a"), None), TablePlan(1, table("s.b"), None))
    planner = Planner("run", PlanFolder(tmp_path), tables, lambda: nullcontext(lost))
    planner.run()
    assert shards(tmp_path) == []
    assert planner.error is None


def test_a_planner_that_fails_in_any_way_says_so(tmp_path: Path) -> None:
    """Its driver would wait for the rest forever."""

    def fail_late(_: Capture, start: Bound) -> Iterator[Split]:
        yield from itertools.islice(splits(2500, start), 1500)
        raise RuntimeError("can't start new thread")

    planner = planned(tmp_path, TablePlan(0, table("s.a"), None), make=fail_late)
    assert planner.error is not None
    assert planner.error.reason is Reason.INTERNAL_ERROR
    assert "can't start new thread" in planner.error.message


@pytest.mark.parametrize("reason", [Reason.NO_SUCH_TABLE, Reason.TABLE_BUSY])
def test_a_table_that_cannot_be_planned_is_left_to_the_driver(tmp_path: Path, reason: Reason) -> None:
    """At once: the driver plans it itself, as no target has this frontier, and reports what stands
    in the way."""
    asked: list[Bound] = []

    def refuse(_: Capture, start: Bound) -> Iterator[Split]:
        asked.append(start)
        raise fail(reason, "gone")

    planner = planned(tmp_path, TablePlan(0, table("s.a"), None), make=refuse)
    assert len(asked) == 1
    (shard,) = shards(tmp_path)
    assert shard.frontier not in (None, [])
    assert shard.splits == ()
    assert planner.error is None


def test_a_plan_that_breaks_off_leaves_the_rest_to_the_driver(tmp_path: Path) -> None:
    """A zero date on the 1001st boundary is that table's fault alone: the other tables are planned,
    the run goes on."""

    def breaks(table: Capture, start: Bound) -> Iterator[Split]:
        if table.id.name == "b":
            yield from splits(3)
            return
        yield from itertools.islice(splits(2500), MAX_SPLITS)
        raise fail(Reason.TYPE_UNSUPPORTED, "a zero date in the key")

    plans = (TablePlan(0, table("s.a"), None), TablePlan(1, table("s.b"), None))
    planner = planned(tmp_path, *plans, make=breaks)
    first, rest = (s for s in shards(tmp_path) if s.table == "s.a")
    assert (first.last, len(first.splits)) == (False, MAX_SPLITS)
    assert (rest.number, rest.frontier, rest.splits, rest.last) == (1, list(first.splits[-1].end or ()), (), True)
    assert [s.splits for s in shards(tmp_path) if s.table == "s.b"] == [tuple(splits(3))]
    assert planner.error is None
