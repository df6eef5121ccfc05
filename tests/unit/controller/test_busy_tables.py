"""A table that another session locks is tried again by itself, with growing pauses, and holds no
other table back (R5)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode, RunKind, TablePhase
from cdcsync_core.runs.status import Phase
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.decision.observed import RunPreflight
from cdcsync_operator.decision.summary.goal import GoalProgress, Until, verdict
from unit.controller.harness import ControllerHarness

LOCKED = fail(Reason.TABLE_BUSY, "reading the table: Lock wait timeout exceeded (1205)", table="shop.b")
MET: dict[str, Any] = {"name": "shop.b", "phase": "Failed", "reason": "TableBusy", "message": LOCKED.message}


def table(harness: ControllerHarness) -> TableStatus:
    return next(t for t in harness.status.table_status if t.name == "shop.b")


def preflights(harness: ControllerHarness, seconds: int) -> list[int]:
    """After how many seconds one was asked for."""
    found = []
    for second in range(1, seconds + 1):
        harness.log.clear()
        harness.step()
        found += [second for a in harness.log if isinstance(a, RunPreflight)]
    return found


def test_a_table_that_is_locked_before_it_is_read_waits_and_the_others_flow() -> None:
    harness = ControllerHarness(table_errors={"shop.b": LOCKED})
    harness.steps()
    harness.read("shop.a")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    harness.flow("shop.a")
    harness.steps()
    assert (table(harness).reason, "1205" in table(harness).message) == ("TableBusy", True)
    assert harness.status.phase is Phase.STREAMING
    assert harness.condition("Stalled")[0] == "False"
    assert harness.condition("Ready") == ("False", "TableBusy")
    harness.table_errors.clear()
    harness.steps(40)
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.b"}
    assert "shop.a" in harness.live(RunKind.STREAM).names
    harness.read("shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert table(harness).reason == ""


def test_a_table_that_is_locked_while_it_is_read_is_read_when_its_run_has_ended() -> None:
    """While it lives the run does not read it, and would not count as complete."""
    harness = ControllerHarness()
    harness.steps()
    harness.say(RunKind.SNAPSHOT, tables=[MET])
    harness.steps(90)
    assert table(harness).is_busy
    harness.read("shop.a")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert harness.live(RunKind.STREAM).names == {"shop.a"}
    assert harness.status.restarts.consecutive == 0
    harness.flow("shop.a")
    harness.steps(60)
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.b"}


def test_a_table_that_the_stream_met_locked_comes_back_to_it() -> None:
    """The stream goes on without it, and is drained when the lock is gone; another run catches it
    up."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.table_errors["shop.b"] = LOCKED
    harness.say(RunKind.STREAM, tables=[MET])
    harness.steps(30)
    assert not harness.live(RunKind.STREAM).stop_asked
    assert table(harness).is_busy
    harness.table_errors.clear()
    harness.steps(60)
    assert harness.live(RunKind.STREAM).stop_asked
    harness.end(RunKind.STREAM)
    harness.steps()
    harness.read("shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert harness.live(RunKind.CATCH_UP).names == {"shop.b"}
    assert harness.live(RunKind.STREAM).names == {"shop.a"}
    assert table(harness).reason == ""
    assert harness.status.restarts.consecutive == 0


def test_a_catch_up_whose_only_table_is_locked_delays_no_other_run() -> None:
    """In a SQL database, say, where its target has all of its snapshot."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.say(RunKind.STREAM, tables=[MET])
    harness.steps(60)
    harness.end(RunKind.STREAM)
    harness.steps()
    for _ in range(3):
        harness.read("shop.b")
        harness.end(RunKind.SNAPSHOT)
        harness.steps()
        harness.say(RunKind.CATCH_UP, tables=[MET])
        harness.end(RunKind.CATCH_UP, ExitCode.RETRY, "TableBusy", LOCKED.message)
        harness.steps()
        assert harness.status.restarts.consecutive == 0
        harness.steps(400)
        assert harness.live(RunKind.SNAPSHOT).names == {"shop.b"}
        assert harness.live(RunKind.STREAM).names == {"shop.a"}


@pytest.mark.parametrize("by_run", [False, True])
def test_a_sync_whose_only_table_is_locked_goes_on_by_itself(by_run: bool) -> None:
    harness = ControllerHarness(("shop.b",), table_errors={} if by_run else {"shop.b": LOCKED})
    harness.steps()
    if by_run:
        harness.say(RunKind.SNAPSHOT, tables=[MET])
        harness.end(RunKind.SNAPSHOT, ExitCode.RETRY, "TableBusy", LOCKED.message)
        harness.steps()
    assert table(harness).is_busy
    assert (harness.status.phase, harness.status.restarts.consecutive) == (Phase.PLANNING, 0)
    harness.table_errors.clear()
    harness.steps(60)
    harness.read("shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert harness.live(RunKind.STREAM).names == {"shop.b"}


def test_the_pauses_grow_up_to_those_of_a_source_in_order() -> None:
    harness = ControllerHarness(table_errors={"shop.b": LOCKED})
    harness.steps()
    asked = preflights(harness, 6000)
    pauses = [b - a for a, b in itertools.pairwise(asked)]
    assert (pauses[0], pauses[-1]) == (10, 300)
    assert pauses == sorted(pauses)


def test_a_run_that_ends_beside_a_locked_table_says_that_it_may_be_tried_again() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    busy = table(harness).model_copy(update=MET | {"phase": TablePhase.FAILED})
    others = [t for t in harness.status.table_status if t.name != "shop.b"]
    status = harness.status.with_(table_status=(*others, busy), phase=Phase.COMPLETED)
    assert verdict(Until.CAUGHT_UP, GoalProgress(status, True, True)) is ExitCode.RETRY
    stopped = busy.model_copy(update={"reason": "TableUnreadable"})
    status = harness.status.with_(table_status=(*others, stopped), phase=Phase.COMPLETED)
    assert verdict(Until.CAUGHT_UP, GoalProgress(status, True, True)) is ExitCode.USER_MUST_ACT
