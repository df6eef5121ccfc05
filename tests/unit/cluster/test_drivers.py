"""Runs as pods: a stop that was begun is finished, and a run has ended when its driver has."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.resource.pod_size import SPLITS_IN_DRIVER
from cdcsync_core.runs.run import RunConfig, RunKind
from cdcsync_core.runs.status import Runs, Status
from cdcsync_core.tables.capture import Capture
from cdcsync_core.timestamps import utc
from cdcsync_kube.client import ApiError
from cdcsync_operator.cluster.objects.driver_pod import EXECUTOR_TEMPLATE, Image
from cdcsync_operator.cluster.runs.drivers import KubeDrivers
from cdcsync_operator.decision.observed import ForgetRun, ObservedRun, RunState, StartRun, StopRun
from support.plan_tables import BASE, planned_table
from unit.cluster.fake_api import FakeApi
from unit.controller.harness import resource

RUN = "shop-ab12-1"
POD = f"{BASE}/pods/{RUN}-driver"
NOW = 1_800_000_000.0


def _splits(table: Capture, start: Bound) -> Iterator[Split]:
    yield Split(start, None)


class Pods:
    """One run on a simulated API server, and the operator that created it."""

    def __init__(self) -> None:
        self.now = NOW
        self.api = FakeApi()
        self.drivers = self.operator()
        self.about = resource().model_copy(
            update={"metadata": resource().metadata.model_copy(update={"namespace": "lake", "uid": "u"})}
        )

    def operator(self) -> KubeDrivers:
        return KubeDrivers(
            self.api,
            "lake",
            "shop",
            lambda: "u",
            Image("x"),
            lambda: self.now,
            lambda: None,
            planned_table,
            lambda r: nullcontext(_splits),
        )

    def start(self, kind: RunKind, executors: int | None = None) -> None:
        """A snapshot has four executors unless another number is given."""
        default = 4 if kind is RunKind.SNAPSHOT else 0
        executors = default if executors is None else executors
        self.drivers.start(self.about, StartRun(kind, RUN, 1, (("shop.a", 0),), "f", executors=executors), Status())

    def wait_for_plan(self) -> None:
        planner = self.drivers._runs[RUN].planner
        assert planner is not None
        planner.join(120)

    def show(self, **status: Any) -> None:
        self.api.objects[POD]["status"] = status

    def report(self, number: int, at: float) -> None:
        data = self.api.objects[f"{BASE}/configmaps/{RUN}-report-0"]["data"]
        data["head"] = json.dumps({"number": number, "at": at})

    def seen(self) -> ObservedRun:
        (run,) = self.drivers.observe(Status()).runs
        return run

    def reconciled(self) -> ObservedRun:
        """The run as it is observed; then it is stopped where it must be, as `decide` does."""
        run = self.seen()
        if run.unfit:
            self.drivers.stop(StopRun(run.kind, run.id))
        return run

    @property
    def asked_to_go(self) -> bool:
        return "deletionTimestamp" in self.api.objects[POD]["metadata"]


@pytest.fixture
def pods() -> Pods:
    return Pods()


def refusing(method: str, part: str, status: int) -> Callable[[str, str], ApiError | None]:
    return lambda m, path: ApiError(status, "", "not now") if (m, part in path) == (method, True) else None


@pytest.mark.parametrize("same_operator", [True, False])
@pytest.mark.parametrize("status", [429, 500, 0])
def test_a_stop_whose_deletion_was_refused_is_finished_at_the_next_reconcile(
    pods: Pods, status: int, same_operator: bool
) -> None:
    pods.start(RunKind.STREAM)
    pods.show(phase="Running")
    pods.api.refuse = refusing("DELETE", "/pods/", status)
    with pytest.raises(ApiError):
        pods.drivers.stop(StopRun(RunKind.STREAM, RUN))
    assert not pods.asked_to_go
    pods.api.refuse = lambda *_: None
    pods.drivers = pods.drivers if same_operator else pods.operator()
    calls = len(pods.api.requests)
    assert pods.seen().unfit
    assert {method for method, _ in pods.api.requests[calls:]} == {"GET"}, "observing stops nothing"
    seen = pods.reconciled()
    assert (seen.state, seen.stop_asked) == (RunState.DRAINING, True)
    assert pods.asked_to_go
    calls = len(pods.api.requests)
    assert not pods.reconciled().unfit
    assert {method for method, _ in pods.api.requests[calls:]} == {"GET"}, "it is asked once"


def test_a_run_whose_plan_failed_has_ended_only_when_its_pod_has(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pods.drivers._begin_plan

    def begin(*arguments: Any) -> None:
        pods.api.refuse = refusing("POST", "configmaps", 422)
        plain(*arguments)

    monkeypatch.setattr(pods.drivers, "_begin_plan", begin)
    pods.start(RunKind.SNAPSHOT)
    pods.wait_for_plan()
    pods.show(phase="Running", containerStatuses=[{"name": "driver", "state": {"running": {}}}])
    for _ in range(3):
        assert pods.reconciled().state is RunState.DRAINING
        assert pods.asked_to_go
    del pods.api.objects[POD]
    ended = pods.seen()
    assert (ended.state, ended.stop_asked) == (RunState.ENDED, False)
    assert ended.exit is not None
    assert "the API server refused a driver" in ended.exit.message
    pods.drivers.forget(ForgetRun(RunKind.SNAPSHOT, RUN))
    assert pods.drivers.observe(Status()).runs == ()


def test_a_run_that_could_not_be_made_has_ended_with_its_reason(pods: Pods) -> None:
    pods.api.refuse = refusing("POST", "/pods", 403)
    pods.start(RunKind.STREAM)
    pods.api.refuse = lambda *_: None
    ended = pods.seen()
    assert ended.exit is not None
    assert (ended.state, ended.exit.reason) == (RunState.ENDED, "InternalError")
    pods.drivers.forget(ForgetRun(RunKind.STREAM, RUN))
    assert pods.drivers.observe(Status()).runs == ()


@pytest.mark.parametrize("kind", [RunKind.STREAM, RunKind.SNAPSHOT])
def test_a_pod_whose_driver_ended_is_deleted_with_the_grace_that_its_sidecar_has(pods: Pods, kind: RunKind) -> None:
    pods.start(kind)
    if kind is RunKind.SNAPSHOT:
        pods.wait_for_plan()
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 0}}}
    pods.show(phase="Running", containerStatuses=[ended, {"name": "proxy", "state": {"running": {}}}])
    assert pods.seen().state is RunState.ENDED
    for _ in range(2):
        pods.drivers.forget(ForgetRun(kind, RUN))
        assert pods.asked_to_go, "asked, not torn away"
        assert pods.seen().state is RunState.ENDED
    pods.show(phase="Succeeded", containerStatuses=[ended])
    pods.seen()
    pods.drivers.forget(ForgetRun(kind, RUN))
    assert POD not in pods.api.objects


@pytest.mark.parametrize(("step", "reported_at"), [(3600.0, NOW + 5), (-1.0, NOW + 4)])
def test_a_driver_whose_clock_is_ahead_does_not_look_fresh_for_as_long(
    pods: Pods, step: float, reported_at: float
) -> None:
    pods.start(RunKind.STREAM)
    assert pods.seen().reported_at is None
    for number in (1, 2):
        pods.now = NOW + 5 * (number - 1)
        pods.report(number, pods.now + step)
        pods.seen()
    pods.now = NOW + 60
    assert pods.seen().reported_at == reported_at, "it has reported nothing since"


def _labelled(name: str, run: str, part: str, **about: Any) -> dict[str, Any]:
    labels = {"cdcsync.io/sync": "shop", "cdcsync.io/run": run, "cdcsync.io/part": part}
    return {"metadata": {"name": name, "labels": labels} | about, "data": {"run": "{}", "head": "{}"}}


@pytest.mark.parametrize(
    "found",
    [
        _labelled("victim-report-0", "victim", "report"),
        _labelled("victim-report-0", "victim", "report", ownerReferences=[{"uid": "u"}]),
        _labelled("shop-victim-report-0", "shop-victim", "report"),
        _labelled("shop-victim-report-0", "shop-victim", "report", ownerReferences=[{"uid": "another"}]),
        _labelled("shop-victim-report-x", "shop-victim", "report", ownerReferences=[{"uid": "u"}]),
        _labelled("other-name-0", "shop-victim", "report", ownerReferences=[{"uid": "u"}]),
    ],
)
def test_labels_alone_make_no_object_a_runs(pods: Pods, found: dict[str, Any]) -> None:
    """Who may create ConfigMaps may write any label; what follows them are deletions."""
    pods.api.add(f"{BASE}/configmaps", found)
    assert pods.drivers.observe(Status()).runs == ()


def test_what_is_cleared_away_has_the_runs_owner_and_name(pods: Pods) -> None:
    """A service account of the run's name that another one made stays, also with its labels; a
    run's own goes with all that it has."""
    pods.start(RunKind.SNAPSHOT)
    pods.wait_for_plan()
    pods.report(1, NOW)
    for folder in ("serviceaccounts", "secrets", "configmaps"):
        pods.api.add(f"{BASE}/{folder}", _labelled(RUN, RUN, "access"))
    account = f"{BASE}/serviceaccounts/cdcsync-run-{RUN}"
    assert account in pods.api.objects
    pods.drivers.forget(ForgetRun(RunKind.SNAPSHOT, RUN))
    assert account not in pods.api.objects
    assert pods.api.names("/configmaps") == {RUN}
    assert {f"{BASE}/serviceaccounts/{RUN}", f"{BASE}/secrets/{RUN}"} <= pods.api.objects.keys()


