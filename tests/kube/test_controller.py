"""The operator's ports on a real API server: drivers are played by their own reporter, pods' ends
by writes of their status."""

from __future__ import annotations

import base64
import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunConfig, RunKind
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.run_objects import NETWORKS, REPORT_TABLES
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.decision.restart import wait_left
from cdcsync_spark.run.pod_report import PodReporter
from cdcsync_spark.run.progress import ControllerGone
from cdcsync_spark.snapshot.plan_mirror import PlanMirror
from support.in_process_sync import PASSWORD, WHOLE, InProcessSync


def config_of(sync: InProcessSync, run: str) -> RunConfig:
    found = sync.api.get(f"{sync.base}/configmaps/{run}-config-0")
    return RunConfig.from_json(gzip.decompress(base64.b64decode(found["binaryData"]["run.json.gz.00000"])).decode())


def test_a_sync_comes_to_flow_and_its_status_says_so(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    status = sync.stored
    assert (status.observed_generation, status.tables.ready, status.snapshot.percent) == (1, "2/2", "100 %")
    assert [t.phase for t in status.table_status] == ["Streaming", "Streaming"]
    assert [[part.model_dump() for part in t.finished] for t in status.table_status] == [WHOLE] * 2
    assert {c.type for c in status.conditions} == {
        "Ready", "Reconciling", "Stalled", "SourceReady", "SinkReady", "SnapshotComplete", "Consistent",
    }  # fmt: skip
    assert sync.passwords[0] == PASSWORD
    reasons = [e["reason"] for e in sync.api.items(f"{sync.base}/events")]
    assert {"RunStarted", "Streaming"} <= set(reasons)


def test_the_pods_of_a_run_are_given_the_networks_of_nodes_that_join(sync: InProcessSync) -> None:
    """Each time there are some that they lack; a node that goes changes nothing."""
    sync.networks = ("10.8.0.0/16",)
    controller = sync.create(executors={"instances": 1}).operator()
    status = sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    assert status.runs.snapshot
    run = status.runs.snapshot.id
    sync.executor(run, 1)

    def passed() -> dict[str, str]:
        pods = sync.api.items(f"{sync.base}/pods", labelSelector=f"cdcsync.io/run={run}")
        return {p["metadata"]["name"][len(run) :]: p["metadata"].get("annotations", {}).get(NETWORKS, "") for p in pods}

    assert passed()["-driver"] == "10.8.0.0/16"
    sync.networks = ("10.8.0.0/16", "10.7.0.9/32")
    sync.until(controller, lambda _: set(passed().values()) == {"10.8.0.0/16 10.7.0.9/32"})
    version = sync.pods()[f"{run}-driver"]["metadata"]["resourceVersion"]
    sync.networks = ("10.8.0.0/16",)
    controller.reconcile()
    assert sync.pods()[f"{run}-driver"]["metadata"]["resourceVersion"] == version
    sync.networks = ("10.7.0.7/32",)
    sync.until(controller, lambda _: set(passed().values()) == {"10.7.0.7/32"})
    sync.change(source={"host": "10.7.0.7"})
    refused = sync.until(controller, lambda s: "10.7.0.7/32" in s.condition("Stalled").message)
    assert "policy" in refused.condition("Stalled").message


def test_a_driver_gets_what_it_needs_and_no_more(sync: InProcessSync, tmp_path: Path) -> None:
    controller = sync.create(executors={"instances": 2}).operator()
    status = sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    assert status.runs.snapshot
    run = status.runs.snapshot.id
    config = config_of(sync, run)
    assert [str(t.table.id) for t in config.tables] == sync.tables
    assert config.spark["spark.kubernetes.executor.podNamePrefix"] == run
    mirror = PlanMirror(sync.api, sync.namespace, run, tmp_path)
    mirror.start()
    mirror.join(120)
    assert not mirror.is_alive(), "the plan has an end"
    assert len(list(tmp_path.glob("*.json"))) >= 4, "1,500 splits of two tables, at most 1,000 a shard"
    role = sync.api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}/roles/{run}")
    kinds = {(group, kind) for r in role["rules"] for group in r["apiGroups"] for kind in r["resources"]}
    # the verb `mount` on secrets of our own group is read by the admission policy alone
    assert kinds == {("", "configmaps"), ("", "pods"), ("cdcsync.io", "secrets")}


def test_a_stream_may_write_its_reports_and_nothing_else(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    ref = sync.stored.runs.stream
    assert ref
    role = sync.api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}/roles/{ref.id}")
    names = [f"{ref.id}-report-0"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get", "patch"]}
    ]


