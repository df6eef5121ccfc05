"""What the conditions claim: that a snapshot is read, that a table flows, that a change is rolled
out, only where it is so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import Flow, RunKind, TablePhase
from cdcsync_core.runs.status import Phase
from cdcsync_operator.cluster.events import replaced
from cdcsync_operator.decision.decide import decide
from cdcsync_operator.decision.observed import Observed
from unit.controller.harness import WHOLE, ControllerHarness, place, resource

SOURCE = {"host": "127.0.0.1", "credentialsSecretRef": {"name": "login"}}
SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP


# ---- SnapshotComplete


def test_a_snapshot_that_failed_before_any_table_was_read_is_not_complete() -> None:
    """As of a second sync on the same path."""
    harness = ControllerHarness()
    harness.steps()
    refused = [
        {"name": n, "phase": "Failed", "reason": "SinkConflict", "message": f"{n}: taken"} for n in harness.tables
    ]
    harness.say(SNAPSHOT, tables=refused)
    harness.end(SNAPSHOT, 3, "SinkConflict", "taken")
    harness.steps()
    assert harness.status.phase is Phase.FAILED
    assert harness.condition("SnapshotComplete") == ("False", "TablesFailed")
    assert "shop.a, shop.b" in harness.status.condition("SnapshotComplete").message


def test_a_table_that_failed_before_it_was_read_is_not_read() -> None:
    harness = ControllerHarness(table_errors={"shop.b": fail(Reason.NO_PRIMARY_KEY, "no key", table="shop.b")})
    harness.steps()
    harness.read("shop.a")
    harness.end(SNAPSHOT)
    harness.steps()
    harness.flow("shop.a")
    harness.steps()
    assert harness.condition("SnapshotComplete") == ("False", "TablesFailed")


def test_a_table_that_stopped_after_it_was_read_is_read() -> None:
    harness = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    harness.to_streaming()
    harness.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "DDL"}]
    )
    harness.steps()
    assert harness.condition("SnapshotComplete") == ("True", "Complete")


def test_content_that_was_staged_and_not_published_is_not_read() -> None:
    """All of it is staged, and the binlog does not lead on from it any more."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    staged = {
        "name": "shop.b",
        "nonce": 1,
        "generation": 1,
        "finished": WHOLE,
        "low": place(100),
        "position": place(100),
    }
    harness.say(SNAPSHOT, tables=[staged | {"phase": "Snapshotting"}])
    harness.say(
        SNAPSHOT, tables=[staged | {"phase": "Failed", "reason": "PositionLost", "message": "purged", "position": None}]
    )
    harness.steps()
    assert harness.condition("SnapshotComplete") == ("False", "TablesFailed")


# ---- what flows


def test_after_a_reset_no_table_is_called_streaming() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.end(STREAM, 3, "PositionLost", "the binlog was reset; remedy: resnapshot")
    harness.steps()
    assert harness.kinds() == set()
    assert harness.status.phase is Phase.FAILED
    assert {t.phase for t in harness.status.table_status} == {TablePhase.CATCHING_UP}
    assert harness.status.tables.streaming == 0
    assert harness.condition("Consistent")[0] == "False"


def test_a_failed_sync_goes_on_with_its_tables_when_it_is_asked_to() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.end(STREAM, 3, "PositionLost", "the binlog was reset; remedy: resnapshot")
    harness.steps()
    harness.change(restartNonce=1)
    harness.steps()
    assert harness.live(STREAM).names == {"shop.a", "shop.b"}


# ---- Ready follows the data


def reporting(harness: ControllerHarness, **flow: Any) -> tuple[str, str]:
    """The stream's driver reports how data flows, and its tables and position as ever; Ready
    then."""
    run = harness.live(STREAM)
    harness.flow("shop.a", "shop.b")
    harness.runs[run.id] = replace(harness.runs[run.id], flow=Flow(**flow))
    harness.step()
    return harness.condition("Ready")


def test_a_run_is_not_ready_before_it_received_anything() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    assert reporting(harness) == ("False", "Starting")
    assert reporting(harness, seconds_since_event=59.0) == ("False", "Starting")
    assert reporting(harness, seconds_since_event=61.0) == ("False", "SourceSilent")
    assert reporting(harness, connected=True, seconds_since_event=0.0) == ("True", "Streaming")


def test_ready_falls_when_two_heartbeats_are_missing() -> None:
    harness = ControllerHarness(resource=resource(source=SOURCE | {"heartbeatInterval": "30s"}))
    harness.to_streaming()
    assert reporting(harness, connected=True, seconds_since_event=60.0) == ("True", "Streaming")
    assert reporting(harness, connected=True, seconds_since_event=60.1) == ("False", "SourceSilent")
    assert harness.condition("Reconciling") == ("True", "SourceSilent")
    assert "a heartbeat is due every 30 s" in harness.status.condition("Ready").message