def test_a_pod_that_is_kept_for_its_log_stays_when_its_run_is_cleared_away_again(pods: Pods) -> None:
    """The operator died after it had kept the pod, and before the run's maps were gone."""
    pods.start(RunKind.STREAM)
    pods.show(phase="Failed")
    pods.seen()
    pods.api.refuse = refusing("DELETE", "configmaps", 500)
    with pytest.raises(ApiError):
        pods.drivers.forget(ForgetRun(RunKind.STREAM, RUN))
    pods.api.refuse = lambda *_: None
    pods.drivers = pods.operator()
    pods.seen()
    pods.drivers.forget(ForgetRun(RunKind.STREAM, RUN))
    assert pods.drivers.observe(Status()).runs == ()
    assert pods.api.objects[POD]["metadata"]["labels"]["cdcsync.io/part"] == "kept-driver"
    assert not pods.asked_to_go


def test_a_snapshots_secret_is_mounted_and_goes_with_its_report(pods: Pods) -> None:
    pods.start(RunKind.SNAPSHOT)
    secret = pods.api.objects[f"{BASE}/secrets/{RUN}-auth"]
    report = pods.api.objects[f"{BASE}/configmaps/{RUN}-report-0"]
    assert [o["uid"] for o in secret["metadata"]["ownerReferences"]] == [report["metadata"]["uid"]]
    assert len(secret["stringData"]["secret"]) == 64
    shown = json.dumps([o for path, o in pods.api.objects.items() if "/secrets/" not in path])
    assert secret["stringData"]["secret"] not in shown


