"""A table that another session locks is tried again by itself, with growing pauses, and holds no
other table back (R5)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode, RunKind, TablePhase
from cdcsync_core.runs.status import Phase, TableStatus
from cdcsync_operator.decision.observed import RunPreflight
from cdcsync_operator.decision.summary.goal import GoalProgress, Until, verdict
from unit.controller.harness import ControllerHarness

LOCKED = fail(Reason.TABLE_BUSY, "reading the table: Lock wait timeout exceeded (1205)", table="shop.b")
MET: dict[str, Any] = {"name": "shop.b", "phase": "Failed", "reason": "TableBusy", "message": LOCKED.message}


def table(world: ControllerHarness) -> TableStatus:
    return next(t for t in world.status.table_status if t.name == "shop.b")


def preflights(world: ControllerHarness, seconds: int) -> list[int]:
    """After how many seconds one was asked for."""
    found = []
    for second in range(1, seconds + 1):
        world.log.clear()
        world.step()
        found += [second for a in world.log if isinstance(a, RunPreflight)]
    return found


def test_a_table_that_is_locked_before_it_is_read_waits_and_the_others_flow() -> None:
    world = ControllerHarness(table_errors={"shop.b": LOCKED})
    world.steps()
    world.read("shop.a")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    world.flow("shop.a")
    world.steps()
    assert (table(world).reason, "1205" in table(world).message) == ("TableBusy", True)
    assert world.status.phase is Phase.STREAMING
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Ready") == ("False", "TableBusy")
    world.table_errors.clear()
    world.steps(40)
    assert world.live(RunKind.SNAPSHOT).names == {"shop.b"}
    assert "shop.a" in world.live(RunKind.STREAM).names
    world.read("shop.b")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert table(world).reason == ""


def test_a_table_that_is_locked_while_it_is_read_is_read_when_its_run_has_ended() -> None:
    """While it lives the run does not read it, and would not count as complete."""
    world = ControllerHarness()
    world.steps()
    world.say(RunKind.SNAPSHOT, tables=[MET])
    world.steps(90)
    assert table(world).is_busy
    world.read("shop.a")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert world.live(RunKind.STREAM).names == {"shop.a"}
    assert world.status.restarts.consecutive == 0
    world.flow("shop.a")
    world.steps(60)
    assert world.live(RunKind.SNAPSHOT).names == {"shop.b"}


def test_a_table_that_the_stream_met_locked_comes_back_to_it() -> None:
    """The stream goes on without it, and is drained when the lock is gone; another run catches it
    up."""
    world = ControllerHarness()
    world.to_streaming()
    world.table_errors["shop.b"] = LOCKED
    world.say(RunKind.STREAM, tables=[MET])
    world.steps(30)
    assert not world.live(RunKind.STREAM).stop_asked
    assert table(world).is_busy
    world.table_errors.clear()
    world.steps(60)
    assert world.live(RunKind.STREAM).stop_asked
    world.end(RunKind.STREAM)
    world.steps()
    world.read("shop.b")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert world.live(RunKind.CATCH_UP).names == {"shop.b"}
    assert world.live(RunKind.STREAM).names == {"shop.a"}
    assert table(world).reason == ""
    assert world.status.restarts.consecutive == 0


@pytest.mark.parametrize("by_run", [False, True])
def test_a_sync_whose_only_table_is_locked_goes_on_by_itself(by_run: bool) -> None:
    world = ControllerHarness(("shop.b",), table_errors={} if by_run else {"shop.b": LOCKED})
    world.steps()
    if by_run:
        world.say(RunKind.SNAPSHOT, tables=[MET])
        world.end(RunKind.SNAPSHOT, ExitCode.RETRY, "TableBusy", LOCKED.message)
        world.steps()
    assert table(world).is_busy
    assert (world.status.phase, world.status.restarts.consecutive) == (Phase.PLANNING, 0)
    world.table_errors.clear()
    world.steps(60)
    world.read("shop.b")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert world.live(RunKind.STREAM).names == {"shop.b"}


def test_the_pauses_grow_up_to_those_of_a_source_in_order() -> None:
    world = ControllerHarness(table_errors={"shop.b": LOCKED})
    world.steps()
    asked = preflights(world, 6000)
    pauses = [b - a for a, b in itertools.pairwise(asked)]
    assert (pauses[0], pauses[-1]) == (10, 300)
    assert pauses == sorted(pauses)


def test_a_run_that_ends_beside_a_locked_table_says_that_it_may_be_tried_again() -> None:
    world = ControllerHarness()
    world.to_streaming()
    busy = table(world).model_copy(update=MET | {"phase": TablePhase.FAILED})
    others = [t for t in world.status.table_status if t.name != "shop.b"]
    status = world.status.with_(table_status=(*others, busy), phase=Phase.COMPLETED)
    assert verdict(Until.CAUGHT_UP, GoalProgress(status, True, True)) is ExitCode.RETRY
    stopped = busy.model_copy(update={"reason": "TableUnreadable"})
    status = world.status.with_(table_status=(*others, stopped), phase=Phase.COMPLETED)
    assert verdict(Until.CAUGHT_UP, GoalProgress(status, True, True)) is ExitCode.USER_MUST_ACT
