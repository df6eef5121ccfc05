"""No table is called consistent that no run captures, and none is left without a run, whatever ends
or is taken back meanwhile (R5)."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.timestamps import utc
from unit.controller.harness import WHOLE, ControllerHarness, place, resource
from unit.controller.test_concurrent_runs import AGAIN, reading_again, table

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
STOPPED = {
    "name": "shop.b",
    "phase": "Failed",
    "reason": "SchemaChangeRefused",
    "message": "ALTER",
    "nonce": 0,
    "generation": 0,
}
WIDER: dict[str, Any] = {"tables": {"include": [r"shop\..*"], "exclude": ["none"]}}


def flowing(*tables: str, **spec: Any) -> ControllerHarness:
    world = ControllerHarness(tables=tables or ("shop.a", "shop.b"), resource=resource(**spec))
    world.to_streaming()
    return world


def idle(world: ControllerHarness, passes: int = 50) -> None:
    """The stream's reader goes on, and nothing is reported of any table."""
    for _ in range(passes):
        if "stream" in world.kinds():
            world.say(STREAM, position=place(900) | {"timestamp": utc(world.now)}, lag_seconds=0.1)
        world.step(10)


def first_words(world: ControllerHarness) -> None:
    """What a stream says when it begins: its tables with the content that it finds."""
    entries = [
        {"name": name, "phase": "Streaming", "nonce": nonce, "generation": nonce, "position": place(300)}
        for name, nonce in world.live(STREAM).tables
    ]
    world.say(STREAM, tables=entries, position=place(300) | {"timestamp": utc(world.now)}, lag_seconds=0.5)


def widened(*tables: str) -> ControllerHarness:
    """A flowing sync that got more tables, which a snapshot beside the stream reads."""
    world = flowing("shop.a", "shop.b")
    world.tables = ("shop.a", "shop.b", *tables)
    world.change(**WIDER)
    world.steps()
    assert world.live(SNAPSHOT).names == set(tables)
    return world


# ---- content that is newer than the stream's


@pytest.mark.parametrize("more", [{}, {"stream": {"interval": "5s"}}])
def test_a_published_content_is_handed_over_though_the_stream_was_started_later(more: dict[str, Any]) -> None:
    """The nonce was taken back before the snapshot spoke, which publishes all the same."""
    world = reading_again()
    world.change(resnapshot=[], **more)
    world.steps()
    world.end(STREAM, 1, "OutOfMemory", "killed")
    world.steps(20)
    first_words(world)
    world.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None}]
    )
    world.step()
    world.read("shop.b", nonce=1)
    world.step()
    world.end(SNAPSHOT)
    idle(world)
    assert table(world).phase is TablePhase.CATCHING_UP
    assert world.live(CATCH_UP).tables == (("shop.b", 1),)


def test_a_table_waits_visibly_while_its_second_reading_cannot_start_and_the_stream_was_restarted() -> None:
    world = reading_again()
    world.end(SNAPSHOT, 1, "DriverUnschedulable", "no node takes the pod")
    world.step()
    world.flow("shop.a", "shop.b")
    world.end(STREAM, 1, "OutOfMemory", "killed")
    world.steps(40)
    assert world.live(STREAM).names == {"shop.a"}
    first_words(world)
    idle(world)
    assert table(world).phase is not TablePhase.STREAMING
    assert world.condition("Consistent")[0] == "False"


def test_a_table_that_has_caught_up_does_not_flow_while_its_handover_is_held_back() -> None:
    world = ControllerHarness(tables=("shop.a", "shop.b", "shop.c"))
    world.to_streaming()
    world.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 1}])
    world.steps()
    world.read("shop.b", nonce=1)
    world.steps()
    world.say(
        CATCH_UP, tables=[{"name": "shop.b", "phase": "Streaming", "nonce": 1, "generation": 1, "position": place(400)}]
    )
    world.end(CATCH_UP)
    world.errors = (fail(Reason.SOURCE_UNREACHABLE, "away"),)
    world.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 2}])
    idle(world)
    assert world.live(STREAM).names == {"shop.a", "shop.b", "shop.c"}
    assert table(world).phase is TablePhase.CATCHING_UP


