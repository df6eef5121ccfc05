"""A stream with a schedule on a real API server: between two times no object of a run is left."""

from __future__ import annotations

import time

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.timestamps import unix_time
from cdcsync_operator.cluster.controller import KubeController
from support.in_process_sync import InProcessSync

STREAM = RunKind.STREAM
KINDS = ("pods", "configmaps", "serviceaccounts")


def objects(sync: InProcessSync) -> list[str]:
    """The objects of runs."""
    found = [(kind, sync.api.items(f"{sync.base}/{kind}", labelSelector="cdcsync.io/run")) for kind in KINDS]
    return [f"{kind}/{o['metadata']['name']}" for kind, items in found for o in items]


def next_time(status: Status) -> float:
    assert status.schedule is not None
    return unix_time(status.schedule.next_time) or 0.0


def catch_up(sync: InProcessSync, controller: KubeController) -> Status:
    """The run of a time, to its end."""
    sync.until(controller, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods())
    sync.flow(sync.driver(STREAM))
    sync.end(STREAM)
    return sync.until(controller, lambda s: s.phase is Phase.WAITING and not objects(sync))


@pytest.fixture
def controller(sync: InProcessSync) -> KubeController:
    """The controller of a sync that has caught up for the first time."""
    found = sync.create(stream={"schedule": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"}}).operator()
    sync.until(found, lambda s: s.runs.snapshot and sync.pods())
    sync.read(sync.driver(RunKind.SNAPSHOT), *sync.tables)
    sync.end(RunKind.SNAPSHOT)
    catch_up(sync, found)
    return found


def test_between_two_times_nothing_is_left_and_a_time_has_one_run(
    sync: InProcessSync, controller: KubeController
) -> None:
    status = sync.stored
    assert status.condition("Ready").status == "True"
    assert status.condition("Reconciling").status == "False"
    assert status.lag_seconds == 0
    pause = controller.reconcile()
    assert pause is not None
    assert 100 < pause <= 300 or pause <= next_time(status) - time.time(), "it is asked seldom"

    first = next_time(status)
    sync.clock_ahead = first - time.time() - 5
    assert (controller.reconcile() or 99) <= 5, "it wakes at the time"
    assert objects(sync) == []
    sync.clock_ahead = first - time.time() + 1
    status = sync.until(controller, lambda s: s.runs.stream)
    assert (status.condition("Ready").status, status.condition("Ready").reason) == ("True", "CatchingUp")
    status = catch_up(sync, controller)
    assert next_time(status) > first + 80_000


def test_what_another_operator_finds_ended_has_caught_up(sync: InProcessSync, controller: KubeController) -> None:
    first = next_time(sync.stored)
    sync.clock_ahead = first - time.time() + 1
    sync.until(controller, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods())
    sync.flow(sync.driver(STREAM))
    sync.end(STREAM)
    sync.clock_ahead += 3600
    status = sync.until(sync.operator(), lambda s: s.phase is Phase.WAITING)
    assert next_time(status) > first
    assert status.condition("Ready").status == "True"


def test_a_pod_that_is_deleted_has_not_caught_up(sync: InProcessSync, controller: KubeController) -> None:
    """However well it drained."""
    first = next_time(sync.stored)
    sync.clock_ahead = first - time.time() + 1
    ref = sync.until(controller, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods()).runs.stream
    assert ref is not None
    driver = sync.driver(STREAM)
    sync.flow(driver)
    driver.report(exit={"code": 0, "reason": "", "message": "", "remedy": ""})
    sync.gone(ref.pod)
    status = sync.until(controller, lambda s: s.runs.stream and s.runs.stream.id != ref.id)
    assert next_time(status) == first
    catch_up(sync, controller)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"cron": "0 25 * * *"}, "spec.stream.schedule.cron is '0 25 * * *'; needed: a cron expression"),
        ({"cron": "0 2 * * *", "timeZone": "Mars/Olympus"}, "needed: a name of the time zone database"),
    ],
)
def test_what_is_no_time_is_refused_in_words(sync: InProcessSync, schedule: dict[str, str], words: str) -> None:
    """Beyond what a rule of the CRD can say."""
    controller = sync.create(stream={"schedule": schedule}).operator()
    status = sync.until(controller, lambda s: s.condition("Stalled").status == "True")
    assert status.condition("Stalled").reason == "SpecInvalid"
    assert words in status.condition("Stalled").message
    sync.change(stream={"schedule": {"cron": "0 2 * * *", "timeZone": "UTC"}})
    sync.until(controller, lambda s: s.runs.snapshot)
