"""The operator's threads: every sync is found and reconciled, a fault of one ends no other, and no
thread ends unnoticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cdcsync_core.resource.spec import CdcSync
from cdcsync_kube.client import ApiError
from cdcsync_operator.cluster import operator as kube_operator
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.operator import KubeOperator
from cdcsync_operator.cluster.policy.cluster_networks import ClusterNetworks
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.cluster.syncs.namespaces import NamespaceRule
from cdcsync_operator.cluster.syncs.sync_list import SyncMetadata
from cdcsync_operator.reconcile.preflight import SourceCalls
from cdcsync_operator.reconcile.secret_files import SecretFiles
from unit.cluster.fake_api import FakeApi
from unit.controller.harness import resource

SYNCS = "/apis/cdcsync.io/v1alpha1/namespaces/lake/cdcsyncs"
CALLS = SourceCalls(None, None, None)  # type: ignore[arg-type]


class PausedCluster:
    """Paused syncs of one namespace."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.lost = threading.Event()
        settings = OperatorSettings(Image("x"), namespaces=NamespaceRule(("lake",)))
        self.operator = KubeOperator(
            self.api, settings, CALLS, ClusterNetworks(self.api), self.lost.set, list_every=0.05, after_error=0.05
        )

    def add(self, name: str, **labels: str) -> None:
        paused: CdcSync = resource(state="paused")
        body = paused.model_dump(by_alias=True, mode="json", exclude_none=True)
        body["metadata"] = {"name": name, "namespace": "lake", "uid": name, "generation": 1, "labels": labels}
        self.api.add(SYNCS, body)

    def lease_holder(self) -> str:
        lease = self.api.objects["/apis/coordination.k8s.io/v1/namespaces/lake/leases/lock"]
        return str(lease["spec"]["holderIdentity"])

    def phase(self, name: str) -> str:
        return str(self.api.objects[f"{SYNCS}/{name}"].get("status", {}).get("phase"))


@pytest.fixture
def cluster() -> Iterator[PausedCluster]:
    """Its log is kept aside: structlog's default prints the locals of a trace, which other threads
    change meanwhile."""
    with capture_logs():
        paused = PausedCluster()
        yield paused
        paused.operator.stop()


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_syncs_without_an_event_are_found(cluster: PausedCluster) -> None:
    """Also where the list failed once."""
    refused: list[str] = []

    def refuse_once(method: str, path: str) -> ApiError | None:
        if path != SYNCS or refused:
            return None
        refused.append(path)
        return ApiError(500, "", "not now")

    cluster.api.refuse = refuse_once
    cluster.add("early")
    cluster.operator.start()
    eventually(lambda: cluster.phase("early") == "Paused")
    cluster.add("late")
    eventually(lambda: cluster.phase("late") == "Paused")
    assert refused


