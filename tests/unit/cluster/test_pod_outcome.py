"""How a pod's state becomes a reason of the product."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.timestamps import utc
from cdcsync_operator.cluster.objects import pod_outcome
from cdcsync_operator.cluster.objects.pod_outcome import (
    IMAGE_TIMEOUT,
    LOST_NODE_TIMEOUT,
    START_TIMEOUT,
    UNSCHEDULABLE_TIMEOUT,
    in_grace,
    outcome,
)
from cdcsync_operator.cluster.objects.run_objects import KIND_LABEL
from cdcsync_operator.decision.observed import Exit

CREATED = 1_000_000.0


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": utc(CREATED)}, "status": status}


def ended(phase: str = "Failed", **terminated: Any) -> dict[str, Any]:
    return pod(phase=phase, containerStatuses=[{"name": "driver", "state": {"terminated": terminated}}])


def waiting(reason: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "m"}}
    return pod(phase="Pending", containerStatuses=[{"name": "driver", "state": state}])


def unscheduled() -> dict[str, Any]:
    return pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}])


def disrupted(by: str, why: str, **status: Any) -> dict[str, Any]:
    """As the API server shows what drains, taints, preemption and the collector of lost pods do
    (KEP-3329)."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": by, "message": why}
    return pod(conditions=[condition], **status)


def drained(code: int = 0) -> list[dict[str, Any]]:
    """The driver had its grace: it reported that it is done."""
    return [{"name": "driver", "state": {"terminated": {"exitCode": code, "message": termination_message(0, "")}}}]


def termination_message(code: int, reason: str) -> str:
    return json.dumps({"code": code, "reason": reason, "message": "m"})


@pytest.mark.parametrize(
    ("found", "code", "reason"),
    [
        (ended("Succeeded", exitCode=0, reason="Completed"), 0, ""),
        (ended(exitCode=137, reason="OOMKilled"), 1, "OutOfMemory"),
        (ended(exitCode=1, reason="OOMKilled", message=termination_message(1, "InternalError")), 1, "OutOfMemory"),
        (
            ended(exitCode=1, reason="OOMKilled", message=termination_message(1, "SinkUnreachable")),
            1,
            "SinkUnreachable",
        ),
        (ended(exitCode=137, reason="Error"), 1, "DriverLost"),
        (ended(exitCode=1, reason="Error", message="Traceback ..."), 1, "DriverLost"),
        (ended(exitCode=3, message=termination_message(3, "PositionLost")), 3, "PositionLost"),
        (ended(exitCode=137, reason="ContainerStatusUnknown", message="could not be located"), 1, "DriverLost"),
        (ended("Succeeded", exitCode=0, message=termination_message(0, "")), 0, ""),
    ],
)
def test_a_pod_that_ended_says_why(found: dict[str, Any], code: int, reason: str) -> None:
    found_exit = outcome(found, CREATED)
    assert found_exit is not None
    assert (found_exit.code, found_exit.reason) == (code, reason)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pod(phase="Failed", reason="Evicted", message="low on memory"), "Evicted: low on memory"),
        (pod(phase="Failed", reason="NodeLost", message="Node n is unresponsive"), "NodeLost: Node n is unresponsive"),
        (pod(phase="Failed", reason="OutOfmemory", message="Node didn't have enough"), "OutOfmemory: Node didn't"),
        (
            disrupted("DeletionByPodGC", "PodGC: node no longer exists", phase="Failed"),
            "evicted (DeletionByPodGC: PodGC: node no longer exists)",
        ),
        (
            disrupted(
                "TerminationByKubelet", "imminent node shutdown", phase="Failed", reason="Terminated",
                message="Pod was terminated", containerStatuses=drained(),
            ),
            "Terminated: Pod was terminated (TerminationByKubelet: imminent node shutdown)",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="low on ephemeral-storage", containerStatuses=drained()),
            "Evicted: low on ephemeral-storage",
        ),
        (
            disrupted("TerminationByKubelet", "EmptyDir exceeds", phase="Succeeded", containerStatuses=drained()),
            "evicted (TerminationByKubelet: EmptyDir exceeds)",
        ),
        (pod(phase="Failed"), "failed without a reason"),
        (ended(exitCode=134, reason="Error"), "the driver was ended by SIGABRT without an exit report"),
        (ended(exitCode=137, reason="Error"), "the driver was killed without an exit report"),
        (ended(exitCode=255, reason="Error"), "the driver ended with code 255 without"),
    ],
)  # fmt: skip
def test_what_takes_a_pod_away_is_named_though_the_driver_drained(found: dict[str, Any], words: str) -> None:
    found_exit = outcome(found, CREATED)
    assert found_exit is not None
    assert (found_exit.code, found_exit.reason) == (1, "DriverLost")
    assert words in found_exit.message


@pytest.mark.parametrize(
    ("kind", "field"),
    [("snapshot", "spec.driver.memory"), ("stream", "spec.stream.driver.memory"), ("", "spec.driver.memory")],
)
def test_a_pod_without_memory_names_its_limit_what_it_did_and_the_field(kind: str, field: str) -> None:
    killed = ended(exitCode=137, reason="OOMKilled", message="starting\nreading keys into the index\n")
    killed["metadata"]["labels"] = {KIND_LABEL: kind} if kind else None
    killed["spec"] = {"containers": [{"name": "proxy"}, {"name": "driver", "resources": {"limits": {"memory": "1Gi"}}}]}
    found_exit = outcome(killed, CREATED)
    assert found_exit is not None
    assert found_exit.message == (
        'the driver\'s pod ran out of its memory of 1Gi (the last line of its log: "reading keys into the index"); '
        f"remedy: raise {field}"
    )


