"""The splits that are still to be read, in key order, as the planner delivers them.

The plan is a hint, the target's commit is the truth: where the shards continue another frontier
than the target's (the state file was deleted, a wave was committed and not reported), the table is
planned here. So is the rest of a plan that breaks off: what kept the planner from it is met here,
by the table that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.runs.run import PlanShard
from cdcsync_core.tables.capture import Capture

#: the splits of a table from a frontier on, as the driver plans them by itself
OwnPlan = Callable[[Capture, int, Bound], Iterator[Split]]
_POLL_SECONDS = 0.05


@dataclass
class PlanFeed:
    """The plan of table number `index` of a run. `own_plan` gives the splits that no shard has;
    `wait(seconds)` is called until the next shard is there, and may raise.

    `planned_before` counts the splits that were finished before the run, up to `frontier`. A plan
    that continues another frontier does not count, and neither does one that is `stale`: made for
    another definition than the target's, its bounds may be of other columns.
    """

    own_plan: OwnPlan
    plan_dir: Path
    index: int
    table: Capture
    chunk_size: int
    wait: Callable[[float], None]
    planned_before: int = 0
    frontier: Bound = None
    stale: bool = False
    _seen: int = 0
    _next_shard: int = 0
    _counts: bool = True

    def splits(self, frontier: Bound) -> Iterator[Split]:
        """Splits from `frontier` (None: from the beginning) to the open end."""
        first = None if self.stale else self._wait_for_shard(0)
        if first is not None and _continues(first, frontier):
            return self._planned(first, frontier)
        return self._own(frontier)

    def planned(self) -> int:
        """How many splits are known so far."""
        while (path := self._path(self._next_shard)).exists():
            shard = PlanShard.from_json(path.read_text())
            if shard.number == 0:
                self._counts = not self.stale and _continues(shard, self.frontier)
            self._seen += len(shard.splits) if self._counts else 0
            self._next_shard += 1
        return self._seen

    def _planned(self, shard: PlanShard, frontier: Bound) -> Iterator[Split]:
        at, whole = frontier, False
        while True:
            for split in shard.splits:
                yield split
                at, whole = split.end, split.end is None
            if shard.last:
                break
            shard = self._wait_for_shard(shard.number + 1)
        if not whole:
            yield from self._own(at)

    def _own(self, frontier: Bound) -> Iterator[Split]:
        for split in self.own_plan(self.table, self.chunk_size, frontier):
            self._seen += 1
            yield split

    def _path(self, number: int) -> Path:
        return self.plan_dir / PlanShard.filename(self.index, number)

    def _wait_for_shard(self, number: int) -> PlanShard:
        path = self._path(number)
        while not path.exists():
            self.wait(_POLL_SECONDS)
        return PlanShard.from_json(path.read_text())


def _continues(shard: PlanShard, frontier: Bound) -> bool:
    return shard.frontier == (None if frontier is None else list(frontier))
