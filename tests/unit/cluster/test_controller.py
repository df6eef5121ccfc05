"""One sync on a simulated API server: what errors between any two steps leave behind, and another
resource of its name."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.timestamps import utc
from cdcsync_kube.client import ApiError, Object
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.decision.observed import ObservedTable, PreflightResult
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls
from unit.cluster.fake_api import FakeApi
from unit.controller.harness import ControllerHarness, place, resource

SYNCS = "/apis/cdcsync.io/v1alpha1/namespaces/lake/cdcsyncs"
SYNC = f"{SYNCS}/shop"
CORE = "/api/v1/namespaces/lake"
SECRET: Object = {
    "metadata": {"name": "login", "labels": {"cdcsync.io/source": "true"}},
    "data": {"username": "eA==", "password": "eA=="},
}


def table(name: str) -> Capture:
    return Capture(
        SourceTable(TableId(*name.split(".")), (Column("id", SourceType.parse("int"), nullable=False),)), ("id",)
    )


@dataclass
class PlannedCluster:
    """`names` are on the source; `splits` gives a table's plan."""

    names: tuple[str, ...] = ("shop.a", "shop.b")
    splits: Callable[[Bound], Iterator[Split]] = lambda start: iter((Split(start, None),))
    api: FakeApi = field(default_factory=FakeApi)
    policy: PodPolicy = field(default_factory=PodPolicy)
    preflights: list[str] = field(default_factory=list)
    given_up: list[Path] = field(default_factory=list)
    woken: threading.Event = field(default_factory=threading.Event)
    wall: Callable[[], float] = time.time
    #: seconds by which the controllers' clock is ahead
    ahead: float = 0.0

    def __post_init__(self) -> None:
        self.api.add(f"{CORE}/secrets", SECRET)

    def create(self, uid: str = "u", status: Status | None = None, **spec: Any) -> None:
        body = resource(**spec).model_dump(by_alias=True, mode="json", exclude_none=True)
        body["metadata"] = {"name": "shop", "namespace": "lake", "uid": uid, "generation": 1}
        shown = {} if status is None else status.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.api.add(SYNCS, body | {"status": shown})

    def operator(self) -> KubeController:
        calls = SourceCalls(
            self._look,
            lambda r, s: LogOffset("b.000001", 1),
            lambda r, s: nullcontext(lambda t, start: self.splits(start)),
            self.given_up.append,
        )
        settings = OperatorSettings(Image("x"), self.policy)
        return KubeController(self.api, settings, "lake", "shop", calls, self.clock, self.woken.set)

    def clock(self) -> float:
        return self.wall() + self.ahead

    def _look(self, about: CdcSync, _: Path, __: frozenset[str] | None) -> PreflightOutcome:
        self.preflights.append(about.metadata.uid)
        names = [n for n in self.names if about.spec.tables.selection.captures(n)]
        seen = PreflightResult(about.metadata.generation, time.time(), (), tuple(ObservedTable(n) for n in names))
        return PreflightOutcome(seen, {n: table(n) for n in names})

    @property
    def status(self) -> Status:
        return Status.model_validate(self.api.objects[SYNC]["status"])

    def pods(self) -> list[str]:
        return [path for path in self.api.objects if path.startswith(f"{CORE}/pods/")]

    def show(self, **status: Any) -> None:
        (pod,) = self.pods()
        self.api.objects[pod]["status"] = status

    def report(self, number: int, *names: str, **more: Any) -> None:
        """The stream's driver has these tables."""
        head = {"number": number, "at": self.clock(), "lag_seconds": 0.1} | more
        head["position"] = place(400 + number) | {"timestamp": utc(self.clock())}
        entries = [{"name": n, "phase": "Streaming", "position": place(400 + number), "number": number} for n in names]
        (path,) = (p for p in self.api.objects if p.endswith("-report-0"))
        self.api.objects[path]["data"] |= {"head": json.dumps(head), "tables": json.dumps({"entries": entries})}

    def refuse(self, method: str, part: str, status: int, times: int = 1) -> None:
        """The next calls of this kind."""
        left = iter(range(times))

        def refused(m: str, path: str) -> ApiError | None:
            mine = m == method and part in path and next(left, None) is not None
            return ApiError(status, "", "not now") if mine else None

        self.api.refuse = refused


@pytest.fixture
def cluster() -> PlannedCluster:
    return PlannedCluster()


@pytest.fixture
def start(cluster: PlannedCluster) -> Iterator[Callable[[], KubeController]]:
    made: list[KubeController] = []

    def begin() -> KubeController:
        made.append(cluster.operator())
        return made[-1]

    yield begin
    for controller in made:
        controller.close()


