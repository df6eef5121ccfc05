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
    world = ControllerHarness()
    world.steps()
    refused = [{"name": n, "phase": "Failed", "reason": "SinkConflict", "message": f"{n}: taken"} for n in world.tables]
    world.say(SNAPSHOT, tables=refused)
    world.end(SNAPSHOT, 3, "SinkConflict", "taken")
    world.steps()
    assert world.status.phase is Phase.FAILED
    assert world.condition("SnapshotComplete") == ("False", "TablesFailed")
    assert "shop.a, shop.b" in world.status.condition("SnapshotComplete").message


def test_a_table_that_failed_before_it_was_read_is_not_read() -> None:
    world = ControllerHarness(table_errors={"shop.b": fail(Reason.NO_PRIMARY_KEY, "no key", table="shop.b")})
    world.steps()
    world.read("shop.a")
    world.end(SNAPSHOT)
    world.steps()
    world.flow("shop.a")
    world.steps()
    assert world.condition("SnapshotComplete") == ("False", "TablesFailed")


def test_a_table_that_stopped_after_it_was_read_is_read() -> None:
    world = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    world.to_streaming()
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "DDL"}])
    world.steps()
    assert world.condition("SnapshotComplete") == ("True", "Complete")


def test_content_that_was_staged_and_not_published_is_not_read() -> None:
    """All of it is staged, and the binlog does not lead on from it any more."""
    world = ControllerHarness()
    world.to_streaming()
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    staged = {
        "name": "shop.b",
        "nonce": 1,
        "generation": 1,
        "finished": WHOLE,
        "low": place(100),
        "position": place(100),
    }
    world.say(SNAPSHOT, tables=[staged | {"phase": "Snapshotting"}])
    world.say(
        SNAPSHOT, tables=[staged | {"phase": "Failed", "reason": "PositionLost", "message": "purged", "position": None}]
    )
    world.steps()
    assert world.condition("SnapshotComplete") == ("False", "TablesFailed")


# ---- what flows


def test_after_a_reset_no_table_is_called_streaming() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.end(STREAM, 3, "PositionLost", "the binlog was reset; remedy: resnapshot")
    world.steps()
    assert world.kinds() == set()
    assert world.status.phase is Phase.FAILED
    assert {t.phase for t in world.status.table_status} == {TablePhase.CATCHING_UP}
    assert world.status.tables.streaming == 0
    assert world.condition("Consistent")[0] == "False"


def test_a_failed_sync_goes_on_with_its_tables_when_it_is_asked_to() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.end(STREAM, 3, "PositionLost", "the binlog was reset; remedy: resnapshot")
    world.steps()
    world.change(restartNonce=1)
    world.steps()
    assert world.live(STREAM).names == {"shop.a", "shop.b"}


# ---- Ready follows the data


def reporting(world: ControllerHarness, **flow: Any) -> tuple[str, str]:
    """The stream's driver reports how data flows, and its tables and position as ever; Ready
    then."""
    run = world.live(STREAM)
    world.flow("shop.a", "shop.b")
    world.runs[run.id] = replace(world.runs[run.id], flow=Flow(**flow))
    world.step()
    return world.condition("Ready")


def test_a_run_is_not_ready_before_it_received_anything() -> None:
    world = ControllerHarness()
    world.to_streaming()
    assert reporting(world) == ("False", "Starting")
    assert reporting(world, silence=59.0) == ("False", "Starting")
    assert reporting(world, silence=61.0) == ("False", "SourceSilent")
    assert reporting(world, heard=True, silence=0.0) == ("True", "Streaming")


def test_ready_falls_when_two_heartbeats_are_missing() -> None:
    world = ControllerHarness(resource=resource(source=SOURCE | {"heartbeatInterval": "30s"}))
    world.to_streaming()
    assert reporting(world, heard=True, silence=60.0) == ("True", "Streaming")
    assert reporting(world, heard=True, silence=60.1) == ("False", "SourceSilent")
    assert world.condition("Reconciling") == ("True", "SourceSilent")
    assert "a heartbeat is due every 30 s" in world.status.condition("Ready").message


def test_ready_falls_when_received_changes_wait_for_their_commit() -> None:
    world = ControllerHarness()
    world.to_streaming()
    assert reporting(world, heard=True, silence=0.0, waiting=61.0) == ("True", "Streaming")
    assert reporting(world, heard=True, silence=90.0, waiting=61.1) == ("False", "SinkSlow")