def test_no_secret_is_anywhere_but_in_the_secret(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    for kind in ("configmaps", "pods", "events"):
        assert PASSWORD not in json.dumps(list(sync.api.items(f"{sync.base}/{kind}")))
    assert PASSWORD not in json.dumps(sync.api.get(f"{sync.syncs}/shop"))


def test_another_operator_goes_on_where_the_first_one_was(sync: InProcessSync) -> None:
    """Nothing is in memory that is not found again; a report that was merged is not merged once
    more."""
    sync.to_streaming(sync.create().operator())
    before = sync.stored
    controller = sync.operator()
    sync.flow(sync.driver(RunKind.STREAM), offset=400)
    after = sync.until(controller, lambda s: s.position and s.position.offset == 400)
    assert after.runs.stream
    assert before.runs.stream
    assert after.runs.stream.id == before.runs.stream.id
    assert len(sync.pods()) == 1
    assert after.restarts.consecutive == 0


def test_a_status_that_was_wiped_loses_nothing(sync: InProcessSync) -> None:
    """R4: runs that the status no longer names are deleted, and the targets are asked again."""
    controller = sync.create().operator()
    sync.to_streaming(controller)
    old = sync.stored.runs.stream
    assert old
    found = sync.api.get(f"{sync.syncs}/shop")
    sync.api.replace(f"{sync.syncs}/shop/status", found | {"status": {"observedGeneration": -1}})
    status = sync.until(controller, lambda s: s.runs.snapshot and s.runs.snapshot.pod in sync.pods())
    assert status.runs.snapshot
    assert status.runs.snapshot.id != old.id
    assert "deletionTimestamp" in sync.pods().get(old.pod, {"metadata": {"deletionTimestamp": ""}})["metadata"]
    driver = PodReporter(sync.api, sync.namespace, old.id, sync.tables, REPORT_TABLES)
    sync.gone(old.pod)
    sync.until(controller, lambda _: old.pod not in sync.pods())
    controller.reconcile()
    with pytest.raises(ControllerGone):
        driver.report(exit={"code": 0, "reason": "", "message": ""})


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"reason": "OOMKilled"}, Reason.OUT_OF_MEMORY),
        ({"reason": "Error"}, Reason.DRIVER_LOST),
        (
            {"message": json.dumps({"code": 1, "reason": "SourceUnreachable", "message": "gone"})},
            Reason.SOURCE_UNREACHABLE,
        ),
    ],
)
def test_a_driver_that_fails_is_started_again_and_its_reason_reported(
    sync: InProcessSync, state: Object, reason: Reason
) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    old = sync.stored.runs.stream
    assert old
    sync.end(RunKind.STREAM, 137, **state)
    status = sync.until(controller, lambda s: s.restarts.reason)
    assert status.restarts.reason == reason.value
    status = sync.until(controller, lambda s: s.runs.stream and s.runs.stream.id != old.id)
    assert status.runs.stream
    assert status.runs.stream.pod in sync.pods()
    kept = [
        p["metadata"]["name"] for p in sync.api.items(f"{sync.base}/pods", labelSelector="cdcsync.io/part=kept-driver")
    ]
    assert kept == [old.pod], "the driver log of the failure can still be read"


def test_no_pause_between_attempts_is_shorter_than_the_policy_says(sync: InProcessSync) -> None:
    """The resource asks for a tenth of a second."""
    sync.policy = PodPolicy(least_restart_seconds=3600)
    controller = sync.create().operator()
    sync.to_streaming(controller)
    sync.end(RunKind.STREAM, 137)
    status = sync.until(controller, lambda s: s.restarts.next_attempt_at)
    assert wait_left(status.restarts, time.time()) > 1800


