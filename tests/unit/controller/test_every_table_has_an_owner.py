"""No table is called consistent that no run captures, and none is left without a run, whatever ends
or is taken back meanwhile (R5)."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.timestamps import utc
from unit.controller.flows import AGAIN, entry, reading_again
from unit.controller.harness import WHOLE, ControllerHarness, place, resource

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
    harness = ControllerHarness(tables=tables or ("shop.a", "shop.b"), resource=resource(**spec))
    harness.to_streaming()
    return harness


def idle(harness: ControllerHarness, passes: int = 50) -> None:
    """The stream's reader goes on, and nothing is reported of any table."""
    for _ in range(passes):
        if "stream" in harness.kinds():
            harness.say(STREAM, position=place(900) | {"timestamp": utc(harness.now)}, lag_seconds=0.1)
        harness.step(10)


def first_words(harness: ControllerHarness) -> None:
    """What a stream says when it begins: its tables with the content that it finds."""
    entries = [
        {"name": name, "phase": "Streaming", "nonce": nonce, "generation": nonce, "position": place(300)}
        for name, nonce in harness.live(STREAM).tables
    ]
    harness.say(STREAM, tables=entries, position=place(300) | {"timestamp": utc(harness.now)}, lag_seconds=0.5)


def widened(*tables: str) -> ControllerHarness:
    """A flowing sync that got more tables, which a snapshot beside the stream reads."""
    harness = flowing("shop.a", "shop.b")
    harness.tables = ("shop.a", "shop.b", *tables)
    harness.change(**WIDER)
    harness.steps()
    assert harness.live(SNAPSHOT).names == set(tables)
    return harness


# ---- content that is newer than the stream's


@pytest.mark.parametrize("more", [{}, {"stream": {"interval": "5s"}}])
def test_a_published_content_is_handed_over_though_the_stream_was_started_later(more: dict[str, Any]) -> None:
    """The nonce was taken back before the snapshot spoke, which publishes all the same."""
    harness = reading_again()
    harness.change(resnapshot=[], **more)
    harness.steps()
    harness.end(STREAM, 1, "OutOfMemory", "killed")
    harness.steps(20)
    first_words(harness)
    harness.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None}]
    )
    harness.step()
    harness.read("shop.b", nonce=1)
    harness.step()
    harness.end(SNAPSHOT)
    idle(harness)
    assert entry(harness).phase is TablePhase.CATCHING_UP
    assert harness.live(CATCH_UP).tables == (("shop.b", 1),)


def test_a_table_waits_visibly_while_its_second_reading_cannot_start_and_the_stream_was_restarted() -> None:
    harness = reading_again()
    harness.end(SNAPSHOT, 1, "DriverUnschedulable", "no node takes the pod")
    harness.step()
    harness.flow("shop.a", "shop.b")
    harness.end(STREAM, 1, "OutOfMemory", "killed")
    harness.steps(40)
    assert harness.live(STREAM).names == {"shop.a"}
    first_words(harness)
    idle(harness)
    assert entry(harness).phase is not TablePhase.STREAMING
    assert harness.condition("Consistent")[0] == "False"


def test_a_table_that_has_caught_up_does_not_flow_while_its_handover_is_held_back() -> None:
    harness = ControllerHarness(tables=("shop.a", "shop.b", "shop.c"))
    harness.to_streaming()
    harness.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 1}])
    harness.steps()
    harness.read("shop.b", nonce=1)
    harness.steps()
    harness.say(
        CATCH_UP, tables=[{"name": "shop.b", "phase": "Streaming", "nonce": 1, "generation": 1, "position": place(400)}]
    )
    harness.end(CATCH_UP)
    harness.errors = (fail(Reason.SOURCE_UNREACHABLE, "away"),)
    harness.change(resnapshot=[*AGAIN, {"table": "shop.c", "nonce": 2}])
    idle(harness)
    assert harness.live(STREAM).names == {"shop.a", "shop.b", "shop.c"}
    assert entry(harness).phase is TablePhase.CATCHING_UP