def test_a_snapshot_without_executors_has_a_plan_and_nothing_that_executors_need(pods: Pods) -> None:
    pods.start(RunKind.SNAPSHOT, executors=0)
    pods.wait_for_plan()
    assert f"{BASE}/secrets/{RUN}-auth" not in pods.api.objects
    (config,) = (o for path, o in pods.api.objects.items() if f"/configmaps/{RUN}-config-" in path)
    read = RunConfig.from_json(gzip.decompress(base64.b64decode(config["binaryData"]["run.json.gz.00000"])).decode())
    assert read.spark == {}
    assert EXECUTOR_TEMPLATE not in config.get("data", {})
    assert read.resource["spec"]["snapshot"]["parallelism"] == SPLITS_IN_DRIVER
    assert any(f"/configmaps/{RUN}-plan-" in path for path in pods.api.objects)


def test_a_pod_is_deleted_by_what_it_is_and_not_by_its_name(pods: Pods) -> None:
    pods.start(RunKind.STREAM)
    pods.show(phase="Running")
    pods.seen()
    pods.drivers.stop(StopRun(RunKind.STREAM, RUN))
    uid = pods.api.objects[POD]["metadata"]["uid"]
    assert pods.api.bodies[-1] == {"preconditions": {"uid": uid}}


def _forged(name: str, of: str, **data: str) -> dict[str, Any]:
    """As a tenant writes it who knows the resource's uid."""
    made = _labelled(name, of, "report", ownerReferences=[{"uid": "u"}])
    return made | {"data": data}