def test_a_driver_that_is_lost_ages_although_its_last_report_was_good() -> None:
    world = ControllerHarness()
    world.to_streaming()
    assert reporting(world, heard=True, silence=0.0) == ("True", "Streaming")
    world.step(60)
    assert world.condition("Ready") == ("False", "Silent")
    assert world.status.lag_seconds is not None
    assert world.status.lag_seconds >= 60


def test_consistency_is_claimed_as_of_a_time() -> None:
    world = ControllerHarness()
    world.to_streaming()
    reporting(world, heard=True, silence=0.0)
    known = world.status.to_dict()["position"]["timestamp"]
    world.step(500)
    assert world.status.condition("Consistent").message == f"2 of 2 tables equal the source as of {known}"
    assert f"2 of 2 tables consistent as of {known}" in world.status.condition("Ready").message


def beginning(world: ControllerHarness, offset: int) -> None:
    """A stream that has just begun reports its tables, and no time yet."""
    entries = [{"name": n, "phase": "Streaming", "position": place(offset)} for n in world.tables]
    world.say(STREAM, tables=entries, position=place(offset), lag_seconds=None)
    world.step()


def test_no_time_is_claimed_that_a_table_has_not_reached() -> None:
    """It stopped at 300; the stream went on to 900 with the other one, and begins again at 300 with
    both."""
    world = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    world.to_streaming()
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "DDL"}])
    world.step(100)
    world.flow("shop.a", offset=900)
    world.step()
    world.change(schemaChange={"behavior": "evolve"})
    world.steps()
    world.end(STREAM)
    world.steps()
    beginning(world, 300)
    assert world.condition("Consistent") == ("True", "Consistent")
    assert world.status.condition("Consistent").message == "2 of 2 tables equal the source as of their positions"
    assert " as of " not in world.status.condition("Ready").message
    world.flow("shop.a", "shop.b", offset=400)
    world.step()
    known = world.status.to_dict()["position"]["timestamp"]
    assert world.status.condition("Consistent").message == f"2 of 2 tables equal the source as of {known}"


def test_a_stream_that_begins_again_keeps_the_time_that_all_its_tables_have_reached() -> None:
    """Quiet tables' commits are older than what the reader has passed for them."""
    world = ControllerHarness()
    world.to_streaming()
    world.flow("shop.a", "shop.b", offset=900)
    world.step()
    known = world.status.to_dict()["position"]["timestamp"]
    world.change(restartNonce=1)
    world.steps()
    world.end(STREAM)
    world.steps()
    beginning(world, 300)
    assert world.status.condition("Consistent").message == f"2 of 2 tables equal the source as of {known}"


# ---- what does not get on beside a stream that flows


def resnapshot_that_fails(world: ControllerHarness) -> None:
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    world.end(SNAPSHOT, 4, "SourceUnreachable", "shop.b: no connection")
    world.flow("shop.a")
    world.step()


def test_a_snapshot_that_fails_in_a_row_is_told_beside_a_stream_that_flows() -> None:
    world = ControllerHarness()
    world.to_streaming()
    resnapshot_that_fails(world)
    world.step()
    for attempt in (1, 2):
        assert world.condition("Ready") == ("True", "Streaming")
        for kind in ("Reconciling", "SnapshotComplete"):
            found = world.status.condition(kind)
            assert found.reason == "SourceUnreachable"
            assert f"shop.b: no connection; failure {attempt} in a row, next attempt at " in found.message
        assert world.status.restarts.message == "shop.b: no connection"
        world.step(30)
        world.step()
        if attempt == 1:
            assert world.condition("SnapshotComplete") == ("False", "SourceUnreachable"), "while it is tried again"
            world.end(SNAPSHOT, 4, "SourceUnreachable", "shop.b: no connection")
            world.flow("shop.a")
            world.step()
    world.read("shop.b", nonce=1)
    world.step()
    assert world.condition("SnapshotComplete") == ("True", "Complete")


def test_tables_that_wait_to_be_read_again_are_counted() -> None:
    world = ControllerHarness(resource=resource(schemaChange={"behavior": "evolve"}))
    world.to_streaming()
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "DDL"}])
    world.step()
    counts = world.status.tables
    assert (counts.total, counts.pending, counts.streaming, counts.failed) == (2, 1, 1, 0)