@pytest.mark.parametrize("reported_by", ["the table", "the run"])
def test_content_that_was_never_published_is_not_taken_for_the_tables(reported_by: str) -> None:
    """All is staged, the binlog does not lead on from it, and the nonce is taken back: the target
    still has its old content."""
    world = reading_again()
    staged = {
        "name": "shop.b",
        "phase": "Snapshotting",
        "nonce": 1,
        "generation": 1,
        "finished": WHOLE,
        "position": place(400),
    }
    world.say(SNAPSHOT, tables=[staged])
    if reported_by == "the table":
        world.say(SNAPSHOT, tables=[staged | {"phase": "Failed", "reason": "PositionLost", "message": "purged"}])
    world.end(SNAPSHOT, 3, "PositionLost", "purged")
    world.steps()
    assert table(world).reason == "PositionLost"
    world.change(resnapshot=[])
    world.steps()
    world.end(STREAM)
    world.steps()
    assert world.live(SNAPSHOT).tables == (("shop.b", 0),)
    assert "shop.b" not in world.live(STREAM).names


# ---- what a stream says of content that is to be replaced


def test_a_stop_that_did_not_count_is_found_when_the_nonce_is_taken_back() -> None:
    world = reading_again()
    world.say(STREAM, tables=[STOPPED])
    world.steps()
    world.end(SNAPSHOT, 1, "DriverUnschedulable", "no node")
    world.step()
    world.change(resnapshot=[])
    world.steps()
    assert world.live(STREAM).stop_asked


def test_a_stop_of_old_content_keeps_no_table_from_being_read_again() -> None:
    world = reading_again()
    world.end(SNAPSHOT, 1, "DriverUnschedulable", "no node")
    world.step()
    world.say(STREAM, tables=[STOPPED])
    idle(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)


def test_a_stream_that_stops_with_its_old_content_stops_no_reading() -> None:
    world = flowing("shop.b")
    world.change(resnapshot=AGAIN)
    world.steps()
    world.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None}]
    )
    world.say(STREAM, tables=[STOPPED])
    world.end(STREAM, 3, "SchemaChangeRefused", "ALTER")
    world.steps()
    assert not world.live(SNAPSHOT).stop_asked
    assert world.status.phase is not Phase.FAILED


def test_a_stream_is_not_drained_for_a_change_whose_source_cannot_be_reached() -> None:
    world = reading_again()
    world.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None}]
    )
    world.step()
    world.change(resnapshot=[])
    world.errors = (fail(Reason.SOURCE_UNREACHABLE, "away"),)
    world.steps()
    assert not world.live(STREAM).stop_asked
    world.errors = ()
    world.steps(40)
    assert world.live(STREAM).stop_asked


# ---- content that is gone


def test_a_table_whose_target_was_removed_is_read_and_comes_back() -> None:
    """The stream found nothing there, and says so."""
    world = flowing()
    world.change(restartNonce=1)
    world.steps()
    world.end(STREAM)
    world.steps()
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Snapshotting", "reason": "", "message": ""}])
    world.flow("shop.a")
    world.steps()
    assert world.live(STREAM).stop_asked
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).names == {"shop.a"}
    world.flow("shop.a")
    world.read("shop.b")
    world.end(SNAPSHOT)
    world.steps()
    assert world.live(CATCH_UP).names == {"shop.b"}


# ---- a status that is gone


def test_a_run_that_a_lost_status_does_not_name_cannot_outdo_those_that_follow() -> None:
    """It drains, and what it commits meanwhile under its epoch must be no higher than theirs: they
    would be refused for good."""
    world = flowing()
    before = world.live(STREAM)
    world.status = Status()
    world.steps()
    assert world.runs[before.id].stop_asked
    assert world.live(SNAPSHOT).number > before.number


# ---- a source that is fixed


