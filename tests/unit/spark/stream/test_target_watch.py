"""Targets are asked for commits of others in rounds, twice a minute, in the background; those
whose tables have stopped are not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from cdcsync_core.errors import Reason, fail
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.target_watch import TargetWatch


@dataclass
class CountingTarget:
    """A target that counts how often it is asked."""

    news: bool = False
    times: int = 0

    def has_news(self) -> bool:
        self.times += 1
        return self.news


@dataclass
class WatchedTargets:
    now: float = 1000.0
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.targets = {name: CountingTarget() for name in ("a", "b")}
        self.tables = [
            StreamTable(name, cast("Writer", target), cast("TableState", None)) for name, target in self.targets.items()
        ]
        self.watch = TargetWatch(self.tables, lambda: self.now, self.waiting.append)

    def pass_seconds(self, seconds: float) -> list[str]:
        """Whose targets have news then."""
        self.now += seconds
        self.watch.begin()
        while self.waiting:
            self.waiting.pop()()
        return [table.name for table in self.watch.news()]


def test_a_target_is_asked_twice_a_minute() -> None:
    watched = WatchedTargets()
    for _ in range(60):
        assert watched.pass_seconds(1.0) == []
    assert [target.times for target in watched.targets.values()] == [2, 2]
    watched.targets["b"].news = True
    assert watched.pass_seconds(29.0) == []
    assert watched.pass_seconds(1.0) == ["b"]
    assert watched.pass_seconds(1.0) == []


def test_a_table_that_has_stopped_is_left_alone() -> None:
    watched = WatchedTargets()
    watched.tables[0].error = fail(Reason.SINK_CONFLICT, "stopped")
    watched.tables[1].handed_over = True
    watched.pass_seconds(30.0)
    assert [target.times for target in watched.targets.values()] == [0, 0]


def test_a_round_begins_when_the_one_before_has_ended() -> None:
    watched = WatchedTargets()
    watched.now += 30
    watched.watch.begin()
    first = list(watched.waiting)
    watched.now += 30
    for work in first:
        watched.watch.begin()
        assert watched.waiting == first
        work()
    watched.watch.begin()
    assert len(watched.waiting) == 2 * len(first)


def test_targets_are_asked_at_the_same_time() -> None:
    """Each waits until eight are asked."""
    all_asked, now = threading.Barrier(8), [0.0]

    class Slow(CountingTarget):
        def has_news(self) -> bool:
            all_asked.wait(120)
            return True

    tables = [StreamTable(str(n), cast("Writer", Slow()), cast("TableState", None)) for n in range(16)]
    watch = TargetWatch(tables, lambda: now[0])
    now[0] += 30
    watch.begin()
    found: set[str] = set()
    while len(found) < len(tables) and not all_asked.broken:
        found |= {table.name for table in watch.news()}
        time.sleep(0.01)
    assert found == {table.name for table in tables}
