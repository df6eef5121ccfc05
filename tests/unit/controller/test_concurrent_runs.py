"""A stream with a snapshot or a catch-up beside it: what becomes of one is not hidden by the other
(R5)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_operator.decision.observed import RunPreflight, RunState, StopRun
from unit.controller.flows import AGAIN, CATCH_UP, SNAPSHOT, STREAM, entry, flowing, reading_again
from unit.controller.harness import ControllerHarness, place

FAILED = {"name": "shop.b", "phase": "Failed", "reason": "TypeUnsupported", "message": "bad"}


def catching_up() -> ControllerHarness:
    harness = reading_again()
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.live(CATCH_UP).tables == (("shop.b", 1),)
    return harness


# ---- a failure of a run beside the stream


def test_a_permanent_end_of_a_catch_up_stops_its_tables_with_the_reason() -> None:
    harness = catching_up()
    harness.end(CATCH_UP, 3, "TransactionTooLarge", "the scratch disk is full")
    harness.steps()
    assert (entry(harness).phase, entry(harness).reason) == (TablePhase.FAILED, "TransactionTooLarge")
    assert harness.condition("Stalled") == ("True", "TransactionTooLarge")
    assert harness.kinds() == {"stream"}, "the others flow on, and nothing is begun again"


def test_a_permanent_end_of_a_reading_that_had_not_begun_stops_its_tables_for_good() -> None:
    """The table is positioned all the time; what the stream says of its old content takes nothing
    back."""
    harness = reading_again()
    starts = len(harness.started())
    harness.end(SNAPSHOT, 3, "SpecInvalid", "the API server refused a driver")
    for _ in range(20):
        harness.flow("shop.a", "shop.b")
        harness.step()
    assert (entry(harness).phase, entry(harness).reason) == (TablePhase.FAILED, "SpecInvalid")
    assert entry(harness).message == "the API server refused a driver"
    assert len(harness.started()) == starts
    assert entry(harness, "shop.a").phase is TablePhase.STREAMING


def test_a_table_that_was_read_to_the_end_does_not_fail_with_its_run() -> None:
    harness = ControllerHarness(tables=("shop.a", "shop.b", "shop.c"))
    harness.to_streaming()
    harness.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 1}])
    harness.steps()
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    harness.step()
    assert not entry(harness).failed
    assert entry(harness, "shop.c").reason == "SnapshotOutlivesBinlog"


@pytest.mark.parametrize("kind", [SNAPSHOT, CATCH_UP])
def test_a_transient_end_beside_a_stream_is_tried_again_with_growing_pauses(kind: RunKind) -> None:
    harness = {SNAPSHOT: reading_again, CATCH_UP: catching_up}[kind]()
    starts: list[float] = []
    for _ in range(400):
        harness.flow("shop.a")
        harness.step()
        if kind.value in harness.kinds():
            starts.append(harness.now)
            harness.end(kind, 1, "OutOfMemory", "the driver's pod ran out of memory")
    pauses = [round(b - a) for a, b in itertools.pairwise(starts)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 10 < 100 < pauses[-1]
    assert harness.status.restarts.consecutive == len(starts)
    assert harness.kinds() == {"stream"}


def test_a_run_beside_the_stream_is_forgiven_when_it_lasted_too() -> None:
    harness = reading_again()
    harness.end(SNAPSHOT, 1, "OutOfMemory", "killed")
    for _ in range(50):
        harness.flow("shop.a")
        harness.step()
    assert harness.kinds() == {"stream", "snapshot"}
    assert harness.status.restarts.consecutive == 1, "it has not lasted for a minute yet"
    for _ in range(30):
        harness.flow("shop.a")
        harness.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1}])
        harness.step()
    assert harness.status.restarts.consecutive == 0


def test_a_stream_that_is_handed_over_does_not_wait_for_what_failed_beside_it() -> None:
    harness = ControllerHarness(tables=("shop.a", "shop.b", "shop.c"))
    harness.to_streaming()
    harness.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 1}])
    harness.steps()
    harness.read("shop.b", nonce=1)
    harness.steps()
    harness.end(CATCH_UP)
    harness.step()
    assert harness.live(STREAM).stop_asked
    harness.end(SNAPSHOT, 1, "OutOfMemory", "killed")
    harness.step()
    waits = harness.status.restarts.next_attempt_at
    assert waits
    harness.end(STREAM)
    harness.step()
    assert harness.kinds() == {"stream"}
    assert dict(harness.live(STREAM).tables)["shop.b"] == 1
    assert harness.status.restarts.next_attempt_at == waits, "the pause of the other one stands"


# ---- a run that was asked to drain


def test_how_a_drained_run_of_an_older_spec_ended_fails_no_newer_one() -> None:
    harness = flowing()
    harness.change(restartNonce=1)
    harness.steps()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM, 3, "AuthenticationFailed", "the old password")
    harness.steps()
    assert harness.kinds() == {"stream"}
    assert harness.condition("Stalled")[0] == "False"
    assert harness.status.restarts.consecutive == 0


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
    harness = flowing()
    first = harness.live(STREAM).id
    harness.say(STREAM, tables=[FAILED])
    harness.steps()
    harness.change(**spec)
    harness.steps()
    assert harness.live(STREAM).stop_asked
    assert entry(harness).message == "bad"
    assert harness.condition("Ready") == ("False", "TypeUnsupported")
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).id != first
    assert "shop.b" in harness.live(STREAM).names
    assert not entry(harness).failed
    assert harness.status.observed_generation == harness.resource.metadata.generation


def test_a_failed_table_with_a_nonce_comes_back_by_its_target() -> None:
    harness = catching_up()
    harness.end(CATCH_UP)
    harness.step()
    harness.end(STREAM)
    harness.steps()
    harness.flow("shop.a", "shop.b")
    harness.say(STREAM, tables=[FAILED])
    harness.steps()
    harness.change(resnapshot=AGAIN, autoRestart={"maxRestarts": 5})
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.live(CATCH_UP).tables == (("shop.b", 1),)


def test_a_table_that_failed_in_the_stream_is_read_again_beside_it() -> None:
    harness = flowing()
    harness.say(STREAM, tables=[FAILED])
    harness.steps()
    harness.change(resnapshot=AGAIN)
    harness.steps()
    assert harness.live(STREAM).state is RunState.RUNNING
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)


def test_no_change_leaves_a_failed_table_and_its_stream_alone() -> None:
    harness = flowing()
    harness.say(STREAM, tables=[FAILED])
    harness.steps()
    assert [harness.step().actions for _ in range(5)] == [()] * 5
    assert entry(harness).message == "bad"


# ---- whose word counts


def test_a_stream_is_heard_while_the_snapshot_before_it_takes_its_time_to_end() -> None:
    """What it says then it does not say again: on a silent source the tables would catch up for
    ever."""
    harness = ControllerHarness()
    harness.steps()
    harness.read("shop.a", "shop.b")
    harness.steps()
    assert harness.kinds() == {"snapshot", "stream"}
    harness.flow("shop.a", "shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    assert [t.phase for t in harness.status.table_status] == [TablePhase.STREAMING] * 2
    assert harness.condition("Consistent")[0] == "True"


def test_a_table_that_is_read_again_is_its_readers_to_tell_of() -> None:
    harness = reading_again()
    harness.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "splitsFinished": 3}]
    )
    harness.flow("shop.a", "shop.b", offset=400)
    assert (entry(harness).phase, entry(harness).splits_finished) == (TablePhase.SNAPSHOTTING, 3)
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT)
    harness.steps()
    harness.say(
        CATCH_UP,
        tables=[{"name": "shop.b", "phase": "CatchingUp", "nonce": 1, "generation": 1, "position": place(350)}],
    )
    assert entry(harness).position == StatusPosition.model_validate(place(350))
    harness.end(CATCH_UP)
    harness.step()
    harness.end(STREAM)
    harness.steps()
    harness.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Streaming", "nonce": 1, "generation": 1, "position": place(500)}]
    )
    assert (entry(harness).phase, entry(harness).position) == (
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
    harness = flowing()
    first = harness.live(STREAM).id
    harness.say(STREAM, tables=[FAILED])
    harness.steps()
    harness.change(resnapshot=AGAIN)
    harness.steps()
    harness.say(SNAPSHOT, tables=list(reported))
    harness.steps()
    harness.change(resnapshot=[])
    harness.steps()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.end(SNAPSHOT, 1, "OutOfMemory", "killed")
    harness.steps(10)
    assert dict(harness.live(SNAPSHOT).tables) == {"shop.b": 0}
    harness.read("shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    harness.end(CATCH_UP)
    harness.step()
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).id != first
    assert dict(harness.live(STREAM).tables) == {"shop.a": 0, "shop.b": 0}


def test_a_table_that_flows_gets_no_second_writer_when_its_nonce_is_taken_back() -> None:
    harness = catching_up()
    harness.end(CATCH_UP)
    harness.step()
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).tables == (("shop.a", 0), ("shop.b", 1))
    harness.say(STREAM, tables=[{"name": "shop.b", "phase": "Streaming", "nonce": 1, "generation": 1}])
    harness.change(resnapshot=[])
    harness.steps()
    assert harness.kinds() == {"stream"}
    assert harness.live(STREAM).state is RunState.RUNNING
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    harness.steps()
    assert harness.kinds() == {"stream"}, "nor when the stream is made again"


def test_a_nonce_that_is_taken_back_while_its_table_catches_up_is_handed_over_all_the_same() -> None:
    """The old stream has stopped applying the table when its new content was published."""
    harness = catching_up()
    harness.change(resnapshot=[])
    harness.steps()
    harness.end(CATCH_UP)
    harness.step()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.steps()
    assert dict(harness.live(STREAM).tables)["shop.b"] == 1


# ---- a controller that is new


def test_a_new_controller_looks_again_at_a_source_that_was_unfit() -> None:
    harness = ControllerHarness(errors=(fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),))
    harness.steps()
    assert harness.status.phase is Phase.PENDING
    harness.preflight, harness.errors = None, ()
    assert harness.step().actions == (RunPreflight(1),)
    harness.steps(2)
    assert harness.kinds() == {"snapshot"}
    assert harness.condition("Stalled")[0] == "False"


def test_a_new_controller_leaves_a_run_that_failed_for_good_alone() -> None:
    harness = flowing()
    harness.end(STREAM, 3, "PositionLost", "purged")
    harness.steps()
    harness.preflight = None
    assert [harness.step(400).actions for _ in range(3)] == [()] * 3
    assert harness.status.phase is Phase.FAILED


def test_a_stop_is_asked_once_of_a_run_that_drains() -> None:
    harness = flowing()
    harness.change(state="paused")
    harness.steps()
    assert sum(isinstance(a, StopRun) for a in harness.log) == 1
