"""A chunk plan as ConfigMaps, within bounds: what a plan may put into the cluster's etcd ahead of
its driver, and all plans together.

Why it exists: a plan does not wait for its driver, and a source that means harm invents keys
without end, long ones; a sync may ask for one row a split.

Why it is right: a plan is a hint. Beyond its bounds a shard is refused here, and the planner breaks
that table's plan off with a last shard without splits (see `planning`), after which the driver
plans the rest by itself, in its own pod. Such last shards are taken whatever is there: they are
small, one for each table of the run. A map counts as what the API server stores of it, at least a
page, so many small ones are bounded, too. What a run's maps take is freed when they are deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cdcsync_core.errors import Reason, fail
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import PlanShard
from cdcsync_kube.client import Object
from cdcsync_operator.cluster.objects import run_objects
from cdcsync_operator.cluster.quota.room import Room

#: of one run: bytes of its maps, and splits; 200,000 splits of the default size are ten billion
#: rows
MOST_BYTES, MOST_SPLITS = 8 * 2**20, 200_000
#: of one map, as text before it is compressed: what does not compress grows by a third, and a map
#: may have 1 MiB
_MAP_TEXT, _MAP_SPLITS = 700_000, 1000
#: what a map takes at most, and a small one with its names and labels
_MAP_MOST, _MAP_LEAST = 2**20, 4096
_FLUSH_SECONDS = 1.0


@dataclass
class PlanMaps:
    """The plan of `run` as a `PlanSink`. `create` makes a ConfigMap, `planned` marks the plan as
    whole, of so many bytes; they raise CdcError. Shards that come within a second share a map."""

    resource: CdcSync
    run: str
    room: Room
    clock: Callable[[], float]
    create: Callable[[Object], None]
    planned: Callable[[int], None]
    most_splits: int = MOST_SPLITS
    _waiting: list[tuple[int, PlanShard]] = field(default_factory=list)
    _text: int = 0
    _number: int = 0
    _splits: int = 0
    _flushed_at: float = 0.0
    bytes: int = 0

    def write(self, table_index: int, shard: PlanShard) -> None:
        """Raises SpecInvalid where the plan must end before this shard."""
        size = len(shard.to_json())
        if shard.splits:
            self._make_room(shard, size)
        if self._text + size > _MAP_TEXT:
            self._flush(last=False)
        self._waiting.append((table_index, shard))
        self._text, self._splits = self._text + size, self._splits + len(shard.splits)
        full = sum(len(s.splits) for _, s in self._waiting) >= _MAP_SPLITS
        if full or self.clock() - self._flushed_at >= _FLUSH_SECONDS:
            self._flush(last=False)

    def finish(self) -> None:
        self._flush(last=True)
        self.planned(self.bytes)

    def _make_room(self, shard: PlanShard, size: int) -> None:
        """For the maps that this shard goes into and completes."""
        problem = ""
        if size > _MAP_TEXT:
            problem = f"a shard of {len(shard.splits)} splits with {size} bytes"
        elif self.bytes >= MOST_BYTES or self._splits >= self.most_splits:
            problem = f"a plan of {self._splits} splits with {self.bytes} bytes"
        elif not self.room.put(self.resource.metadata.namespace, self.run, self.bytes + 2 * _MAP_MOST):
            problem = "no room for the plan with those of other syncs"
        if problem:
            raise fail(Reason.SPEC_INVALID, problem, needed="a plan within the operator's bounds", table=shard.table)

    def _flush(self, *, last: bool) -> None:
        body = run_objects.plan_map(self.resource, self.run, self._number, self._waiting, last=last)
        self.create(body)
        self.bytes += max(_MAP_LEAST, len(body["binaryData"]["plan.json.gz"]))
        self.room.put(self.resource.metadata.namespace, self.run, self.bytes)
        self._waiting, self._text, self._number, self._flushed_at = [], 0, self._number + 1, self.clock()
