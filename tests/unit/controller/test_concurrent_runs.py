"""A stream with a snapshot or a catch-up beside it: what becomes of one is not hidden by the other
(R5)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, TableStatus
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_operator.decision.observed import RunPreflight, RunState, StopRun
from unit.controller.harness import ControllerHarness, place

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
AGAIN = [{"table": "shop.b", "nonce": 1}]
FAILED = {"name": "shop.b", "phase": "Failed", "reason": "TypeUnsupported", "message": "bad"}


def table(world: ControllerHarness, name: str = "shop.b") -> TableStatus:
    found = world.status.table(name)
    assert found is not None
    return found


def flowing() -> ControllerHarness:
    world = ControllerHarness()
    world.to_streaming()
    return world


def reading_again() -> ControllerHarness:
    """A snapshot of shop.b beside the stream, without a report yet."""
    world = flowing()
    world.change(resnapshot=AGAIN)
    world.steps()
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    return world


def catching_up() -> ControllerHarness:
    world = reading_again()
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT)
    world.steps()
    assert world.live(CATCH_UP).tables == (("shop.b", 1),)
    return world


# ---- a failure of a run beside the stream


def test_a_permanent_end_of_a_catch_up_stops_its_tables_with_the_reason() -> None:
    world = catching_up()
    world.end(CATCH_UP, 3, "TransactionTooLarge", "the scratch disk is full")
    world.steps()
    assert (table(world).phase, table(world).reason) == (TablePhase.FAILED, "TransactionTooLarge")
    assert world.condition("Stalled") == ("True", "TransactionTooLarge")
    assert world.kinds() == {"stream"}, "the others flow on, and nothing is begun again"


def test_a_permanent_end_of_a_reading_that_had_not_begun_stops_its_tables_for_good() -> None:
    """The table is positioned all the time; what the stream says of its old content takes nothing
    back."""
    world = reading_again()
    starts = len(world.started())
    world.end(SNAPSHOT, 3, "SpecInvalid", "the API server refused a driver")
    for _ in range(20):
        world.flow("shop.a", "shop.b")
        world.step()
    assert (table(world).phase, table(world).reason) == (TablePhase.FAILED, "SpecInvalid")
    assert table(world).message == "the API server refused a driver"
    assert len(world.started()) == starts
    assert table(world, "shop.a").phase is TablePhase.STREAMING


def test_a_table_that_was_read_to_the_end_does_not_fail_with_its_run() -> None:
    world = ControllerHarness(tables=("shop.a", "shop.b", "shop.c"))
    world.to_streaming()
    world.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 1}])
    world.steps()
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    world.step()
    assert not table(world).failed
    assert table(world, "shop.c").reason == "SnapshotOutlivesBinlog"


@pytest.mark.parametrize("kind", [SNAPSHOT, CATCH_UP])
def test_a_transient_end_beside_a_stream_is_tried_again_with_growing_pauses(kind: RunKind) -> None:
    world = {SNAPSHOT: reading_again, CATCH_UP: catching_up}[kind]()
    starts: list[float] = []
    for _ in range(400):
        world.flow("shop.a")
        world.step()
        if kind.value in world.kinds():
            starts.append(world.now)
            world.end(kind, 1, "OutOfMemory", "the driver's pod ran out of memory")
    pauses = [round(b - a) for a, b in itertools.pairwise(starts)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 10 < 100 < pauses[-1]
    assert world.status.restarts.consecutive == len(starts)
    assert world.kinds() == {"stream"}


def test_a_run_beside_the_stream_is_forgiven_when_it_lasted_too() -> None:
    world = reading_again()
    world.end(SNAPSHOT, 1, "OutOfMemory", "killed")
    for _ in range(50):
        world.flow("shop.a")
        world.step()
    assert world.kinds() == {"stream", "snapshot"}
    assert world.status.restarts.consecutive == 1, "it has not lasted for a minute yet"
    for _ in range(30):
        world.flow("shop.a")
        world.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1}])
        world.step()
    assert world.status.restarts.consecutive == 0


def test_a_stream_that_is_handed_over_does_not_wait_for_what_failed_beside_it() -> None:
    world = ControllerHarness(tables=("shop.a", "shop.b", "shop.c"))
    world.to_streaming()
    world.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 1}])
    world.steps()
    world.read("shop.b", nonce=1)
    world.steps()
    world.end(CATCH_UP)
    world.step()
    assert world.live(STREAM).stop_asked
    world.end(SNAPSHOT, 1, "OutOfMemory", "killed")
    world.step()
    waits = world.status.restarts.next_attempt_at
    assert waits
    world.end(STREAM)
    world.step()
    assert world.kinds() == {"stream"}
    assert dict(world.live(STREAM).tables)["shop.b"] == 1
    assert world.status.restarts.next_attempt_at == waits, "the pause of the other one stands"


# ---- a run that was asked to drain


def test_how_a_drained_run_of_an_older_spec_ended_fails_no_newer_one() -> None:
    world = flowing()
    world.change(restartNonce=1)
    world.steps()
    assert world.live(STREAM).stop_asked
    world.end(STREAM, 3, "AuthenticationFailed", "the old password")
    world.steps()
    assert world.kinds() == {"stream"}
    assert world.condition("Stalled")[0] == "False"
    assert world.status.restarts.consecutive == 0


# ---- a table that failed in the stream


@pytest.mark.parametrize(
    "spec",
    [
        {"autoRestart": {"maxRestarts": 5}},
        {"snapshot": {"only": False, "chunkSize": 10}},
        {"tables": {"include": [r"shop\..*"], "exclude": [r"shop\.z"]}},
        {"resnapshot": [{"table": "shop.a", "nonce": 1}]},
        {"restartNonce": 1},
    ],
)
def test_any_change_tries_a_table_again_that_failed_in_the_stream_and_really(spec: dict[str, Any]) -> None:
    """The live stream leaves it out forever, so another one takes its place; until then the reason
    stands."""
    world = flowing()
    first = world.live(STREAM).id
    world.say(STREAM, tables=[FAILED])
    world.steps()
    world.change(**spec)
    world.steps()
    assert world.live(STREAM).stop_asked
    assert table(world).message == "bad"
    assert world.condition("Ready") == ("False", "TypeUnsupported")
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).id != first
    assert "shop.b" in world.live(STREAM).names
    assert not table(world).failed
    assert world.status.observed_generation == world.resource.metadata.generation


def test_a_failed_table_with_a_nonce_comes_back_by_its_target() -> None:
    world = catching_up()
    world.end(CATCH_UP)
    world.step()
    world.end(STREAM)
    world.steps()
    world.flow("shop.a", "shop.b")
    world.say(STREAM, tables=[FAILED])
    world.steps()
    world.change(resnapshot=AGAIN, autoRestart={"maxRestarts": 5})
    world.steps()
    world.end(STREAM)
    world.steps()
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT)
    world.steps()
    assert world.live(CATCH_UP).tables == (("shop.b", 1),)


def test_a_table_that_failed_in_the_stream_is_read_again_beside_it() -> None:
    world = flowing()
    world.say(STREAM, tables=[FAILED])
    world.steps()
    world.change(resnapshot=AGAIN)
    world.steps()
    assert world.live(STREAM).state is RunState.RUNNING
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)


def test_no_change_leaves_a_failed_table_and_its_stream_alone() -> None:
    world = flowing()
    world.say(STREAM, tables=[FAILED])
    world.steps()
    assert [world.step().actions for _ in range(5)] == [()] * 5
    assert table(world).message == "bad"


# ---- whose word counts


def test_a_stream_is_heard_while_the_snapshot_before_it_takes_its_time_to_end() -> None:
    """What it says then it does not say again: on a silent source the tables would catch up for
    ever."""
    world = ControllerHarness()
    world.steps()
    world.read("shop.a", "shop.b")
    world.steps()
    assert world.kinds() == {"snapshot", "stream"}
    world.flow("shop.a", "shop.b")
    world.end(SNAPSHOT)
    world.steps()
    assert [t.phase for t in world.status.table_status] == [TablePhase.STREAMING] * 2
    assert world.condition("Consistent")[0] == "True"


def test_a_table_that_is_read_again_is_its_readers_to_tell_of() -> None:
    world = reading_again()
    world.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "splitsFinished": 3}]
    )
    world.flow("shop.a", "shop.b", offset=400)
    assert (table(world).phase, table(world).splits_finished) == (TablePhase.SNAPSHOTTING, 3)
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT)
    world.steps()
    world.say(
        CATCH_UP,
        tables=[{"name": "shop.b", "phase": "CatchingUp", "nonce": 1, "generation": 1, "position": place(350)}],
    )
    assert table(world).position == StatusPosition.model_validate(place(350))
    world.end(CATCH_UP)
    world.step()
    world.end(STREAM)
    world.steps()
    world.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Streaming", "nonce": 1, "generation": 1, "position": place(500)}]
    )
    assert (table(world).phase, table(world).position) == (
        TablePhase.STREAMING,
        StatusPosition.model_validate(place(500)),
    )


# ---- an entry of spec.resnapshot that is removed


@pytest.mark.parametrize(
    "reported", [(), ({"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None},)]
)
def test_a_nonce_that_is_taken_back_while_its_table_is_read_leaves_no_table_out(reported: tuple[Any, ...]) -> None:
    """The table had failed in the stream, which does not capture it, and that was reported long
    ago."""
    world = flowing()
    first = world.live(STREAM).id
    world.say(STREAM, tables=[FAILED])
    world.steps()
    world.change(resnapshot=AGAIN)
    world.steps()
    world.say(SNAPSHOT, tables=list(reported))
    world.steps()
    world.change(resnapshot=[])
    world.steps()
    assert world.live(STREAM).stop_asked
    world.end(STREAM)
    world.end(SNAPSHOT, 1, "OutOfMemory", "killed")
    world.steps(10)
    assert dict(world.live(SNAPSHOT).tables) == {"shop.b": 0}
    world.read("shop.b")
    world.end(SNAPSHOT)
    world.steps()
    world.end(CATCH_UP)
    world.step()
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).id != first
    assert dict(world.live(STREAM).tables) == {"shop.a": 0, "shop.b": 0}


def test_a_table_that_flows_gets_no_second_writer_when_its_nonce_is_taken_back() -> None:
    world = catching_up()
    world.end(CATCH_UP)
    world.step()
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).tables == (("shop.a", 0), ("shop.b", 1))
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Streaming", "nonce": 1, "generation": 1}])
    world.change(resnapshot=[])
    world.steps()
    assert world.kinds() == {"stream"}
    assert world.live(STREAM).state is RunState.RUNNING
    world.change(restartNonce=1)
    world.steps()
    world.end(STREAM)
    world.steps()
    world.steps()
    assert world.kinds() == {"stream"}, "nor when the stream is made again"


def test_a_nonce_that_is_taken_back_while_its_table_catches_up_is_handed_over_all_the_same() -> None:
    """The old stream has stopped applying the table when its new content was published."""
    world = catching_up()
    world.change(resnapshot=[])
    world.steps()
    world.end(CATCH_UP)
    world.step()
    assert world.live(STREAM).stop_asked
    world.end(STREAM)
    world.steps()
    assert dict(world.live(STREAM).tables)["shop.b"] == 1


# ---- a controller that is new


def test_a_new_controller_looks_again_at_a_source_that_was_unfit() -> None:
    world = ControllerHarness(errors=(fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),))
    world.steps()
    assert world.status.phase is Phase.PENDING
    world.preflight, world.errors = None, ()
    assert world.step().actions == (RunPreflight(1),)
    world.steps(2)
    assert world.kinds() == {"snapshot"}
    assert world.condition("Stalled")[0] == "False"


def test_a_new_controller_leaves_a_run_that_failed_for_good_alone() -> None:
    world = flowing()
    world.end(STREAM, 3, "PositionLost", "purged")
    world.steps()
    world.preflight = None
    assert [world.step(400).actions for _ in range(3)] == [()] * 3
    assert world.status.phase is Phase.FAILED


def test_a_stop_is_asked_once_of_a_run_that_drains() -> None:
    world = flowing()
    world.change(state="paused")
    world.steps()
    assert sum(isinstance(a, StopRun) for a in world.log) == 1