def test_reports_that_no_run_can_have_cost_a_reconciliation_little(pods: Pods) -> None:
    """Thousands that name the sync as their owner: of runs that are not on record, some without
    their first report, and beyond the shards of one that is."""
    pods.start(RunKind.STREAM)
    pods.report(1, NOW)
    for n in range(1000):
        pods.api.add(f"{BASE}/configmaps", _forged(f"shop-x{n}-report-{n % 2}", f"shop-x{n}", head='{"number": 9}'))
        pods.api.add(f"{BASE}/configmaps", _forged(f"{RUN}-report-{n + 1}", RUN, tables='{"entries": [1]}'))
    named = Status(runs=Runs.model_validate({"stream": {"id": RUN, "epoch": 1, "startedAt": utc(NOW)}}))
    pods.api.requests.clear()
    runs = {run.id: run for run in pods.drivers.observe(named).runs}
    assert 2 <= len(runs) <= 10
    assert runs[RUN].reported_at == NOW
    read = [path for method, path in pods.api.requests if method == "GET" and "/configmaps/" in path]
    assert len(read) <= 10
    assert [path for path in read if RUN in path] == [f"{BASE}/configmaps/{RUN}-report-0"]
    for run in runs.keys() - {RUN}:
        pods.drivers.forget(ForgetRun(runs[run].kind, run))
    assert len(pods.api.requests) <= 100
    assert not runs.keys() & {run.id for run in pods.drivers.observe(named).runs} - {RUN}, "others are found then"


def test_pods_that_no_run_has_are_few_at_once(pods: Pods) -> None:
    """Thirty that name the sync as their owner, and the one of a run on record."""
    pods.start(RunKind.STREAM)
    for n in range(30):
        pods.api.add(
            f"{BASE}/pods", _labelled(f"shop-a{n}-driver", f"shop-a{n}", "driver", ownerReferences=[{"uid": "u"}])
        )
    named = Status(runs=Runs.model_validate({"stream": {"id": RUN, "epoch": 1, "startedAt": utc(NOW)}}))
    runs = {run.id: run for run in pods.drivers.observe(named).runs}
    assert RUN in runs
    assert 2 <= len(runs) <= 10


def test_a_run_with_thousands_of_maps_is_cleared_away_in_several_passes(pods: Pods) -> None:
    """What makes the run known goes last."""
    pods.start(RunKind.STREAM)
    for n in range(1200):
        pods.api.add(f"{BASE}/configmaps", _labelled(f"{RUN}-plan-{n}", RUN, "plan", ownerReferences=[{"uid": "u"}]))
    pods.show(phase="Succeeded")
    for _ in range(3):
        assert f"{RUN}-report-0" in pods.api.names("configmaps")
        pods.seen()
        pods.api.requests.clear()
        pods.drivers.forget(ForgetRun(RunKind.STREAM, RUN))
        assert len(pods.api.requests) <= 520
        pods.api.objects.pop(POD, None)  # its grace period is over
    assert not {name for name in pods.api.names("configmaps") if RUN in name}


def test_a_report_beyond_those_of_its_tables_is_none(pods: Pods) -> None:
    """The names of a run's shards end where its tables do."""
    pods.start(RunKind.STREAM)
    pods.report(1, NOW)
    pods.api.add(f"{BASE}/configmaps", _forged(f"{RUN}-report-1", RUN, run='{"tables": [["shop.z", 0]]}'))
    assert pods.seen().tables == (("shop.a", 0),)
