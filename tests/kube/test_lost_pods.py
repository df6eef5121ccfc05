"""What nodes, schedulers and people do to a driver's pod, written to a real API server as they
write it: the reason stands in the status, and one new driver is made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.cluster.objects.pod_outcome import LOST_NODE_TIMEOUT, UNSCHEDULABLE_TIMEOUT, UNSCHEDULED_SHOWN
from support.in_process_sync import InProcessSync, ended_container

DRAINED = json.dumps({"code": 0, "reason": "", "message": ""})


def disrupted(by: str, why: str) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": by, "message": why}
    return {"phase": "Failed", "conditions": [condition]}


def assert_reported(sync: InProcessSync, controller: Any, reason: Reason, words: str) -> None:
    """The failure is booked once, with its words, and the next driver comes; the old one is gone,
    or kept for its log."""
    before = {ref.pod for kind in RunKind if (ref := sync.stored.runs.get(kind))}
    status = sync.until(controller, lambda s: s.restarts.reason)
    assert (status.restarts.reason, status.restarts.consecutive) == (reason.value, 1)
    assert words in status.condition("Ready").message
    assert status.condition("Stalled").status == "False"
    sync.until(controller, lambda s: sync.pods() and not before & set(sync.pods()))
    assert len(sync.pods()) == 1
    assert sync.stored.restarts.consecutive == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}, "Evicted: The node"),
        ({"phase": "Failed", "reason": "NodeLost", "message": "Node n which was running the pod is unresponsive"}, "NodeLost"),
        (disrupted("DeletionByPodGC", "PodGC: node no longer exists"), "DeletionByPodGC: PodGC: node no longer exists"),
        (
            disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")
            | {"containerStatuses": [ended_container({"exitCode": 0, "message": DRAINED})]},
            "imminent node shutdown",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_its_node_lost_or_gave_up(sync: InProcessSync, status: dict[str, Any], words: str) -> None:
    controller = sync.create().operator()
    sync.to_streaming(controller)
    sync.show(RunKind.STREAM, **status)
    assert_reported(sync, controller, Reason.DRIVER_LOST, words)


def test_a_pod_that_is_not_there_any_more(sync: InProcessSync) -> None:
    """Its node was removed, and the collector of lost pods, or a person by force, removed the
    object."""
    controller = sync.create().operator()
    sync.to_streaming(controller)
    (pod,) = sync.pods()
    sync.gone(pod)
    assert_reported(sync, controller, Reason.DRIVER_LOST, "gone: deleted, or lost with its node")


def test_a_pod_that_was_evicted_and_drained(sync: InProcessSync) -> None:
    """The eviction API deletes it; whether the operator reconciles before the object is gone makes
    no difference."""
    controller = sync.create().operator()
    sync.to_streaming(controller)
    (pod,) = sync.pods()
    sync.bind(pod, "drained")
    sync.api.delete(f"{sync.base}/pods/{pod}")
    controller.reconcile()
    assert sync.stored.restarts.consecutive == 0, "it drains"
    sync.driver(RunKind.STREAM).report(exit=json.loads(DRAINED))
    sync.end(RunKind.STREAM, message=DRAINED)
    assert_reported(sync, controller, Reason.DRIVER_LOST, "deleted or evicted; it drained")


def test_a_pod_on_a_node_that_does_not_answer(sync: InProcessSync) -> None:
    """The taint of an unreachable node deletes the pod, and no kubelet ever confirms it."""
    controller = sync.create().operator()
    sync.to_streaming(controller)
    (pod,) = sync.pods()
    sync.bind(pod, "unreachable")
    sync.show(
        RunKind.STREAM, **disrupted("DeletionByTaintManager", "deleting due to NoExecute taint") | {"phase": "Running"}
    )
    sync.api.delete(f"{sync.base}/pods/{pod}", {"gracePeriodSeconds": 1})
    controller.reconcile()
    assert sync.stored.restarts.consecutive == 0, "it has its grace"
    sync.clock_ahead = 1 + LOST_NODE_TIMEOUT
    assert_reported(sync, controller, Reason.DRIVER_LOST, "its node does not answer (DeletionByTaintManager")
    kept = sync.api.items(f"{sync.base}/pods", labelSelector="cdcsync.io/part=kept-driver")
    assert pod not in {p["metadata"]["name"] for p in kept}, "there is no log to be read"


def test_a_pod_that_no_node_takes(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    sync.show(RunKind.SNAPSHOT, phase="Pending", conditions=[refused])
    controller.reconcile()
    assert sync.stored.restarts.consecutive == 0, "the cluster may grow"
    sync.clock_ahead = 1 + UNSCHEDULABLE_TIMEOUT
    status = sync.until(controller, lambda s: s.restarts.reason)
    assert status.restarts.reason == Reason.DRIVER_UNSCHEDULABLE.value
    assert "0/3 nodes are available" in status.condition("Ready").message
    sync.until(controller, lambda s: s.runs.snapshot and s.runs.snapshot.pod in sync.pods() and len(sync.pods()) == 1)


def test_executors_that_wait_go_with_their_run_and_those_that_ended_stay_for_their_logs(sync: InProcessSync) -> None:
    controller = sync.create().operator()
    status = sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    assert status.runs.snapshot
    run = status.runs.snapshot.id
    for number in (1, 2):
        sync.executor(run, number)
    sync.api.merge(f"{sync.base}/pods/{run}-exec-2/status", {"status": {"phase": "Failed"}})
    words = {"code": 1, "reason": "ExecutorsLost", "message": "no executor has been there"}
    sync.end(RunKind.SNAPSHOT, 1, message=json.dumps(words))
    assert_reported(sync, controller, Reason.EXECUTORS_LOST, "no executor has been there")
    left = sync.api.items(f"{sync.base}/pods", labelSelector="cdcsync.io/part=executor")
    assert [p["metadata"]["name"] for p in left] == [f"{run}-exec-2"]


def test_executors_that_no_node_takes_are_reported_while_they_are_waited_for(
    sync: InProcessSync,
) -> None:
    """Not after five minutes, when the run is given up: at once, with the scheduler's words, and
    nothing fails."""
    sync.clock_ahead = 1 + UNSCHEDULED_SHOWN
    controller = sync.create().operator()
    status = sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    assert status.runs.snapshot
    run = status.runs.snapshot.id
    sync.show(RunKind.SNAPSHOT, phase="Running")
    for number in (1, 2):
        sync.executor(run, number)
        words = "0/1 nodes are available: 1 Insufficient memory; remedy: none."
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
        sync.api.merge(f"{sync.base}/pods/{run}-exec-{number}/status", {"status": {"conditions": [refused]}})
    status = sync.until(controller, lambda s: s.condition("Ready").reason == "ExecutorsUnschedulable")
    message = status.condition("Ready").message
    assert f'no node takes 2 of the executors\' pods: "{words}"' in message
    assert status.condition("Reconciling").reason == "ExecutorsUnschedulable"
    assert (status.restarts.consecutive, status.condition("Stalled").status) == (0, "False")
    assert sync.stored.runs.snapshot
    events = [e for e in sync.api.items(f"{sync.base}/events") if e["reason"] == "ExecutorsUnschedulable"]
    assert [("Insufficient memory" in e["message"], e["type"]) for e in events] == [(True, "Warning")]
    for number in (1, 2):
        sync.gone(f"{run}-exec-{number}")
    status = sync.until(controller, lambda s: s.condition("Ready").reason != "ExecutorsUnschedulable")
    assert status.condition("Reconciling").message == ""


def test_a_driver_that_no_node_takes_is_reported_at_once(sync: InProcessSync) -> None:
    sync.clock_ahead = 1 + UNSCHEDULED_SHOWN
    controller = sync.create().operator()
    sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no memory"}
    sync.show(RunKind.SNAPSHOT, conditions=[refused])
    status = sync.until(controller, lambda s: s.condition("Ready").reason == "DriverUnschedulable")
    assert '"0/1 nodes: no memory"' in status.condition("Ready").message
    assert status.restarts.consecutive == 0
