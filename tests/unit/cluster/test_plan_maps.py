"""A chunk plan as ConfigMaps: bounded, whatever its source invents; what lies beyond is left to the
driver (R3, R4)."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.runs.run import PlanShard, RunKind
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.objects.run_objects import PLANNED
from cdcsync_operator.cluster.quota.room import Room, RoomBounds, Rooms
from cdcsync_operator.cluster.runs.drivers import KubeDrivers
from cdcsync_operator.cluster.runs.plan_maps import MOST_BYTES, MOST_SPLITS
from cdcsync_operator.decision.observed import ForgetRun, StartRun
from support.plan_tables import BASE, planned_table
from unit.cluster.fake_api import FakeApi
from unit.controller.harness import resource

RUN = "shop-ab12-1"
_MAP = 2**20
Invented = Callable[[Capture, Bound], Iterator[Split]]


def endless_keys(size: int) -> Invented:
    """Random ones, as hexadecimal digits of `size` bytes."""
    chance = random.Random(size)

    def splits(_: Capture, start: Bound) -> Iterator[Split]:
        while True:
            end = (chance.randbytes(size).hex(),)
            yield Split(start, end)
            start = end

    return splits


def a_row_a_split(_: Capture, start: Bound) -> Iterator[Split]:
    for number in itertools.count(1):
        yield Split(start, (number,))
        start = (number,)


class SnapshotCluster:
    """Snapshots of one operator; `now` stands still, so that a map is made of what fills it."""

    def __init__(
        self, splits: Invented, room: Room | None = None, namespace: str = "lake", most_splits: int = MOST_SPLITS
    ) -> None:
        self.most_splits = most_splits
        self.api, self.room = FakeApi(), room or Room(RoomBounds(2**40, 0, 1))
        self.about = resource().model_copy(
            update={"metadata": resource().metadata.model_copy(update={"namespace": namespace, "uid": "u"})}
        )
        self.drivers = self.operator(splits)

    def operator(self, splits: Invented) -> KubeDrivers:
        namespace = self.about.metadata.namespace
        return KubeDrivers(
            self.api, namespace, "shop", lambda: "u", Image("x"), lambda: 0.0, lambda: None, planned_table,
            lambda _: nullcontext(splits),
            rooms=Rooms(plans=self.room), most_splits=self.most_splits,
        )  # fmt: skip

    def planned(self, run: str = RUN, tables: tuple[tuple[str, int], ...] = (("shop.a", 0),)) -> list[PlanShard]:
        """The whole plan of a run, as its driver gets it."""
        self.drivers.start(self.about, StartRun(RunKind.SNAPSHOT, run, 1, tables, "f"), Status())
        planner = self.drivers._runs[run].planner
        assert planner is not None
        planner.join(120)
        assert not planner.is_alive()
        assert planner.error is None
        return [PlanShard.from_json(json.dumps(s["shard"])) for m in self.contents(run) for s in m["shards"]]

    def maps(self, run: str) -> list[str]:
        """In their order."""
        prefix = f"/api/v1/namespaces/{self.about.metadata.namespace}/configmaps/{run}-plan-"
        found = sorted((int(p.removeprefix(prefix)), p) for p in self.api.objects if p.startswith(prefix))
        return [self.api.objects[path]["binaryData"]["plan.json.gz"] for _, path in found]

    def contents(self, run: str) -> list[dict[str, list[dict[str, object]]]]:
        return [json.loads(gzip.decompress(base64.b64decode(text))) for text in self.maps(run)]

    def forget(self, run: str = RUN) -> None:
        self.drivers.forget(ForgetRun(RunKind.SNAPSHOT, run))


@pytest.mark.parametrize("size", [300, 3072])
def test_keys_without_end_are_bounded_and_the_rest_is_the_drivers(size: int) -> None:
    cluster = SnapshotCluster(endless_keys(size))
    shards = cluster.planned()
    sizes = [len(text) for text in cluster.maps(RUN)]
    assert max(sizes) < _MAP
    assert MOST_BYTES <= sum(sizes) < MOST_BYTES + 2 * _MAP
    *given, left = shards
    assert (left.splits, left.last) == ((), True)
    assert left.frontier == list(given[-1].splits[-1].end or ()), "the driver goes on where the plan breaks off"
    assert [s.last for s in given] == [False] * len(given)
    assert cluster.api.objects[f"{BASE}/configmaps/{RUN}-report-0"]["metadata"]["annotations"][PLANNED] == str(
        sum(sizes)
    )


def test_a_key_that_no_map_holds_leaves_the_table_to_its_driver() -> None:
    cluster = SnapshotCluster(endless_keys(10**6))
    (left,) = cluster.planned()
    assert (left.splits, left.last) == ((), True)


def test_one_row_a_split_is_bounded() -> None:
    """In number: such plans cost the operator's processor rather than its memory."""
    shards = SnapshotCluster(a_row_a_split, most_splits=3000).planned()
    assert sum(len(s.splits) for s in shards) == 3000
    assert shards[-1].last
    assert MOST_SPLITS == 200_000


def test_a_table_that_is_broken_off_holds_back_no_other() -> None:
    """Each of those behind it is left to the driver, too."""
    shards = SnapshotCluster(a_row_a_split, most_splits=3000).planned(tables=(("shop.a", 0), ("shop.b", 0)))
    assert [(s.table, s.last, len(s.splits)) for s in shards[-2:]] == [("shop.a", True, 0), ("shop.b", True, 0)]


def test_all_plans_together_are_bounded_and_leave_room_to_other_namespaces() -> None:
    room = Room(RoomBounds(total=24 * _MAP, own=4 * _MAP, namespaces=4))
    evil, good = SnapshotCluster(endless_keys(3072), room, "evil"), SnapshotCluster(endless_keys(8), room, "good")
    runs = [f"shop-ab12-{n}" for n in range(1, 5)]
    for run in runs:
        evil.planned(run)
    assert sum(len(text) for run in runs for text in evil.maps(run)) <= 12 * _MAP
    shards = good.planned()
    assert sum(len(s.splits) for s in shards) > 10_000, "more than a namespace's own room holds"
    for run in runs:
        evil.forget(run)
    assert room.held("evil") == 0
    assert evil.maps(RUN) == []


def test_what_an_operator_before_this_one_planned_counts() -> None:
    cluster = SnapshotCluster(endless_keys(3072))
    cluster.planned()
    held = cluster.room.held("lake")
    assert held == sum(len(text) for text in cluster.maps(RUN))
    cluster.room = Room(RoomBounds(2**40, 0, 1))
    successor = cluster.operator(a_row_a_split)
    successor.observe(Status())
    assert cluster.room.held("lake") == held
    successor.close()
    assert cluster.room.held("lake") == 0