def test_a_sync_that_cannot_be_reconciled_is_tried_again_and_keeps_no_other_waiting(
    cluster: PausedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More failures than workers."""
    made, failures = SecretFiles.__init__, iter(range(2 * cluster.operator.settings.workers))

    def make(files: SecretFiles, within: Path | None = None) -> None:
        if next(failures, None) is not None:
            raise OSError("no space left")
        made(files, within)

    monkeypatch.setattr(SecretFiles, "__init__", make)
    names = [f"s{n}" for n in range(8)]
    for name in names:
        cluster.add(name)
    cluster.operator.start()
    eventually(lambda: all(cluster.phase(name) == "Paused" for name in names))
    assert cluster.operator.healthy()
    assert not cluster.lost.is_set()


def test_a_sync_that_cannot_be_read_is_reported_once_and_keeps_no_other_waiting(cluster: PausedCluster) -> None:
    refused = ApiError(0, "AnswerTooLarge", f"{SYNCS}/huge: the API server's answer has more than 1 bytes")
    cluster.api.refuse = lambda method, path: refused if (method, path) == ("GET", f"{SYNCS}/huge") else None
    for name in ("huge", "other"):
        cluster.add(name)
    cluster.operator.start()
    eventually(lambda: cluster.phase("other") == "Paused")
    eventually(lambda: cluster.operator.metrics.failed >= 2)
    events = [body for body in cluster.api.bodies if body and body.get("kind") == "Event"]
    assert [e["message"] for e in events if e["reason"] == "Unreadable"] == [refused.message]
    assert {e["involvedObject"]["name"] for e in events if e["reason"] == "Unreadable"} == {"huge"}
    assert cluster.operator.healthy()


def test_a_thread_that_fails_ends_the_process(cluster: PausedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(kube_operator, "list_syncs", fail)
    cluster.operator.start()
    assert cluster.lost.wait(120)


@pytest.mark.parametrize("ends_in_time", [True, False])
def test_the_lease_is_kept_until_the_last_reconciliation_has_ended(
    cluster: PausedCluster, monkeypatch: pytest.MonkeyPatch, ends_in_time: bool
) -> None:
    """It runs out by itself where that does not end in time, because it may still write."""
    cluster.operator.settings = OperatorSettings(
        Image("x"), namespaces=NamespaceRule(("lake",)), lease="lake/lock", identity="me"
    )
    cluster.operator.join_seconds = 120 if ends_in_time else 0
    reconciling, go_on = threading.Event(), threading.Event()
    reconcile = KubeController.reconcile
    holders: list[str] = []

    def slow(controller: KubeController) -> float | None:
        reconciling.set()
        assert go_on.wait(120)
        again = reconcile(controller)
        holders.append(cluster.lease_holder())
        return again

    monkeypatch.setattr(KubeController, "reconcile", slow)
    cluster.add("one")
    cluster.operator.start()
    assert reconciling.wait(120)
    stopping = threading.Thread(target=cluster.operator.stop)
    stopping.start()
    eventually(lambda: cluster.operator.queue._closed)
    if not ends_in_time:
        stopping.join(120)
        assert cluster.lease_holder() == "me"
    go_on.set()
    stopping.join(120)
    eventually(lambda: holders == ["me"])
    if ends_in_time:
        assert cluster.phase("one") == "Paused"
        eventually(lambda: cluster.lease_holder() == "")


def test_a_candidate_notes_no_sync_and_lists_all_when_it_leads(cluster: PausedCluster) -> None:
    """A tenant may create and delete thousands of names meanwhile."""
    cluster.add("one")
    for n in range(100):
        cluster.operator.changed(SyncMetadata(("lake", f"s{n}"), 1, "1", 1.0))
    assert len(cluster.operator.queue) == 0
    cluster.operator.start()
    eventually(lambda: cluster.phase("one") == "Paused")
    assert not cluster.operator.statuses().keys() - {("lake", "one")}


def test_a_sync_of_another_release_is_left_alone(cluster: PausedCluster) -> None:
    """Whatever names it: a list, an event of its own, or its labels that changed."""
    cluster.operator.settings = OperatorSettings(Image("x"), namespaces=NamespaceRule(("lake",)), selector="shard=one")
    cluster.add("mine", shard="one")
    cluster.add("other", shard="two")
    cluster.operator.start()
    eventually(lambda: cluster.phase("mine") == "Paused")
    cluster.operator.changed(SyncMetadata(("lake", "other"), 1, "", 1.0))
    cluster.operator.driver_changed(("lake", "other"))
    eventually(lambda: len(cluster.operator.queue) == 1)
    assert ("lake", "other") not in cluster.operator.statuses()
    assert "status" not in cluster.api.objects[f"{SYNCS}/other"]
    cluster.api.objects[f"{SYNCS}/mine"]["metadata"]["labels"] = {"shard": "two"}
    cluster.operator.changed(SyncMetadata(("lake", "mine"), 1, "", 1.0))
    eventually(lambda: cluster.operator.statuses() == {})


def test_a_start_begins_with_the_newest_change(cluster: PausedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the newest of all syncs, before Kopf has brought any of them."""
    cluster.operator.settings = OperatorSettings(Image("x"), namespaces=("lake",), workers=1)
    for n in range(100):
        cluster.add(f"s{n:02d}")
        times = [{"time": "2026-01-01T00:00:00Z"}, {"time": f"2027-01-01T00:00:{n % 60:02d}Z", "subresource": "status"}]
        cluster.api.objects[f"{SYNCS}/s{n:02d}"]["metadata"]["managedFields"] = times
    cluster.api.objects[f"{SYNCS}/s70"]["metadata"]["managedFields"].append({"time": "2026-06-01T00:00:00Z"})
    order: list[str] = []

    def record(controller: KubeController) -> float:
        if not order:
            eventually(lambda: len(cluster.operator.queue) >= 100)
        order.append(controller.name)
        return 300.0

    monkeypatch.setattr(KubeController, "reconcile", record)
    cluster.operator.start()
    eventually(lambda: len(set(order)) == 100)
    assert "s70" in order[:3]


def test_no_file_is_kept_open_for_a_sync(cluster: PausedCluster) -> None:
    """An operator has as many open files as its workers need, whatever the number of syncs."""
    for n in range(50):
        cluster.add(f"s{n}")
    before = len(list(Path("/proc/self/fd").iterdir()))
    cluster.operator.start()
    eventually(lambda: len(cluster.operator.statuses()) == 50)
    eventually(lambda: all(cluster.phase(f"s{n}") == "Paused" for n in range(50)))
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20


def due_later(cluster: PausedCluster, name: str) -> bool:
    """At the time at which it is due anyway."""
    return cluster.operator.queue._due.get(("lake", name), 0.0) > time.monotonic() + 60


def test_the_event_of_an_operators_own_write_is_no_news(cluster: PausedCluster) -> None:
    """Else each status that is written costs a second reconciliation."""
    cluster.add("one")
    cluster.operator.start()
    eventually(lambda: cluster.phase("one") == "Paused" and ("lake", "one") in cluster.operator.statuses())
    eventually(lambda: due_later(cluster, "one") and cluster.operator._working == {})
    done = cluster.operator.metrics.reconciliations
    version = str(cluster.api.objects[f"{SYNCS}/one"]["metadata"]["resourceVersion"])
    cluster.operator.changed(SyncMetadata(("lake", "one"), 1, version, 1.0))
    assert due_later(cluster, "one")
    cluster.operator.changed(SyncMetadata(("lake", "one"), 1, "another", 1.0))
    eventually(lambda: cluster.operator.metrics.reconciliations > done)