def test_ready_falls_when_received_changes_wait_for_their_commit() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    assert reporting(harness, connected=True, seconds_since_event=0.0, waiting=61.0) == ("True", "Streaming")
    assert reporting(harness, connected=True, seconds_since_event=90.0, waiting=61.1) == ("False", "SinkSlow")


def test_a_driver_that_is_lost_ages_although_its_last_report_was_good() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    assert reporting(harness, connected=True, seconds_since_event=0.0) == ("True", "Streaming")
    harness.step(60)
    assert harness.condition("Ready") == ("False", "Silent")
    assert harness.status.lag_seconds is not None
    assert harness.status.lag_seconds >= 60


def test_consistency_is_claimed_as_of_a_time() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    reporting(harness, connected=True, seconds_since_event=0.0)
    known = harness.status.to_dict()["position"]["timestamp"]
    harness.step(500)
    assert harness.status.condition("Consistent").message == f"2 of 2 tables equal the source as of {known}"
    assert f"2 of 2 tables consistent as of {known}" in harness.status.condition("Ready").message


def beginning(harness: ControllerHarness, offset: int) -> None:
    """A stream that has just begun reports its tables, and no time yet."""
    entries = [{"name": n, "phase": "Streaming", "position": place(offset)} for n in harness.tables]
    harness.say(STREAM, tables=entries, position=place(offset), lag_seconds=None)
    harness.step()


def test_no_time_is_claimed_that_a_table_has_not_reached() -> None:
    """It stopped at 300; the stream went on to 900 with the other one, and begins again at 300 with
    both."""
    harness = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    harness.to_streaming()
    harness.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "DDL"}]
    )
    harness.step(100)
    harness.flow("shop.a", offset=900)
    harness.step()
    harness.change(schemaChange={"behavior": "evolve"})
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    beginning(harness, 300)
    assert harness.condition("Consistent") == ("True", "Consistent")
    assert harness.status.condition("Consistent").message == "2 of 2 tables equal the source as of their positions"
    assert " as of " not in harness.status.condition("Ready").message
    harness.flow("shop.a", "shop.b", offset=400)
    harness.step()
    known = harness.status.to_dict()["position"]["timestamp"]
    assert harness.status.condition("Consistent").message == f"2 of 2 tables equal the source as of {known}"