Start = Callable[[], KubeController]


def reconcile_until(controller: KubeController, what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        controller.reconcile()
        time.sleep(0.01)


def streaming(**spec: Any) -> Status:
    """The status of a sync whose stream is to be begun."""
    harness = ControllerHarness(resource=resource(**spec), now=time.time() - 100)
    harness.to_streaming()
    return harness.status.with_(runs=type(harness.status.runs)())


# ---- what cannot be reconciled


def to_streaming(cluster: PlannedCluster, controller: KubeController) -> str:
    """The stream's pod runs, and data flows; its path."""
    cluster.create(status=streaming())
    reconcile_until(controller, cluster.pods)
    (pod,) = cluster.pods()
    cluster.show(phase="Running", containerStatuses=[{"name": "driver", "state": {"running": {}}}])
    cluster.report(1, *cluster.names)
    reconcile_until(controller, lambda: cluster.status.condition("Ready").status == "True")
    return pod


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("head", {"number": 2, "at": "x"}),
        ("head", {"number": 2, "at": 1.0, "flow": {"seconds_since_event": [1]}}),
        ("head", "[" * 100_000),
        ("run", {"kind": "stream", "tables": [["shop.a"]]}),
        ("run", {"kind": "another"}),
        ("tables", {"entries": [{"name": "shop.a", "phase": "Streaming"}]}),
        ("tables", {"entries": [{"name": "shop.a", "phase": "Another", "number": 9}]}),
        ("tables", {"entries": {"name": "shop.a"}}),
        ("tables", []),
    ],
)
def test_a_driver_whose_report_cannot_be_read_is_replaced(
    cluster: PlannedCluster, start: Start, part: str, text: Any
) -> None:
    """It had died, and nothing would be known of it."""
    controller = start()
    pod = to_streaming(cluster, controller)
    cluster.report(9, *cluster.names)
    (path,) = (p for p in cluster.api.objects if p.endswith("-report-0"))
    cluster.api.objects[path]["data"][part] = text if isinstance(text, str) else json.dumps(text)
    terminated = {"exitCode": 137, "reason": "OOMKilled"}
    cluster.show(phase="Failed", containerStatuses=[{"name": "driver", "state": {"terminated": terminated}}])
    controller.reconcile()
    ready, restarts = cluster.status.condition("Ready"), cluster.status.restarts
    assert (ready.status, restarts.reason, restarts.consecutive) == ("False", "InternalError", 1)
    assert restarts.message.startswith(f"the report of the run {pod.rpartition('/')[2].removesuffix('-driver')} cannot")
    cluster.ahead = 3600
    reconcile_until(controller, lambda: [p for p in cluster.pods() if p != pod])


def test_a_live_driver_whose_report_cannot_be_read_is_asked_to_go(cluster: PlannedCluster, start: Start) -> None:
    controller = start()
    pod = to_streaming(cluster, controller)
    (path,) = (p for p in cluster.api.objects if p.endswith("-report-0"))
    cluster.api.objects[path]["data"]["head"] = json.dumps({"number": "many"})
    controller.reconcile()
    assert "deletionTimestamp" in cluster.api.objects[pod]["metadata"]
    assert cluster.status.condition("Ready").status == "False"
    del cluster.api.objects[pod]
    controller.reconcile()
    assert (cluster.status.restarts.reason, cluster.status.restarts.consecutive) == ("InternalError", 1)