@pytest.mark.parametrize("reported_by", ["the table", "the run"])
def test_content_that_was_never_published_is_not_taken_for_the_tables(reported_by: str) -> None:
    """All is staged, the binlog does not lead on from it, and the nonce is taken back: the target
    still has its old content."""
    harness = reading_again()
    staged = {
        "name": "shop.b",
        "phase": "Snapshotting",
        "nonce": 1,
        "generation": 1,
        "finished": WHOLE,
        "position": place(400),
    }
    harness.say(SNAPSHOT, tables=[staged])
    if reported_by == "the table":
        harness.say(SNAPSHOT, tables=[staged | {"phase": "Failed", "reason": "PositionLost", "message": "purged"}])
    harness.end(SNAPSHOT, 3, "PositionLost", "purged")
    harness.steps()
    assert entry(harness).reason == "PositionLost"
    harness.change(resnapshot=[])
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    assert harness.live(SNAPSHOT).tables == (("shop.b", 0),)
    assert "shop.b" not in harness.live(STREAM).names


# ---- what a stream says of content that is to be replaced


def test_a_stop_that_did_not_count_is_found_when_the_nonce_is_taken_back() -> None:
    harness = reading_again()
    harness.say(STREAM, tables=[STOPPED])
    harness.steps()
    harness.end(SNAPSHOT, 1, "DriverUnschedulable", "no node")
    harness.step()
    harness.change(resnapshot=[])
    harness.steps()
    assert harness.live(STREAM).stop_asked


def test_a_stop_of_old_content_keeps_no_table_from_being_read_again() -> None:
    harness = reading_again()
    harness.end(SNAPSHOT, 1, "DriverUnschedulable", "no node")
    harness.step()
    harness.say(STREAM, tables=[STOPPED])
    idle(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)


def test_a_stream_that_stops_with_its_old_content_stops_no_reading() -> None:
    harness = flowing("shop.b")
    harness.change(resnapshot=AGAIN)
    harness.steps()
    harness.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None}]
    )
    harness.say(STREAM, tables=[STOPPED])
    harness.end(STREAM, 3, "SchemaChangeRefused", "ALTER")
    harness.steps()
    assert not harness.live(SNAPSHOT).stop_asked
    assert harness.status.phase is not Phase.FAILED


def test_a_stream_is_not_drained_for_a_change_whose_source_cannot_be_reached() -> None:
    harness = reading_again()
    harness.say(
        SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1, "position": None}]
    )
    harness.step()
    harness.change(resnapshot=[])
    harness.errors = (fail(Reason.SOURCE_UNREACHABLE, "away"),)
    harness.steps()
    assert not harness.live(STREAM).stop_asked
    harness.errors = ()
    harness.steps(40)
    assert harness.live(STREAM).stop_asked


# ---- content that is gone


def test_a_table_whose_target_was_removed_is_read_and_comes_back() -> None:
    """The stream found nothing there, and says so."""
    harness = flowing()
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    harness.say(STREAM, tables=[{"name": "shop.b", "phase": "Snapshotting", "reason": "", "message": ""}])
    harness.flow("shop.a")
    harness.steps()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).names == {"shop.a"}
    harness.flow("shop.a")
    harness.read("shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.live(CATCH_UP).names == {"shop.b"}


# ---- a status that is gone


def test_a_run_that_a_lost_status_does_not_name_cannot_outdo_those_that_follow() -> None:
    """It drains, and what it commits meanwhile under its epoch must be no higher than theirs: they
    would be refused for good."""
    harness = flowing()
    before = harness.live(STREAM)
    harness.status = Status()
    harness.steps()
    assert harness.runs[before.id].stop_asked
    assert harness.live(SNAPSHOT).number > before.number


# ---- a source that is fixed


def test_a_change_is_tried_when_the_source_is_cured_however_often_it_had_failed_before() -> None:
    """The user wanted that nothing is tried again, and then asked for it."""
    harness = flowing(autoRestart={"enabled": False})
    harness.end(STREAM, 1, "OutOfMemory", "killed")
    harness.steps()
    assert harness.status.phase is Phase.FAILED
    harness.errors = (fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),)
    harness.change(autoRestart={"enabled": False}, restartNonce=1)
    harness.steps()
    assert harness.condition("Stalled") == ("True", "BinlogFormatNotRow")
    harness.errors = ()
    harness.steps(40)
    assert harness.kinds() == {"stream"}