def test_what_a_driver_reported_counts_where_its_pod_says_nothing_of_it() -> None:
    refused = Exit(3, "PositionLost", "m")
    assert outcome(ended(exitCode=3), CREATED, refused) == refused
    assert outcome(ended(exitCode=137, reason="OOMKilled"), CREATED, refused) == refused
    killed = outcome(ended(exitCode=1, reason="OOMKilled"), CREATED, Exit(1, "InternalError", "m"))
    assert killed
    assert killed.reason == "OutOfMemory"
    assert outcome(pod(phase="Running"), CREATED, refused) is None, "it may still be at work with its targets"


@pytest.mark.parametrize(
    ("found", "timeout", "reason"),
    [
        (unscheduled(), UNSCHEDULABLE_TIMEOUT, "DriverUnschedulable"),
        (waiting("ImagePullBackOff"), IMAGE_TIMEOUT, "ImagePullFailed"),
        (waiting("ErrImageNeverPull"), IMAGE_TIMEOUT, "ImagePullFailed"),
        (waiting("CreateContainerConfigError"), IMAGE_TIMEOUT, "DriverLost"),
        (waiting("ContainerCreating"), START_TIMEOUT, "DriverLost"),
        (waiting("PodInitializing"), START_TIMEOUT, "DriverLost"),
        (pod(phase="Pending"), START_TIMEOUT, "DriverLost"),
    ],
)
def test_a_pod_that_cannot_start_is_waited_for_and_then_told(
    found: dict[str, Any], timeout: float, reason: str
) -> None:
    assert outcome(found, CREATED + timeout) is None
    found_exit = outcome(found, CREATED + timeout + 1)
    assert found_exit is not None
    assert (found_exit.code, found_exit.reason) == (1, reason)


def test_a_pod_on_its_way_is_left_alone_for_a_while_and_one_that_runs_for_ever() -> None:
    assert outcome(waiting("ContainerCreating"), CREATED + START_TIMEOUT) is None
    assert outcome(pod(phase="Running"), CREATED + 1_000_000) is None


def test_a_pod_that_never_starts_says_what_it_waits_for() -> None:
    found_exit = outcome(waiting("ContainerCreating"), CREATED + START_TIMEOUT + 1)
    assert found_exit is not None
    assert "has not started for 15 minutes: ContainerCreating: m" in found_exit.message


@pytest.mark.parametrize(
    ("terminated", "code", "reason"),
    [
        ({"exitCode": 0}, 0, ""),
        ({"exitCode": 0, "message": termination_message(0, "")}, 0, ""),
        ({"exitCode": 3, "message": termination_message(3, "PositionLost")}, 3, "PositionLost"),
        ({"exitCode": 137, "reason": "OOMKilled"}, 1, "OutOfMemory"),
        ({"exitCode": 137, "reason": "Error"}, 1, "DriverLost"),
    ],
)
def test_a_run_is_over_with_its_driver_though_a_sidecar_goes_on(
    terminated: dict[str, Any], code: int, reason: str
) -> None:
    """The pod's phase stays Running until the proxy or the shipper of logs in the driver's pod
    ends, too."""
    proxy = {"name": "proxy", "state": {"running": {}}}
    found = pod(phase="Running", containerStatuses=[proxy, {"name": "driver", "state": {"terminated": terminated}}])
    found_exit = outcome(found, CREATED + 5)
    assert found_exit is not None
    assert (found_exit.code, found_exit.reason) == (code, reason)


def test_a_driver_that_ended_alone_is_judged_by_its_pods_phase() -> None:
    """Which shows why: one that drained because its kubelet evicts it has ended well."""
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 0}}}
    assert outcome(pod(phase="Running", containerStatuses=[ended]), CREATED + 5) is None


def test_another_container_that_ended_ends_no_run() -> None:
    helper = {"name": "helper", "state": {"terminated": {"exitCode": 1}}}
    found = pod(phase="Running", containerStatuses=[helper, {"name": "driver", "state": {"running": {}}}])
    assert outcome(found, CREATED + 5) is None


def test_a_pod_has_its_grace_until_it_is_over_or_silent() -> None:
    found = pod(phase="Running")
    found["metadata"]["deletionTimestamp"] = utc(CREATED + 90)
    assert in_grace(found, CREATED + 90 + LOST_NODE_TIMEOUT)
    assert not in_grace(found, CREATED + 90 + LOST_NODE_TIMEOUT + 1)
    found["status"]["phase"] = "Failed"
    assert not in_grace(found, CREATED)


def test_a_pod_on_a_node_that_is_gone_is_given_up_after_its_grace() -> None:
    """What it may still do is refused by the targets (R8)."""
    found = disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", phase="Running")
    found["metadata"]["deletionTimestamp"] = utc(CREATED + 90)
    assert outcome(found, CREATED + 90 + LOST_NODE_TIMEOUT) is None
    found_exit = outcome(found, CREATED + 90 + LOST_NODE_TIMEOUT + 1)
    assert found_exit is not None
    assert found_exit.reason == "DriverLost"
    assert "DeletionByTaintManager" in found_exit.message


def test_an_image_that_cannot_be_pulled_is_reported_while_it_is_waited_for() -> None:
    reason, message = pod_outcome.waiting(waiting("ErrImagePull"), (), CREATED)
    assert reason == "ImagePullFailed"
    assert message == 'the image of the driver\'s pod is not there yet: ErrImagePull: "m"'
    assert pod_outcome.waiting(waiting("ContainerCreating"), (), CREATED) == ("", "")