def test_a_sync_at_which_the_operator_fails_is_not_ready(
    cluster: PlannedCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = start()
    to_streaming(cluster, controller)

    def fail(*_: object) -> None:
        raise TypeError("what a tenant wrote")

    with monkeypatch.context() as patched:
        patched.setattr(controller._drivers, "observe", fail)
        for _ in range(3):
            with pytest.raises(TypeError):
                controller.reconcile()
    ready = cluster.status.condition("Ready")
    assert (ready.status, ready.reason) == ("False", "InternalError")
    assert ready.message == "the operator failed with TypeError; its log has more"
    assert controller.status.condition("Ready").status == "False", "the metrics are of this status"
    events = [b["reason"] for b in cluster.api.bodies if b and b.get("kind") == "Event"]
    assert events.count("InternalError") == 1
    controller.reconcile()
    assert cluster.status.condition("Ready").status == "True"


@pytest.mark.parametrize("refusals", [3, 10])
def test_a_sync_of_which_the_api_server_refuses_a_part_for_long_is_not_ready(
    cluster: PlannedCluster, start: Start, refusals: int
) -> None:
    """As where the operator has lost a right."""
    controller = start()
    to_streaming(cluster, controller)
    cluster.refuse("GET", "/pods", 403, times=refusals)
    for _ in range(refusals):
        controller.reconcile()
    ready = cluster.status.condition("Ready")
    assert ready.status == ("True" if refusals < 7 else "False")
    assert refusals < 7 or "the API server refuses what the operator asks for: not now" in ready.message
    controller.reconcile()
    assert cluster.status.condition("Ready").status == "True"


def test_reports_that_wait_for_the_operators_memory_are_no_refusal_of_the_api_server(
    cluster: PlannedCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of another namespace's reports are being merged meanwhile."""
    controller = start()
    to_streaming(cluster, controller)
    cluster.report(2, "shop.a", "shop.b")
    monkeypatch.setattr(controller.rooms.read_reports, "put", lambda *_: False)
    for _ in range(10):
        controller.reconcile()
    assert controller.failures == 10
    assert cluster.status.condition("Ready").status == "True"


# ---- a driver that reports nothing


def pass_time(cluster: PlannedCluster, controller: KubeController, seconds: int) -> None:
    """As much time passes, in which the operator reconciles every ten seconds."""
    for _ in range(seconds // 10):
        cluster.ahead += 10
        controller.reconcile()


def is_asked_to_go(cluster: PlannedCluster, pod: str) -> bool:
    return "deletionTimestamp" in cluster.api.objects[pod]["metadata"]


FLOW = {"connected": True, "seconds_since_event": 0.1, "waiting": 0.0}


def to_flow(cluster: PlannedCluster, controller: KubeController) -> str:
    """From then on no time passes but by `pass_time`, however slow the machine is."""
    pod = to_streaming(cluster, controller)
    cluster.wall = partial(float, cluster.wall())
    cluster.report(2, *cluster.names, flow=FLOW)
    controller.reconcile()
    return pod


def test_a_driver_that_hangs_is_replaced(cluster: PlannedCluster, start: Start) -> None:
    controller = start()
    pod = to_flow(cluster, controller)
    pass_time(cluster, controller, 590)
    assert cluster.status.condition("Ready").reason == "Silent"
    assert not is_asked_to_go(cluster, pod)
    pass_time(cluster, controller, 20)
    assert is_asked_to_go(cluster, pod)
    del cluster.api.objects[pod]
    controller.reconcile()
    restarts = cluster.status.restarts
    assert (restarts.reason, restarts.consecutive) == ("DriverLost", 1)
    assert restarts.message.startswith("the stream's driver has not reported for 10 min")
    pass_time(cluster, controller, 60)
    reconcile_until(controller, cluster.pods)
    assert pod not in cluster.pods()


def test_a_driver_counts_as_lost_only_where_its_reports_would_have_come(cluster: PlannedCluster, start: Start) -> None:
    """Not while the API server refuses, after the operator has stood still, or with a new
    operator."""
    controller = start()
    pod = to_flow(cluster, controller)
    pass_time(cluster, controller, 400)
    cluster.refuse("PUT", "/status", 500)
    cluster.api.objects[SYNC]["spec"]["driver"] = {"serviceAccountName": "cloud"}  # something is to be written
    cluster.api.objects[SYNC]["metadata"]["generation"] = 2
    pass_time(cluster, controller, 400)
    assert not is_asked_to_go(cluster, pod), "the API server has refused"
    cluster.ahead += 24 * 3600
    pass_time(cluster, controller, 400)
    assert not is_asked_to_go(cluster, pod), "the operator stood still"
    controller = start()
    pass_time(cluster, controller, 400)
    assert not is_asked_to_go(cluster, pod), "another operator"
    pass_time(cluster, controller, 300)
    assert is_asked_to_go(cluster, pod)


def test_a_driver_whose_clock_is_behind_flows(cluster: PlannedCluster, start: Start) -> None:
    controller = start()
    pod = to_flow(cluster, controller)
    for number in range(3, 90):
        cluster.report(number, *cluster.names, flow=FLOW, at=cluster.clock() - 7200)
        pass_time(cluster, controller, 10)
        assert cluster.status.condition("Ready").status == "True"
    assert not is_asked_to_go(cluster, pod)


def test_a_stream_with_an_end_may_work_on_without_a_report(cluster: PlannedCluster, start: Start) -> None:
    """It commits all its tables once more, by the thousands."""
    controller = start()
    pod = to_flow(cluster, controller)
    (path,) = (p for p in cluster.api.objects if p.endswith("-report-0"))
    about = json.loads(cluster.api.objects[path]["data"]["run"])
    cluster.api.objects[path]["data"]["run"] = json.dumps(about | {"stopAt": "end"})
    pass_time(cluster, controller, 1200)
    assert not is_asked_to_go(cluster, pod)


# ---- another resource of the name


@pytest.mark.parametrize("preflight", [False, True])
def test_another_resource_of_the_name_is_reconciled_from_scratch(
    cluster: PlannedCluster, start: Start, preflight: bool
) -> None:
    """Deleted and created again between two reconciliations, both times in generation 1; also
    during a preflight of the old one."""
    cluster.create("old")
    controller = start()
    controller.reconcile()
    if not preflight:
        reconcile_until(controller, lambda: cluster.preflights and controller._source.outcome())
    for path in [p for p in cluster.api.objects if "/secrets/" not in p]:
        del cluster.api.objects[path]
    cluster.create("new", tables={"include": [r"shop\.b"]})
    cluster.woken.clear()
    assert controller.reconcile() is None
    assert cluster.woken.is_set(), "the new one is reconciled at once"
    controller = start()
    reconcile_until(controller, cluster.pods)
    assert cluster.preflights[-1] == "new"
    assert [t.name for t in cluster.status.table_status] == ["shop.b"]


def test_the_plan_of_a_deleted_resource_is_left(cluster: PlannedCluster) -> None:
    asked = iter(range(10**9))

    def endless(_: Bound) -> Iterator[Split]:
        for number in asked:
            time.sleep(0.01)
            yield Split(None if number == 0 else (number,), (number + 1,))

    cluster.splits = endless
    cluster.create()
    controller = cluster.operator()
    reconcile_until(controller, cluster.pods)
    (planner,) = (run.planner for run in controller._drivers._runs.values() if run.planner)
    controller.close()
    planner.join(120)
    assert not planner.is_alive()
    assert planner.error is None


# ---- a spec that the policy refuses


def test_a_refused_sync_is_watched_and_can_be_paused(cluster: PlannedCluster, start: Start) -> None:
    """The policy was tightened under a stream that flows."""
    spec = {"driver": {"podTemplate": {"metadata": {"labels": {"team": "lake"}}}}}
    cluster.create(status=streaming(**spec), **spec)
    controller = start()
    reconcile_until(controller, cluster.pods)
    cluster.show(phase="Running", containerStatuses=[{"name": "driver", "state": {"running": {}}}])
    cluster.report(1, "shop.a", "shop.b")
    reconcile_until(controller, lambda: cluster.status.condition("Ready").status == "True")
    cluster.policy = PodPolicy(allow_pod_template=False)
    controller = start()
    cluster.report(2, "shop.a", "shop.b")
    reconcile_until(controller, lambda: cluster.status.condition("Stalled").status == "True")
    assert cluster.status.condition("Stalled").reason == "SpecInvalid"
    assert cluster.status.condition("Ready").status == "False"
    assert cluster.status.observed_generation == 1
    assert cluster.status.to_dict()["position"]["offset"] == 402, "its reports are taken"
    (pod,) = cluster.pods()
    found = cluster.api.objects[SYNC]
    found["spec"]["state"] = "paused"
    found["metadata"]["generation"] = 2
    reconcile_until(controller, lambda: "deletionTimestamp" in cluster.api.objects[pod]["metadata"])
    found["spec"]["state"] = "running"
    found["metadata"]["generation"] = 3
    del cluster.api.objects[pod]
    reconcile_until(controller, lambda: not cluster.status.runs.stream)
    controller.reconcile()
    assert cluster.pods() == []
    cluster.policy = PodPolicy()
    reconcile_until(start(), cluster.pods)
    assert cluster.status.condition("Stalled").status == "False"


def test_a_sync_whose_driver_reports_often_is_reconciled_more_often(cluster: PlannedCluster, start: Start) -> None:
    controller = _flowing(cluster, start)
    pauses = []
    for cluster.ahead, number in ((10.0, 2), (20.0, 7), (27.0, 10), (37.0, 11)):
        cluster.report(number, "shop.a", "shop.b")
        pauses.append(controller.reconcile())
    assert pauses == [10.0, 7.0, 7.0, 10.0]


@pytest.mark.parametrize("events", [0.0, 0.05, 0.4])
def test_no_report_of_a_driver_that_reports_often_stays_unseen_for_ten_seconds(
    cluster: PlannedCluster, start: Start, events: float
) -> None:
    """A report a second; `events` is how probable an event is, which reconciles at once, in each
    half second. The resource is written at most every five seconds all the same."""
    controller, dice = _flowing(cluster, start), random.Random(events)
    due, reported_at, writes, latest = 0.0, {}, set(), 0.0
    for tick in range(300):
        cluster.ahead = 100 + tick / 2
        if tick % 2 == 0:
            reported_at[410 + tick] = cluster.ahead
            cluster.report(10 + tick, "shop.a", "shop.b")
        if cluster.ahead >= due or dice.random() < events:
            due = cluster.ahead + (controller.reconcile() or 0.0)
        shown = cluster.status.position.offset
        writes.add(shown)
        if tick > 60:  # how often the driver reports is not known at first
            unseen = (at for offset, at in reported_at.items() if offset > shown)
            latest = max(latest, cluster.ahead - min(unseen, default=cluster.ahead))
    assert latest < 8.0
    assert len(writes) <= 150 / 5 + 1


def _flowing(cluster: PlannedCluster, start: Start) -> KubeController:
    cluster.create(status=streaming())
    controller = start()
    reconcile_until(controller, cluster.pods)
    cluster.show(phase="Running", containerStatuses=[{"name": "driver", "state": {"running": {}}}])
    cluster.report(1, "shop.a", "shop.b")
    reconcile_until(controller, lambda: cluster.status.condition("Reconciling").status == "False")
    return controller


# ---- an error between any two steps


@pytest.mark.parametrize("status", [0, 409, 500])
def test_tables_that_a_run_was_started_without_are_told_whatever_fails(
    cluster: PlannedCluster, start: Start, status: int
) -> None:
    """`shop.b` is gone from the source, and this operator never saw it: the stream goes without it,
    and that must be reported."""
    cluster.names = ("shop.a",)
    cluster.create(status=streaming())
    controller = start()
    reconcile_until(controller, cluster.pods)
    cluster.show(phase="Running", containerStatuses=[{"name": "driver", "state": {"running": {}}}])
    cluster.refuse("PUT", "/status", status)
    controller.reconcile()
    assert controller.failures == 1
    for number in (1, 2):
        cluster.report(number, "shop.a")
        start().reconcile()
    found = {t.name: (t.phase, t.reason) for t in cluster.status.table_status}
    assert found == {"shop.a": (TablePhase.STREAMING, ""), "shop.b": (TablePhase.FAILED, "NoSuchTable")}
    assert cluster.status.condition("Stalled").status == "True"


@pytest.mark.parametrize("part", ["pods", "rolebindings", "roles", "serviceaccounts", "configmaps"])
def test_what_cannot_be_cleared_away_keeps_no_successor_from_its_start(
    cluster: PlannedCluster, start: Start, part: str
) -> None:
    """The sync has `autoRestart.enabled: false`, where a failure would be final."""
    spec = {"autoRestart": {"enabled": False}}
    cluster.create(status=streaming(**spec), **spec)
    controller = start()
    reconcile_until(controller, cluster.pods)
    (old,) = cluster.pods()
    cluster.show(phase="Running", containerStatuses=[{"name": "driver", "state": {"running": {}}}])
    cluster.report(1, "shop.a", "shop.b")
    controller.reconcile()
    found = cluster.api.objects[SYNC]
    found["spec"]["restartNonce"] = 1
    found["metadata"]["generation"] = 2
    reconcile_until(controller, lambda: "deletionTimestamp" in cluster.api.objects[old]["metadata"])
    del cluster.api.objects[old]
    cluster.refuse("DELETE", f"/{part}", 429)
    reconcile_until(controller, lambda: set(cluster.pods()) - {old})
    assert cluster.status.restarts.consecutive == 0
    assert cluster.status.condition("Stalled").status == "False"


def test_a_status_whose_writer_died_before_the_run_was_made_is_gone_on_from(
    cluster: PlannedCluster, start: Start
) -> None:
    spec = {"autoRestart": {"enabled": False}}
    cluster.create(status=streaming(**spec), **spec)
    controller = start()
    cluster.refuse("POST", "/configmaps", 500, times=10**9)
    reconcile_until(controller, lambda: cluster.status.runs.stream)
    cluster.api.refuse = lambda method, path: None
    for path in [p for p in cluster.api.objects if "/configmaps/" in p]:
        del cluster.api.objects[path]
    controller = start()
    reconcile_until(controller, cluster.pods)
    assert cluster.status.restarts.consecutive == 0


def test_a_closed_sync_asks_nothing_more_of_its_source() -> None:
    """Its credentials are gone first, so that nothing can begin after what was asked has been
    ended."""
    cluster = PlannedCluster()
    cluster.create()
    controller = cluster.operator()
    controller.reconcile()
    controller.close()
    (folder,) = cluster.given_up
    assert not folder.exists()