def test_the_secrets_of_others_are_neither_read_nor_written(sync: InProcessSync) -> None:
    """Reads by name and only the keys that the spec names, whatever else is in the namespace and
    however large."""
    for n in range(3):
        about = {"name": f"large-{n}", "labels": {"cdcsync.io/source": "true"}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": {"password": "x" * 700_000}}
        sync.api.create(f"{sync.base}/secrets", body)
    sync.api.merge(f"{sync.base}/secrets/login", {"stringData": {"notes": "x" * 500_000}})
    read = _Counting(sync.api)
    controller = sync.create().operator(read)
    sync.until(controller, lambda s: s.runs.snapshot)
    written = {f.relative_to(controller._files.folder).as_posix() for f in controller._files.folder.rglob("*")}
    assert written == {"login", "login/username", "login/password"}
    assert 0 < read.longest < 900_000, "one Secret in an answer"


class _Counting(Api):
    """Knows how long an answer about Secrets was at most."""

    def __init__(self, api: Api) -> None:
        super().__init__(api.login)
        self.longest = 0

    def _exchange(self, access: Any, method: str, target: str, *more: Any) -> tuple[int, bytes]:
        status, text = super()._exchange(access, method, target, *more)
        if "/secrets" in target:
            self.longest = max(self.longest, len(text))
        return status, text


def test_a_failure_that_only_the_user_can_cure_stalls(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    words = {"code": 3, "reason": "PositionLost", "message": "the binlog was purged"}
    sync.end(RunKind.STREAM, 3, message=json.dumps(words))
    status = sync.until(controller, lambda s: s.condition("Stalled").status == "True")
    assert (status.phase, status.condition("Stalled").reason) == ("Failed", "PositionLost")
    assert status.condition("Reconciling").status == "False"


def test_pause_drains_and_resume_starts_again(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    (pod,) = sync.pods()
    sync.change(state="paused")
    sync.until(
        controller,
        lambda _: "deletionTimestamp" in sync.pods().get(pod, {"metadata": {"deletionTimestamp": 0}})["metadata"],
    )
    sync.gone(pod)
    status = sync.until(controller, lambda s: s.phase == "Paused")
    assert (status.observed_generation, status.restarts.consecutive) == (2, 0)
    sync.change(state="running")
    sync.until(controller, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods())


def test_a_secret_without_the_label_is_not_there(sync: InProcessSync) -> None:
    sync.api.delete(f"{sync.base}/secrets/login")
    sync.create_secret(labelled=False)
    controller = sync.create().operator()
    status = sync.until(controller, lambda s: s.condition("Ready").status == "False")
    assert "Secret login has no label" in status.condition("Ready").message
    assert not sync.pods()
    sync.api.delete(f"{sync.base}/secrets/login")
    sync.create_secret(labelled=True)
    sync.until(controller, lambda s: s.runs.snapshot)


def test_what_the_policy_refuses_stalls_until_the_policy_allows_it(sync: InProcessSync) -> None:
    sync.create(driver={"serviceAccountName": "cloud"})
    status = sync.until(sync.operator(), lambda s: s.condition("Stalled").status == "True")
    assert status.condition("Stalled").reason == "SpecInvalid"
    assert "cloud is not one of the operator's allowed ones" in status.condition("Stalled").message
    assert status.observed_generation == 1
    assert not sync.pods()
    sync.policy = PodPolicy(allowed_service_accounts=frozenset({"cloud"}))
    sync.until(sync.operator(), lambda s: s.runs.snapshot and sync.pods())
    (pod,) = sync.pods().values()
    assert pod["spec"]["serviceAccountName"] == "cloud"


def test_a_write_on_an_old_view_is_refused_and_decided_again(sync: InProcessSync) -> None:
    """Two operators by mistake: neither acts on what the other has not seen."""
    first, second = sync.create().operator(), sync.operator()
    first.reconcile()
    second.reconcile()
    deadline = time.monotonic() + 120
    while not sync.pods() and time.monotonic() < deadline:
        first.reconcile()
        second.reconcile()
    live = [p for p in sync.pods().values() if "deletionTimestamp" not in p["metadata"]]
    named = {ref.pod for kind in RunKind if (ref := sync.stored.runs.get(kind))}
    for _ in range(4):
        first.reconcile()
        second.reconcile()
    live = [p["metadata"]["name"] for p in sync.pods().values() if "deletionTimestamp" not in p["metadata"]]
    named = {ref.pod for kind in RunKind if (ref := sync.stored.runs.get(kind))}
    assert len(live) <= 1
    assert set(live) <= named


def test_a_deleted_resource_ends_its_controller(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    controller.reconcile()
    sync.api.delete(f"{sync.syncs}/shop")
    assert controller.reconcile() is None


def test_a_driver_that_hangs_is_replaced(sync: InProcessSync) -> None:
    """It reports nothing for ten minutes."""
    controller = sync.create().operator()
    sync.to_streaming(controller)
    old = sync.stored.runs.stream
    assert old
    sync.show(RunKind.STREAM, phase="Running")
    sync.driver(RunKind.STREAM).report(epoch=2, flow={"connected": True, "seconds_since_event": 0.1, "waiting": 0.0})
    began = sync.now()
    controller.reconcile()
    while sync.clock_ahead < 3000 and old.pod in sync.pods():  # which is deleted at once, on no node
        sync.clock_ahead += 10
        controller.reconcile()
    assert old.pod not in sync.pods()
    assert sync.now() - began >= 600
    status = sync.until(controller, lambda s: s.restarts.reason)
    assert (status.restarts.reason, status.restarts.consecutive) == ("DriverLost", 1)
    sync.clock_ahead += 10
    sync.until(controller, lambda s: s.runs.stream and s.runs.stream.id != old.id and s.runs.stream.pod in sync.pods())


@pytest.mark.parametrize("refused", [False, True])
def test_a_deleted_resource_that_a_finalizer_holds_runs_nothing(sync: InProcessSync, refused: bool) -> None:
    """Whether its spec can be read or not."""
    controller = sync.create().operator()
    sync.to_streaming(controller)
    (pod,) = sync.pods()
    if refused:
        sync.change(stream={"schedule": {"cron": "0 0 30 2 *"}})
        sync.until(controller, lambda s: s.condition("Stalled").reason == "SpecInvalid")
        assert set(sync.pods()) == {pod}
    sync.api.merge(f"{sync.syncs}/shop", {"metadata": {"finalizers": ["example.com/hold"]}})
    sync.api.delete(f"{sync.syncs}/shop")
    sync.until(
        controller,
        lambda _: "deletionTimestamp" in sync.pods().get(pod, {"metadata": {"deletionTimestamp": 0}})["metadata"],
    )
    sync.gone(pod)
    status = sync.until(controller, lambda s: s.phase == "Paused" and not s.runs.stream)
    ready = status.condition("Ready")
    assert (ready.status, ready.reason, status.condition("Stalled").status) == ("False", "Deleting", "False")
    controller = sync.operator()
    controller.reconcile()
    assert not sync.pods()
    sync.api.merge(f"{sync.syncs}/shop", {"metadata": {"finalizers": None}})
    assert controller.reconcile() is None


def test_two_thousand_tables_stay_small(sync: InProcessSync) -> None:
    """R7: the status stays under 256 KiB, and nothing of the tables is lost with the operator."""
    sync.tables = [f"shop.orders_of_customer_{i:05d}" for i in range(2000)]
    controller = sync.create().operator()
    sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    driver = sync.driver(RunKind.SNAPSHOT)
    sync.read(driver, *sync.tables)
    sync.until(controller, lambda s: s.tables.catching_up == 2000)
    assert len(json.dumps(sync.api.get(f"{sync.syncs}/shop")["status"])) < 256 * 1024
    again = sync.operator()
    again.reconcile()
    assert sum(t.phase == "CatchingUp" for t in again.status.table_status) == 2000


def test_the_source_is_asked_and_its_fault_told(sync: InProcessSync) -> None:
    sync.errors = (fail(Reason.BINLOG_DISABLED, "log_bin is OFF", needed="ON", remedy="start the server with log_bin"),)
    controller = sync.create().operator()
    status = sync.until(controller, lambda s: s.condition("Stalled").status == "True")
    assert status.condition("Stalled").reason == "BinlogDisabled"
    assert status.condition("SourceReady").status == "False"


def test_an_api_server_that_fails_is_waited_for(sync: InProcessSync, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    before = sync.stored

    def refuse(*_: object, **__: object) -> Object:
        raise ApiError(500, "InternalError", "etcd is away")

    with monkeypatch.context() as patched:
        patched.setattr(sync.api, "_call", refuse)
        assert [controller.reconcile() for _ in range(4)] == [1, 2, 4, 8]
    sync.flow(sync.driver(RunKind.STREAM), offset=500)
    after = sync.until(controller, lambda s: s.position and s.position.offset == 500)
    assert after.runs == before.runs.put(RunKind.STREAM, after.runs.stream)
    assert after.restarts.consecutive == 0


def test_a_secret_without_its_label_is_told_apart_from_none(sync: InProcessSync) -> None:
    """Its content is not read; what helps is a label, and following the remedy starts the sync."""
    sync.api.delete(f"{sync.base}/secrets/login")
    controller = sync.create().operator()
    none = sync.until(controller, lambda s: s.condition("SourceReady").status == "False")
    assert "no Secret login" in none.condition("SourceReady").message
    sync.create_secret(labelled=False)
    there = sync.until(controller, lambda s: "has no label" in s.condition("SourceReady").message)
    remedy = there.condition("SourceReady").message.partition("; remedy: ")[2]
    assert remedy == f"kubectl label secret -n {sync.namespace} login cdcsync.io/source=true"
    assert sync.passwords == []
    sync.api.merge(f"{sync.base}/secrets/login", {"metadata": {"labels": {"cdcsync.io/source": "true"}}})
    sync.until(controller, lambda s: s.runs.snapshot is not None)
    assert sync.passwords == [PASSWORD]
