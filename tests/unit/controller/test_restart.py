"""Pauses between attempts: they double, end at the maximum, and are forgotten after a run that
lasted."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.spec import AutoRestart, Backoff
from cdcsync_core.runs.status_part import Restarts
from cdcsync_operator.cluster.settings import from_environment
from cdcsync_operator.decision.restart import after_failure, delay, exhausted, floored, is_stable, wait_left
from unit.controller.harness import resource

POLICY = AutoRestart(backoff=Backoff(initial=5.0, max=600.0))


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 5), (2, 10), (3, 20), (7, 320), (8, 600), (9, 600), (10_000, 600)]
)
def test_the_pause_doubles_up_to_its_maximum(failures: int, seconds: float) -> None:
    assert delay(POLICY, failures) == seconds


def test_failures_in_a_row_are_counted_and_waited_for() -> None:
    first = after_failure(POLICY, Restarts(), ("DriverLost", "gone"), lasted=3, now=1000.0)
    assert (first.consecutive, first.reason) == (1, "DriverLost")
    assert 5 <= wait_left(first, 1000.0) <= 6
    assert wait_left(first, 1006.0) == 0
    second = after_failure(POLICY, first, ("OutOfMemory", "no memory"), lasted=3, now=1006.0)
    assert (second.consecutive, second.reason, second.message) == (2, "OutOfMemory", "no memory")


def test_a_run_that_lasted_starts_a_new_row() -> None:
    row = Restarts(consecutive=7, reason="DriverLost")
    assert not is_stable(POLICY, row, lasted=300)
    assert is_stable(POLICY, row, lasted=320)
    assert after_failure(POLICY, row, ("DriverLost", "gone"), lasted=321, now=0.0).consecutive == 1


def test_where_the_user_said_to_stop() -> None:
    assert not exhausted(POLICY, Restarts(consecutive=1000))
    assert exhausted(AutoRestart(enabled=False), Restarts(consecutive=1))
    assert not exhausted(AutoRestart(maxRestarts=2), Restarts(consecutive=2))
    assert exhausted(AutoRestart(maxRestarts=2), Restarts(consecutive=3))


def test_a_clusters_floor_holds_whatever_a_resource_asks_for() -> None:
    """And changes nothing of what is above it."""
    asked = resource(autoRestart={"backoff": {"initial": "100ms", "max": "200ms"}, "maxRestarts": 3})
    policy = floored(asked, 5.0).spec.auto_restart
    assert [delay(policy, n) for n in range(1, 5)] == [5.0, 5.0, 5.0, 5.0]
    assert policy.max_restarts == 3
    slow = resource(autoRestart={"backoff": {"initial": "7s", "max": "20s"}})
    assert floored(slow, 5.0) == slow
    assert floored(asked, 0.0) == asked


def test_the_floor_is_the_operators_policy() -> None:
    assert from_environment({"CDCSYNC_DRIVER_IMAGE": "x"}).policy.least_restart_seconds == 5
    chosen = {"CDCSYNC_DRIVER_IMAGE": "x", "CDCSYNC_MIN_RESTART_BACKOFF": "1m30s"}
    assert from_environment(chosen).policy.least_restart_seconds == 90
    with pytest.raises(CdcError, match=r"policy\.minRestartBackoff"):
        from_environment(chosen | {"CDCSYNC_MIN_RESTART_BACKOFF": "soon"})