def test_a_change_tries_a_failed_table_again_when_the_source_is_cured() -> None:
    harness = reading_again()
    harness.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    harness.step()
    harness.end(STREAM, 1, "OutOfMemory", "killed")
    harness.step()
    assert entry(harness).failed
    harness.errors = (fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),)
    harness.change(resnapshot=AGAIN, restartNonce=1)
    harness.steps(20)
    assert harness.condition("Stalled") == ("True", "BinlogFormatNotRow")
    harness.errors = ()
    harness.steps(40)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)


def test_a_reading_is_heard_beside_a_stream_whose_lost_content_had_a_higher_nonce() -> None:
    """Its nonce was taken back since."""
    harness = reading_again()
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT)
    harness.steps()
    harness.end(CATCH_UP)
    harness.step()
    harness.end(STREAM)
    harness.steps()
    first_words(harness)
    harness.change(resnapshot=[], restartNonce=1)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    assert ("shop.b", 1) in harness.live(STREAM).tables
    harness.say(STREAM, tables=[{"name": "shop.b", "phase": "Snapshotting", "reason": "", "message": ""}])
    harness.steps()
    assert harness.live(STREAM).stop_asked
    assert harness.live(SNAPSHOT).tables == (("shop.b", 0),)
    harness.read("shop.b")
    harness.end(SNAPSHOT)
    harness.step()
    assert harness.status.restarts.consecutive == 0
    assert entry(harness).phase is TablePhase.CATCHING_UP


# ---- ends beside each other


def test_a_sync_that_failed_stays_so_while_what_still_runs_drains() -> None:
    harness = widened("shop.c")
    starts = len(harness.started())
    harness.end(STREAM, 3, "PositionLost", "purged")
    harness.steps()
    assert harness.live(SNAPSHOT).stop_asked
    assert harness.status.phase is Phase.FAILED
    harness.end(SNAPSHOT)
    harness.steps(20)
    assert len(harness.started()) == starts
    assert harness.condition("Stalled") == ("True", "PositionLost")


def test_an_added_table_that_cannot_be_read_stops_none_that_waits_for_its_next_attempt() -> None:
    harness = widened("shop.c")
    harness.end(STREAM, 1, "OutOfMemory", "killed")
    harness.step()
    harness.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    harness.steps(60)
    assert entry(harness, "shop.c").reason == "SnapshotOutlivesBinlog"
    assert harness.live(STREAM).names == {"shop.a", "shop.b"}


def test_a_failed_catch_up_is_not_begun_again_by_the_snapshot_beside_it() -> None:
    harness = widened("shop.c", "shop.d")
    harness.read("shop.c")
    harness.flow("shop.a", "shop.b")
    harness.steps()
    harness.say(CATCH_UP, tables=[{"name": "shop.c", "phase": "Failed", "reason": "XaUnsupported", "message": "xa"}])
    harness.end(CATCH_UP, 3, "XaUnsupported", "xa")
    harness.step()
    harness.read("shop.c")
    harness.steps()
    assert entry(harness, "shop.c").reason == "XaUnsupported"
    assert harness.kinds() == {"stream", "snapshot"}


def test_a_snapshot_that_is_lost_when_it_has_read_all_has_failed_nothing() -> None:
    harness = ControllerHarness(resource=resource(autoRestart={"enabled": False}))
    harness.steps()
    harness.read("shop.a", "shop.b")
    harness.steps()
    harness.flow("shop.a", "shop.b")
    harness.end(SNAPSHOT, 1, "DriverLost", "gone with its node")
    harness.steps()
    assert harness.status.restarts.consecutive == 0
    assert harness.live(STREAM).stop_asked is False
    assert harness.condition("Ready")[0] == "True"
