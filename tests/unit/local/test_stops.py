"""A look at the runs changes none of them: a driver is ended by a stop, which is decided."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_operator.decision.observed import Exit, ObservedRun, RunState, StartRun, StopRun
from cdcsync_operator.local.driver_process import DriverProcess, still_alive
from cdcsync_operator.local.drivers import LocalDrivers
from cdcsync_operator.local.store import ManifestFiles
from cdcsync_operator.reconcile.planning import Splits
from support.waiting import eventually
from unit.local.harness import DRIVER, LocalHarness, table

RUN = "shop-0000-1"
STOP = StopRun(RunKind.SNAPSHOT, RUN)


class PlannedRuns:
    """Snapshot runs of one sync, whose plan goes on until `planned` is set; `now` is their
    clock."""

    def __init__(self, local: LocalHarness) -> None:
        self.local, self.now, self.planned, self.broken = local, 1000.0, threading.Event(), False
        local.state.runs.mkdir(parents=True)
        local.state.logs.mkdir(parents=True)

    def drivers(self) -> LocalDrivers:
        """A controller's view of the folder, without what an earlier one knew of its runs."""
        state, secrets = self.local.state, Path("/secrets")
        return LocalDrivers(state, secrets, DRIVER, lambda: self.now, lambda: None, table, lambda _: self._planning())

    def start(self, drivers: LocalDrivers) -> DriverProcess:
        resource = ManifestFiles([str(self.local.manifest)], continuous=False).load().resource
        drivers.start(resource, StartRun(RunKind.SNAPSHOT, RUN, 1, (("shop.a", 1),), "print"), Status())
        return drivers._runs[RUN].process

    def _planning(self) -> AbstractContextManager[Splits]:
        if self.broken:
            raise RuntimeError("the disk is gone")
        return nullcontext(self._splits)

    def _splits(self, _: Capture, start: Bound) -> Iterator[Split]:
        self.planned.wait()
        yield Split(start, None)


@pytest.fixture
def runs(local: LocalHarness) -> Iterator[PlannedRuns]:
    started = PlannedRuns(local)
    yield started
    started.planned.set()


def seen(drivers: LocalDrivers) -> ObservedRun:
    (run,) = drivers.observe(Status()).runs
    return run


def ended(process: DriverProcess) -> Exit:
    process._watcher.join(600)
    assert process.exit
    return process.exit


def test_a_driver_that_does_not_drain_is_ended_by_a_stop_after_its_grace(
    local: LocalHarness, runs: PlannedRuns
) -> None:
    local.order(RunKind.SNAPSHOT, "stubborn")
    drivers = runs.drivers()
    process = runs.start(drivers)
    eventually(lambda: len(drivers._runs[RUN].inbox._reports) > 1)  # SIGTERM is ignored by now
    drivers.stop(STOP)
    assert not seen(drivers).unfit
    drivers.stop(STOP)
    assert seen(drivers).state is RunState.DRAINING
    runs.now += 10_000
    assert [seen(drivers).unfit for _ in range(3)] == [True] * 3
    assert process.exit is None
    drivers.stop(STOP)
    assert "SIGKILL" in ended(process).message


def test_a_run_without_a_plan_is_stopped_and_its_error_is_that_of_the_plan(runs: PlannedRuns) -> None:
    runs.broken = True
    drivers = runs.drivers()
    process = runs.start(drivers)
    planner = drivers._runs[RUN].planner
    assert planner
    planner.join(600)
    run = seen(drivers)
    assert (run.state, run.unfit, process.exit) == (RunState.DRAINING, True, None)
    drivers.stop(STOP)
    ended(process)
    run = seen(drivers)
    assert run.exit
    assert (run.state, run.exit.reason, run.unfit) == (RunState.ENDED, Reason.INTERNAL_ERROR.value, False)


def test_a_driver_that_an_earlier_controller_left_is_ended_by_a_stop_after_its_grace(
    local: LocalHarness, runs: PlannedRuns
) -> None:
    local.order(RunKind.SNAPSHOT, "stubborn")
    process = runs.start(runs.drivers())
    drivers = runs.drivers()
    assert not seen(drivers).unfit
    drivers.stop(STOP)
    runs.now += 10_000
    assert seen(drivers).unfit
    assert still_alive(local.state.runs / RUN)
    drivers.stop(STOP)
    ended(process)
    assert seen(drivers).state is RunState.ENDED
