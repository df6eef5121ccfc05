"""How a pod's state becomes a reason of the product."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.status import utc
from cdcsync_operator.pod_outcome import GONE_PATIENCE, IMAGE_PATIENCE, UNSCHEDULABLE_PATIENCE, outcome

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


def said(code: int, reason: str) -> str:
    return json.dumps({"code": code, "reason": reason, "message": "m"})


@pytest.mark.parametrize(
    ("found", "code", "reason"),
    [
        (ended("Succeeded", exitCode=0, reason="Completed"), 0, ""),
        (ended(exitCode=137, reason="OOMKilled"), 1, "OutOfMemory"),
        (ended(exitCode=1, reason="OOMKilled", message=said(1, "InternalError")), 1, "OutOfMemory"),
        (ended(exitCode=1, reason="OOMKilled", message=said(1, "SinkUnreachable")), 1, "SinkUnreachable"),
        (ended(exitCode=137, reason="Error"), 1, "DriverLost"),
        (ended(exitCode=1, reason="Error", message="Traceback ..."), 1, "DriverLost"),
        (ended(exitCode=3, message=said(3, "PositionLost")), 3, "PositionLost"),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), 1, "DriverLost"),
        (pod(phase="Failed", reason="NodeLost"), 1, "DriverLost"),
    ],
)
def test_a_pod_that_ended_says_why(found: dict[str, Any], code: int, reason: str) -> None:
    told = outcome(found, CREATED)
    assert told is not None
    assert (told.code, told.reason) == (code, reason)


@pytest.mark.parametrize(
    ("found", "patience", "reason"),
    [
        (unscheduled(), UNSCHEDULABLE_PATIENCE, "DriverUnschedulable"),
        (waiting("ImagePullBackOff"), IMAGE_PATIENCE, "ImagePullFailed"),
        (waiting("ErrImageNeverPull"), IMAGE_PATIENCE, "ImagePullFailed"),
        (waiting("CreateContainerConfigError"), IMAGE_PATIENCE, "DriverLost"),
    ],
)
def test_a_pod_that_cannot_start_is_waited_for_and_then_told(
    found: dict[str, Any], patience: float, reason: str
) -> None:
    assert outcome(found, CREATED + patience) is None
    told = outcome(found, CREATED + patience + 1)
    assert told is not None
    assert (told.code, told.reason) == (1, reason)


def test_a_pod_on_its_way_is_left_alone() -> None:
    assert outcome(waiting("ContainerCreating"), CREATED + 10_000) is None
    assert outcome(pod(phase="Running"), CREATED + 10_000) is None


def test_a_pod_on_a_node_that_is_gone_is_given_up_after_its_grace() -> None:
    """What it may still do is refused by the targets (R8)."""
    found = pod(phase="Running")
    found["metadata"]["deletionTimestamp"] = utc(CREATED + 90)
    assert outcome(found, CREATED + 90 + GONE_PATIENCE) is None
    told = outcome(found, CREATED + 90 + GONE_PATIENCE + 1)
    assert told is not None
    assert told.reason == "DriverLost"