def test_a_change_is_tried_when_the_source_is_cured_however_often_it_had_failed_before() -> None:
    """The user wanted that nothing is tried again, and then asked for it."""
    world = flowing(autoRestart={"enabled": False})
    world.end(STREAM, 1, "OutOfMemory", "killed")
    world.steps()
    assert world.status.phase is Phase.FAILED
    world.errors = (fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),)
    world.change(autoRestart={"enabled": False}, restartNonce=1)
    world.steps()
    assert world.condition("Stalled") == ("True", "BinlogFormatNotRow")
    world.errors = ()
    world.steps(40)
    assert world.kinds() == {"stream"}


def test_a_change_tries_a_failed_table_again_when_the_source_is_cured() -> None:
    world = reading_again()
    world.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    world.step()
    world.end(STREAM, 1, "OutOfMemory", "killed")
    world.step()
    assert table(world).failed
    world.errors = (fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),)
    world.change(resnapshot=AGAIN, restartNonce=1)
    world.steps(20)
    assert world.condition("Stalled") == ("True", "BinlogFormatNotRow")
    world.errors = ()
    world.steps(40)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)


def test_a_reading_is_heard_beside_a_stream_whose_lost_content_had_a_higher_nonce() -> None:
    """Its nonce was taken back since."""
    world = reading_again()
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT)
    world.steps()
    world.end(CATCH_UP)
    world.step()
    world.end(STREAM)
    world.steps()
    first_words(world)
    world.change(resnapshot=[], restartNonce=1)
    world.steps()
    world.end(STREAM)
    world.steps()
    assert ("shop.b", 1) in world.live(STREAM).tables
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Snapshotting", "reason": "", "message": ""}])
    world.steps()
    assert world.live(STREAM).stop_asked
    assert world.live(SNAPSHOT).tables == (("shop.b", 0),)
    world.read("shop.b")
    world.end(SNAPSHOT)
    world.step()
    assert world.status.restarts.consecutive == 0
    assert table(world).phase is TablePhase.CATCHING_UP


# ---- ends beside each other


def test_a_sync_that_failed_stays_so_while_what_still_runs_drains() -> None:
    world = widened("shop.c")
    starts = len(world.started())
    world.end(STREAM, 3, "PositionLost", "purged")
    world.steps()
    assert world.live(SNAPSHOT).stop_asked
    assert world.status.phase is Phase.FAILED
    world.end(SNAPSHOT)
    world.steps(20)
    assert len(world.started()) == starts
    assert world.condition("Stalled") == ("True", "PositionLost")


def test_an_added_table_that_cannot_be_read_stops_none_that_waits_for_its_next_attempt() -> None:
    world = widened("shop.c")
    world.end(STREAM, 1, "OutOfMemory", "killed")
    world.step()
    world.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    world.steps(60)
    assert table(world, "shop.c").reason == "SnapshotOutlivesBinlog"
    assert world.live(STREAM).names == {"shop.a", "shop.b"}


def test_a_failed_catch_up_is_not_begun_again_by_the_snapshot_beside_it() -> None:
    world = widened("shop.c", "shop.d")
    world.read("shop.c")
    world.flow("shop.a", "shop.b")
    world.steps()
    world.say(CATCH_UP, tables=[{"name": "shop.c", "phase": "Failed", "reason": "XaUnsupported", "message": "xa"}])
    world.end(CATCH_UP, 3, "XaUnsupported", "xa")
    world.step()
    world.read("shop.c")
    world.steps()
    assert table(world, "shop.c").reason == "XaUnsupported"
    assert world.kinds() == {"stream", "snapshot"}


def test_a_snapshot_that_is_lost_when_it_has_read_all_has_failed_nothing() -> None:
    world = ControllerHarness(resource=resource(autoRestart={"enabled": False}))
    world.steps()
    world.read("shop.a", "shop.b")
    world.steps()
    world.flow("shop.a", "shop.b")
    world.end(SNAPSHOT, 1, "DriverLost", "gone with its node")
    world.steps()
    assert world.status.restarts.consecutive == 0
    assert world.live(STREAM).stop_asked is False
    assert world.condition("Ready")[0] == "True"