def test_a_table_that_failed_for_good_is_why_the_sync_is_not_consistent() -> None:
    world = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    world.to_streaming()
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "TypeUnsupported", "message": "m"}])
    world.step()
    assert world.condition("Consistent") == ("False", "TypeUnsupported")
    assert world.status.condition("Consistent").message == "1 of 2 tables have stopped: shop.b (TypeUnsupported)"


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
    world = ControllerHarness()
    world.to_streaming()
    old = world.live(STREAM).id
    world.change(**spec)
    for _ in range(5):
        world.flow("shop.a", "shop.b")
        world.step()
        assert world.condition("Ready") == ("False", "RollingOut")
        assert world.condition("Reconciling") == ("True", "RollingOut")
    assert world.status.observed_generation == 2, "it was decided about"
    assert world.status.condition("Ready").message == f"{field} changed: stream run {old} drains and is replaced"
    world.end(STREAM)
    world.steps(2)
    assert world.condition("Ready") == ("False", "Starting")
    world.flow("shop.a", "shop.b")
    world.step()
    assert world.condition("Ready") == ("True", "Streaming")
    assert world.condition("Reconciling")[0] == "False"


def test_who_reads_the_events_learns_which_field_replaced_a_run() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(stream={"interval": "5s"}, tables={"include": [r"shop\.a"]})
    decision = world.step()
    run = world.live(STREAM).id
    assert list(replaced(decision)) == [("Normal", "RunReplaced", f"stream run {run}: spec.stream.interval changed")]
    assert list(replaced(world.step())) == []


def test_a_table_that_left_is_told_as_the_reason() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.tables = ("shop.a",)
    world.change(tables={"include": [r"shop\.a"]})
    stops = [e for _ in range(3) for e in replaced(world.step())]
    assert [message.partition(": ")[2] for _, _, message in stops] == ["shop.b left the sync"]


def test_what_a_change_does_not_concern_stays_ready() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(snapshot={"chunkSize": 10})
    for _ in range(3):
        world.flow("shop.a", "shop.b")
        world.step()
        assert world.condition("Ready") == ("True", "Streaming")


# ---- what is retried has not failed


def test_what_a_preflight_finds_is_retried_and_not_called_failed() -> None:
    """It goes on by itself once it is fixed; a new controller does not forget what stalls it before
    it has checked."""
    world = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),))
    for _ in range(100):
        world.step()
        assert world.status.phase is Phase.PENDING
    stalled = world.status.condition("Stalled")
    seen = Observed(world.status, (), None, token="ab12")
    again = decide(world.resource, seen, world.now).status
    assert again.condition("Stalled") == stalled
    assert again.phase is Phase.PENDING
    world.errors = ()
    world.step(40)
    world.steps(3)
    assert world.kinds() == {"snapshot"}


def test_a_sync_that_flowed_and_whose_source_is_unfit_has_not_failed_either() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.errors = (fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED"),)
    world.change(restartNonce=1)
    world.steps()
    world.end(STREAM)
    world.steps()
    assert (world.status.phase, world.condition("Stalled")) == (Phase.PENDING, ("True", "BinlogFormatNotRow"))
    world.errors = ()
    world.step(40)
    world.steps(3)
    assert world.live(STREAM).names == {"shop.a", "shop.b"}


# ---- what another program did to a target


def test_a_table_whose_rows_another_program_changed_is_not_consistent() -> None:
    world = ControllerHarness()
    world.to_streaming()
    assert world.condition("Consistent") == ("True", "Consistent")
    write = {"version": 12, "program": "Apache-Spark/4\n", "operation": "DELETE", "at": "2026-11-25T10:00:00.000+00:00"}
    world.say(STREAM, tables=[{"name": "shop.b", "written": write}])
    world.steps()
    assert world.condition("Consistent") == ("False", "SinkWritten")
    message = world.status.condition("Consistent").message
    assert message.startswith('shop.b: the program "Apache-Spark/4\\n" changed rows of the target by its version 12 at')
    assert '(operation "DELETE")' in message
    assert "shop.a" not in message
    assert world.condition("Ready") == ("True", "Streaming")
    assert world.status.condition("Ready").message.startswith("1 of 2 tables consistent")
    world.say(STREAM, tables=[{"name": "shop.b", "written": None}])
    world.steps()
    assert world.condition("Consistent") == ("True", "Consistent")