def test_a_stream_that_begins_again_keeps_the_time_that_all_its_tables_have_reached() -> None:
    """Quiet tables' commits are older than what the reader has passed for them."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.flow("shop.a", "shop.b", offset=900)
    harness.step()
    known = harness.status.to_dict()["position"]["timestamp"]
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    beginning(harness, 300)
    assert harness.status.condition("Consistent").message == f"2 of 2 tables equal the source as of {known}"


# ---- what does not get on beside a stream that flows


def resnapshot_that_fails(harness: ControllerHarness) -> None:
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    harness.end(SNAPSHOT, 4, "SourceUnreachable", "shop.b: no connection")
    harness.flow("shop.a")
    harness.step()


def test_a_snapshot_that_fails_in_a_row_is_told_beside_a_stream_that_flows() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    resnapshot_that_fails(harness)
    harness.step()
    for attempt in (1, 2):
        assert harness.condition("Ready") == ("True", "Streaming")
        for kind in ("Reconciling", "SnapshotComplete"):
            found = harness.status.condition(kind)
            assert found.reason == "SourceUnreachable"
            assert f"shop.b: no connection; failure {attempt} in a row, next attempt at " in found.message
        assert harness.status.restarts.message == "shop.b: no connection"
        harness.step(30)
        harness.step()
        if attempt == 1:
            assert harness.condition("SnapshotComplete") == ("False", "SourceUnreachable"), "while it is tried again"
            harness.end(SNAPSHOT, 4, "SourceUnreachable", "shop.b: no connection")
            harness.flow("shop.a")
            harness.step()
    harness.read("shop.b", nonce=1)
    harness.step()
    assert harness.condition("SnapshotComplete") == ("True", "Complete")


def test_tables_that_wait_to_be_read_again_are_counted() -> None:
    harness = ControllerHarness(resource=resource(schemaChange={"behavior": "evolve"}))
    harness.to_streaming()
    harness.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "DDL"}]
    )
    harness.step()
    counts = harness.status.tables
    assert (counts.total, counts.pending, counts.streaming, counts.failed) == (2, 1, 1, 0)


def test_a_table_that_failed_for_good_is_why_the_sync_is_not_consistent() -> None:
    harness = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    harness.to_streaming()
    harness.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "TypeUnsupported", "message": "m"}])
    harness.step()
    assert harness.condition("Consistent") == ("False", "TypeUnsupported")
    assert harness.status.condition("Consistent").message == "1 of 2 tables have stopped: shop.b (TypeUnsupported)"


# ---- a change is rolled out


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"restartNonce": 1}, "spec.restartNonce"),
        ({"stream": {"interval": "5s"}}, "spec.stream.interval"),
        ({"sparkConf": {"spark.a": "b"}, "image": "other:1"}, "spec.image, spec.sparkConf"),
    ],
)
def test_a_change_is_rolled_out_when_the_old_run_has_ended_and_the_new_one_flows(
    spec: dict[str, Any], field: str
) -> None:
    """`kubectl wait`, Helm and Flux return when the generation is observed, Ready is True and
    Reconciling False."""
    harness = ControllerHarness()
    harness.to_streaming()
    old = harness.live(STREAM).id
    harness.change(**spec)
    for _ in range(5):
        harness.flow("shop.a", "shop.b")
        harness.step()
        assert harness.condition("Ready") == ("False", "RollingOut")
        assert harness.condition("Reconciling") == ("True", "RollingOut")
    assert harness.status.observed_generation == 2, "it was decided about"
    assert harness.status.condition("Ready").message == f"{field} changed: stream run {old} drains and is replaced"
    harness.end(STREAM)
    harness.steps(2)
    assert harness.condition("Ready") == ("False", "Starting")
    harness.flow("shop.a", "shop.b")
    harness.step()
    assert harness.condition("Ready") == ("True", "Streaming")
    assert harness.condition("Reconciling")[0] == "False"


def test_who_reads_the_events_learns_which_field_replaced_a_run() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(stream={"interval": "5s"}, tables={"include": [r"shop\.a"]})
    decision = harness.step()
    run = harness.live(STREAM).id
    assert list(replaced(decision)) == [("Normal", "RunReplaced", f"stream run {run}: spec.stream.interval changed")]
    assert list(replaced(harness.step())) == []


def test_a_table_that_left_is_told_as_the_reason() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.tables = ("shop.a",)
    harness.change(tables={"include": [r"shop\.a"]})
    stops = [e for _ in range(3) for e in replaced(harness.step())]
    assert [message.partition(": ")[2] for _, _, message in stops] == ["shop.b left the sync"]


def test_what_a_change_does_not_concern_stays_ready() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(snapshot={"chunkSize": 10})
    for _ in range(3):
        harness.flow("shop.a", "shop.b")
        harness.step()
        assert harness.condition("Ready") == ("True", "Streaming")


# ---- what is retried has not failed


def test_what_a_preflight_finds_is_retried_and_not_called_failed() -> None:
    """It goes on by itself once it is fixed; a new controller does not forget what stalls it before
    it has checked."""
    harness = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),))
    for _ in range(100):
        harness.step()
        assert harness.status.phase is Phase.PENDING
    stalled = harness.status.condition("Stalled")
    seen = Observed(harness.status, (), None, token="ab12")
    again = decide(harness.resource, seen, harness.now).status
    assert again.condition("Stalled") == stalled
    assert again.phase is Phase.PENDING
    harness.errors = ()
    harness.step(40)
    harness.steps(3)
    assert harness.kinds() == {"snapshot"}


def test_a_sync_that_flowed_and_whose_source_is_unfit_has_not_failed_either() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.errors = (fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),)
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    assert (harness.status.phase, harness.condition("Stalled")) == (Phase.PENDING, ("True", "BinlogFormatNotRow"))
    harness.errors = ()
    harness.step(40)
    harness.steps(3)
    assert harness.live(STREAM).names == {"shop.a", "shop.b"}


# ---- what another program did to a target


def test_a_table_whose_rows_another_program_changed_is_not_consistent() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    assert harness.condition("Consistent") == ("True", "Consistent")
    write = {"version": 12, "program": "Apache-Spark/4\n", "operation": "DELETE", "at": "2026-11-25T10:00:00.000+00:00"}
    harness.say(STREAM, tables=[{"name": "shop.b", "written": write}])
    harness.steps()
    assert harness.condition("Consistent") == ("False", "SinkWritten")
    message = harness.status.condition("Consistent").message
    assert message.startswith('shop.b: the program "Apache-Spark/4\\n" changed rows of the target by its version 12 at')
    assert '(operation "DELETE")' in message
    assert "shop.a" not in message
    assert harness.condition("Ready") == ("True", "Streaming")
    assert harness.status.condition("Ready").message.startswith("1 of 2 tables consistent")
    harness.say(STREAM, tables=[{"name": "shop.b", "written": None}])
    harness.steps()
    assert harness.condition("Consistent") == ("True", "Consistent")
