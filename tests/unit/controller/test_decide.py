"""Decisions of the controller: put a state in, read what is to be done out (R4, R5, R7, R8)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Runs, Status
from cdcsync_operator.decision.observed import ForgetRun, ObservedRun, RunPreflight, RunState, StartRun, StopRun
from unit.controller.harness import WHOLE, ControllerHarness, place, reported, resource

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP


def test_an_unseen_resource_gets_a_preflight_and_every_condition() -> None:
    harness = ControllerHarness()
    decision = harness.step()
    assert decision.actions == (RunPreflight(1),)
    assert harness.status.phase is Phase.PENDING
    assert harness.status.observed_generation == -1
    assert {c.type for c in harness.status.conditions} == {
        "Ready", "Reconciling", "Stalled", "SourceReady", "SinkReady", "SnapshotComplete", "Consistent",
    }  # fmt: skip
    assert harness.condition("Reconciling")[0] == "True"


def test_tables_are_recorded_then_read_then_flow() -> None:
    harness = ControllerHarness()
    harness.steps(2)
    assert [t.name for t in harness.status.table_status] == ["shop.a", "shop.b"]
    start = harness.started()[0]
    assert (start.kind, start.tables, start.epoch) == (SNAPSHOT, (("shop.a", 0), ("shop.b", 0)), 1)
    assert harness.status.phase is Phase.PLANNING
    harness.say(SNAPSHOT, tables=[{"name": "shop.a", "phase": "Snapshotting"}])
    harness.steps()
    assert harness.status.phase is Phase.SNAPSHOTTING
    assert harness.condition("Ready") == ("False", "Snapshotting")
    harness.read("shop.a")
    harness.steps()
    assert harness.kinds() == {"snapshot"}, "the stream waits for the first snapshot"
    harness.read("shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}
    assert harness.condition("SnapshotComplete")[0] == "True"
    assert harness.condition("Consistent") == ("False", "CatchingUp")
    harness.flow("shop.a", "shop.b")
    harness.steps()
    assert harness.status.phase is Phase.STREAMING
    assert harness.condition("Ready") == ("True", "Streaming")
    assert harness.condition("Reconciling")[0] == "False"
    assert harness.condition("Stalled")[0] == "False"
    assert harness.condition("Consistent")[0] == "True"


@pytest.mark.parametrize(("rows", "executors"), [(400_000, 0), (1_200_000, 2)])
def test_a_snapshot_gets_executors_by_the_rows_of_its_tables(rows: int, executors: int) -> None:
    harness = ControllerHarness()
    harness.rows = {"shop.a": rows, "shop.b": rows}
    harness.steps(2)
    start = harness.started()[0]
    assert (start.kind, start.executors) == (SNAPSHOT, executors)


def test_a_first_snapshot_of_an_idle_source_is_waited_for() -> None:
    """Low and high watermark are equal there, so a table is consistent as soon as it is read."""
    harness = ControllerHarness()
    harness.steps()
    same = {"low": place(100), "high": {"file": "binlog.000001", "offset": 100}, "position": reported(100)}
    harness.say(SNAPSHOT, tables=[{"name": "shop.a", "phase": "CatchingUp", "finished": WHOLE, **same}])
    harness.steps()
    assert harness.kinds() == {"snapshot"}


def test_with_status_lost_a_new_table_does_not_hold_back_the_old_ones() -> None:
    harness = ControllerHarness()
    harness.steps()
    past = {"low": place(100), "high": {"file": "binlog.000001", "offset": 200}, "position": reported(900)}
    harness.say(SNAPSHOT, tables=[{"name": "shop.a", "phase": "CatchingUp", "finished": WHOLE, **past}])
    harness.steps()
    assert harness.kinds() == {"snapshot", "stream"}


def test_nothing_is_decided_twice() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    assert [harness.step(5).actions for _ in range(5)] == [()] * 5


def test_ready_and_lag_age_with_the_reports() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.flow("shop.a", "shop.b")
    harness.step()
    assert harness.status.lag_seconds == 0.5
    harness.step(60)
    assert harness.condition("Ready") == ("False", "Silent")
    assert harness.status.lag_seconds is not None
    assert harness.status.lag_seconds >= 60


def test_lost_status_reads_all_tables_and_learns_from_the_targets() -> None:
    """R4: the snapshot run asks the targets and says at once that they are complete."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.status = Status()
    harness.runs.clear()
    harness.steps()
    assert harness.live(SNAPSHOT).names == {"shop.a", "shop.b"}
    harness.read("shop.a", "shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}


def test_an_unnamed_run_is_stopped_and_forgotten() -> None:
    """R8: what the status does not name must not write."""
    harness = ControllerHarness()
    harness.runs["zombie"] = ObservedRun(STREAM, "zombie", (("shop.a", 0),), "x", RunState.RUNNING, harness.now)
    assert StopRun(STREAM, "zombie") in harness.step().actions
    zombie = harness.runs["zombie"]
    harness.runs["zombie"] = replace(zombie, state=RunState.ENDED)
    assert ForgetRun(STREAM, "zombie") in harness.step().actions


def test_a_run_that_must_not_go_on_is_stopped_and_has_no_successor_before_its_end() -> None:
    """Its plan was lost, or its stop was interrupted: the next one would run concurrently."""
    harness = ControllerHarness()
    harness.to_streaming()
    run = harness.live(STREAM)
    harness.runs[run.id] = replace(run, state=RunState.DRAINING, stop_asked=True, unfit=True)
    decision = harness.step()
    assert decision.actions == (StopRun(STREAM, run.id),)
    harness.runs[run.id] = replace(run, state=RunState.DRAINING, stop_asked=True)
    assert harness.step().actions == ()
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).id != run.id


def test_all_failures_of_a_preflight_are_shown_and_only_the_user_can_help() -> None:
    harness = ControllerHarness(errors=(
        fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED", needed="ROW"),
        fail(Reason.PRIVILEGE_MISSING, "no REPLICATION SLAVE", remedy="GRANT REPLICATION SLAVE"),
    ))  # fmt: skip
    harness.steps()
    assert harness.status.phase is Phase.PENDING, "it is checked again"
    assert harness.condition("Stalled") == ("True", "BinlogFormatNotRow")
    assert harness.condition("Reconciling")[0] == "False"
    message = harness.status.condition("Stalled").message
    assert "MIXED" in message
    assert "GRANT REPLICATION SLAVE" in message
    assert harness.status.observed_generation == 1, "kstatus reports the failure of this generation"
    assert harness.started() == []


def test_a_cured_source_goes_on_by_itself() -> None:
    harness = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),))
    harness.steps()
    harness.errors = ()
    harness.step(40)
    harness.steps(3)
    assert harness.kinds() == {"snapshot"}
    assert harness.condition("Stalled")[0] == "False"


def test_an_unreachable_source_is_tried_again_with_growing_pauses() -> None:
    harness = ControllerHarness(errors=(fail(Reason.SOURCE_UNREACHABLE, "connection refused"),))
    passes = []
    for _ in range(200):
        before = len(harness.log)
        harness.step(1)
        passes += [harness.now] * len(harness.log[before:])
    pauses = [round(b - a) for a, b in itertools.pairwise(passes)]
    assert pauses[:4] == sorted(pauses[:4])
    assert pauses[0] < 10 < pauses[3]
    assert harness.status.phase is Phase.PENDING
    assert harness.condition("Ready") == ("False", "SourceUnreachable")
    assert harness.condition("Stalled")[0] == "False"
    harness.errors = ()
    for _ in range(200):
        harness.step(1)
    assert harness.kinds() == {"snapshot"}


def test_a_refused_table_is_shown_and_holds_nobody_back() -> None:
    error = fail(Reason.NO_PRIMARY_KEY, "found no primary key", table="shop.b")
    harness = ControllerHarness(table_errors={"shop.b": error})
    harness.steps()
    assert harness.live(SNAPSHOT).names == {"shop.a"}
    assert harness.condition("Stalled") == ("True", "NoPrimaryKey")
    assert harness.condition("Ready")[0] == "False"
    harness.read("shop.a")
    harness.end(SNAPSHOT)
    harness.steps()
    harness.flow("shop.a")
    harness.steps()
    assert harness.status.phase is Phase.STREAMING
    assert (harness.status.tables.failed, harness.status.tables.streaming) == (1, 1)


def test_a_sync_whose_tables_all_failed_has_failed() -> None:
    harness = ControllerHarness(
        tables=("shop.a",), table_errors={"shop.a": fail(Reason.NO_PRIMARY_KEY, "no key", table="shop.a")}
    )
    harness.steps()
    assert harness.status.phase is Phase.FAILED
    assert harness.kinds() == set()


def test_a_sync_whose_tables_all_failed_is_not_judged_before_a_change_is_taken_in() -> None:
    """A run with an edited manifest would report the old failure."""
    harness = ControllerHarness(tables=("shop.a",))
    harness.to_streaming()
    harness.say(STREAM, tables=[{"name": "shop.a", "phase": "Failed", "reason": "PositionLost", "message": "reset"}])
    harness.end(STREAM)
    harness.steps()
    assert harness.status.phase is Phase.FAILED
    harness.change(resnapshot=[{"table": "shop.a", "nonce": 1}])
    phases = set()
    for _ in range(4):
        harness.step()
        phases.add(harness.status.phase)
    assert Phase.FAILED not in phases
    assert harness.kinds() == {"snapshot"}


def test_a_table_that_stops_in_the_stream_is_left_out_of_the_next_run() -> None:
    harness = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    harness.to_streaming()
    harness.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "ALTER"}]
    )
    harness.steps()
    assert harness.condition("Ready") == ("False", "SchemaChangeRefused")
    assert harness.condition("Stalled")[0] == "True"
    harness.end(STREAM, 1, "SourceUnreachable", "gone")
    for _ in range(10):
        harness.step()
    assert harness.live(STREAM).names == {"shop.a"}


def test_pause_drains_and_keeps_and_resume_goes_on() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(state="paused")
    harness.step()
    assert harness.live(STREAM).stop_asked
    assert harness.status.phase is Phase.STREAMING
    harness.end(STREAM)
    harness.steps()
    assert harness.status.phase is Phase.PAUSED
    assert harness.condition("Ready") == ("False", "Paused")
    assert harness.status.observed_generation == 2
    assert harness.status.restarts.consecutive == 0
    assert harness.runs == {}
    harness.change(state="running")
    harness.steps()
    assert harness.live(STREAM).names == {"shop.a", "shop.b"}


@pytest.mark.parametrize("spec", [{"restartNonce": 1}, {"stream": {"interval": "5s"}}, {"driver": {"memory": "4Gi"}}])
def test_a_changed_nonce_or_setting_drains_and_starts_a_new_run(spec: dict[str, object]) -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    first = harness.live(STREAM)
    harness.change(**spec)
    harness.steps()
    assert harness.live(STREAM).id == first.id
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.steps()
    second = harness.live(STREAM)
    assert second.id != first.id
    epochs = {a.id: a.epoch for a in harness.started()}
    assert epochs[second.id] > epochs[first.id]
    assert harness.status.restarts.consecutive == 0


@pytest.mark.parametrize("spec", [{"snapshot": {"chunkSize": 10}}, {"autoRestart": {"maxRestarts": 3}}])
def test_what_does_not_concern_the_stream_leaves_it_alone(spec: dict[str, object]) -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(**spec)
    harness.steps()
    assert harness.live(STREAM).state is RunState.RUNNING
    assert harness.status.observed_generation == 2


def test_resnapshot_runs_beside_the_stream_then_catches_up_then_is_handed_over() -> None:
    """R5: the others flow all the time."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert harness.live(STREAM).state is RunState.RUNNING
    harness.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1}])
    harness.flow("shop.a", offset=900)
    assert harness.status.phase is Phase.STREAMING
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT)
    harness.steps()
    catch_up = harness.started()[-1]
    assert (catch_up.kind, catch_up.tables) == (CATCH_UP, (("shop.b", 1),))
    assert catch_up.stop_at == "mysql:uuid/binlog.000001:900"
    assert harness.live(STREAM).state is RunState.RUNNING
    harness.end(CATCH_UP)
    harness.step()
    assert harness.live(STREAM).stop_asked, "the stream is drained for the handover"
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).tables == (("shop.a", 0), ("shop.b", 1))
    assert harness.kinds() == {"stream"}
    assert harness.status.runs.get(CATCH_UP) is None
    harness.flow("shop.a", "shop.b", offset=1000)
    harness.steps()
    assert harness.condition("Consistent")[0] == "True"
    assert harness.status.restarts.consecutive == 0


def test_what_the_old_stream_says_of_a_table_that_is_read_again_is_no_news() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    harness.read("shop.b", nonce=1)
    stale = harness.status
    harness.flow("shop.a", "shop.b")
    merged = stale.table("shop.b")
    assert merged is not None
    assert merged.phase is TablePhase.CATCHING_UP


def test_a_failed_table_comes_back_by_its_nonce() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "PositionLost", "message": "purged"}])
    harness.steps()
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert harness.condition("Stalled")[0] == "False"


def test_snapshot_only_completes_after_the_stream_is_consistent() -> None:
    harness = ControllerHarness(resource=resource(snapshot={"only": True}))
    harness.steps()
    harness.read("shop.a", "shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}
    harness.flow("shop.a", "shop.b")
    harness.step()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.steps()
    assert harness.status.phase is Phase.COMPLETED
    assert {t.phase for t in harness.status.table_status} == {TablePhase.COMPLETED}
    assert harness.condition("Ready") == ("True", "Completed")
    assert harness.step(1000).actions == ()


def test_a_transient_end_backs_off_and_a_stable_run_is_forgiven() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.end(STREAM, 1, "SourceUnreachable", "lost connection")
    harness.step()
    assert harness.status.restarts.consecutive == 1
    assert harness.condition("Ready") == ("False", "SourceUnreachable")
    assert "lost connection" in harness.status.condition("Ready").message
    assert harness.kinds() == set()
    for _ in range(8):
        harness.step()
    assert harness.kinds() == {"stream"}
    for _ in range(70):
        harness.flow("shop.a", "shop.b")
        harness.step()
    assert harness.status.restarts.consecutive == 0


def test_a_driver_that_vanished_is_a_transient_failure() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    accepted = harness.status.runs.stream
    assert accepted is not None
    harness.status = harness.status.with_(runs=Runs(stream=accepted.model_copy(update={"report": 7})))
    harness.runs.clear()
    harness.step()
    assert harness.status.restarts.reason == "DriverLost"
    assert harness.status.runs.stream is None


@pytest.mark.parametrize("kind", [SNAPSHOT, STREAM])
def test_a_run_that_was_named_and_never_made_is_begun_anew(kind: RunKind) -> None:
    """Who named it died before it made anything. Nothing has failed, also where a failure would be
    the last word."""
    harness = ControllerHarness(resource=resource(autoRestart={"enabled": False}))
    if kind is SNAPSHOT:
        harness.steps()
    else:
        harness.to_streaming()
    before = harness.live(kind)
    harness.runs.clear()
    harness.steps()
    after = harness.live(kind)
    assert (after.tables, after.fingerprint) == (before.tables, before.fingerprint)
    assert after.id != before.id
    assert harness.status.restarts.consecutive == 0
    assert harness.condition("Stalled")[0] == "False"


def _asked(harness: ControllerHarness, seconds: int) -> int:
    """How many preflights there are in that time."""
    before = len([a for a in harness.log if isinstance(a, RunPreflight)])
    for _ in range(seconds):
        harness.step(1)
    return len([a for a in harness.log if isinstance(a, RunPreflight)]) - before


UNREACHABLE = (fail(Reason.SOURCE_UNREACHABLE, "Too many connections (1040)"),)


def test_a_source_that_refuses_the_operator_while_a_stream_flows_is_asked_twice_a_minute() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.errors = UNREACHABLE
    harness.step(400)
    assert _asked(harness, 120) == 4
    assert harness.status.phase is Phase.STREAMING


def test_a_source_that_was_unfit_and_is_away_is_tried_again_as_any_that_is_away() -> None:
    """As a server is that restarts to be fixed: what is retried is not called failed, nor
    stalled."""
    harness = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),))
    harness.steps()
    assert (harness.status.phase, harness.condition("Stalled")) == (Phase.PENDING, ("True", "BinlogDisabled"))
    harness.errors = UNREACHABLE
    assert _asked(harness, 121) >= 4
    assert (harness.status.phase, harness.condition("Stalled")[0]) == (Phase.PENDING, "False")
    assert harness.condition("Ready") == ("False", "SourceUnreachable")


def test_what_was_tried_as_often_as_the_user_said_waits_for_the_user() -> None:
    """Also when the source is back."""
    harness = ControllerHarness(resource=resource(autoRestart={"enabled": False}))
    harness.to_streaming()
    harness.errors = UNREACHABLE
    harness.end(STREAM, 1, "SourceUnreachable", "gone")
    harness.step(400)
    assert harness.status.phase is Phase.FAILED
    harness.errors = ()
    assert _asked(harness, 600) == 0
    assert harness.kinds() == set()
    harness.change(autoRestart={"enabled": False}, restartNonce=1)
    harness.steps()
    assert harness.kinds() == {"stream"}


def test_a_driver_that_ends_too_early_does_not_spin() -> None:
    harness = ControllerHarness()
    for _ in range(30):
        harness.step()
        if harness.kinds():
            harness.end(SNAPSHOT)
    assert len(harness.started()) <= 4
    assert harness.status.restarts.consecutive >= 2


@pytest.mark.parametrize(
    ("policy", "starts"), [({"enabled": False}, 1), ({"maxRestarts": 2, "backoff": {"initial": "1s", "max": "1s"}}, 3)]
)
def test_restarts_end_where_the_user_said(policy: dict[str, object], starts: int) -> None:
    harness = ControllerHarness(resource=resource(autoRestart=policy))
    for _ in range(40):
        harness.step()
        if harness.kinds():
            harness.end(SNAPSHOT, 1, "DriverLost", "killed")
    assert len(harness.started()) == starts
    assert harness.status.phase is Phase.FAILED
    assert harness.condition("Stalled") == ("True", "DriverLost")


def test_a_permanent_end_stops_the_sync_until_the_spec_changes() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.end(STREAM, 3, "PositionLost", "binlog.000001 was purged; remedy: resnapshot")
    for _ in range(400):
        harness.step(5)
    assert harness.status.phase is Phase.FAILED
    assert harness.condition("Stalled") == ("True", "PositionLost")
    assert "purged" in harness.status.condition("Stalled").message
    assert len(harness.started()) == 2
    harness.change(restartNonce=1)
    harness.steps()
    assert harness.kinds() == {"stream"}


def test_a_permanent_end_of_a_second_snapshot_stops_its_tables_only() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    harness.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1}])
    harness.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    harness.steps()
    assert harness.live(STREAM).state is RunState.RUNNING
    failed = harness.status.table("shop.b")
    assert failed is not None
    assert (failed.phase, failed.reason) == (TablePhase.FAILED, "SnapshotOutlivesBinlog")


def test_a_closing_controller_drains_and_starts_nothing() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.closing = True
    harness.step()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.steps()
    assert harness.runs == {}
    assert harness.status.runs.stream is None
    assert harness.status.restarts.consecutive == 0


def test_a_missing_secret_is_named_and_nothing_starts() -> None:
    from cdcsync_operator.decision.decide import decide
    from cdcsync_operator.decision.observed import Observed

    decision = decide(resource(), Observed(Status(), missing_secrets=("found no Secret login",)), 1.0)
    assert decision.actions == ()
    assert decision.status.condition("SourceReady").status == "False"
    assert "login" in decision.status.condition("Ready").message


def test_a_secret_that_goes_missing_stops_nothing() -> None:
    """Pods that live have it mounted; to delete and make it again would stop the data."""
    from cdcsync_operator.decision.decide import decide
    from cdcsync_operator.decision.observed import Observed

    harness = ControllerHarness()
    harness.to_streaming()
    seen = Observed(
        harness.status, tuple(harness.runs.values()), harness.preflight, missing_secrets=("found no Secret login",)
    )
    decision = decide(harness.resource, seen, harness.now + 1)
    assert decision.actions == ()
    assert decision.status.condition("Ready").status == "True"
    assert decision.status.condition("SourceReady").status == "False"
    assert "login" in decision.status.condition("SourceReady").message


def test_a_driver_with_an_old_password_gets_a_successor_and_one_with_a_wrong_one_stalls() -> None:
    harness = ControllerHarness(resource=resource(autoRestart={"backoff": {"initial": "1s", "max": "1s"}}))
    harness.to_streaming()
    for attempt in range(4):
        assert harness.condition("Stalled")[0] == "False", attempt
        harness.end(STREAM, 3, "AuthenticationFailed", "Access denied for user 'cdc'")
        harness.step()
        assert harness.condition("Ready") == ("False", "AuthenticationFailed")
        harness.steps(8)
    assert harness.condition("Stalled") == ("True", "AuthenticationFailed")
    assert harness.kinds() == set()


def _lose_rights(harness: ControllerHarness) -> None:
    """The next preflight is due, and misses what the driver missed."""
    harness.errors = (fail(Reason.PRIVILEGE_MISSING, "no REPLICATION SLAVE"),)
    harness.end(STREAM, 3, "PrivilegeMissing", "you need the REPLICATION SLAVE privilege")
    harness.preflight = None


def test_rights_that_were_lost_are_waited_for_though_a_look_misses_them_too() -> None:
    """Revoked for a moment: the driver ends, the preflight before its successor finds the same, and
    then they are back."""
    harness = ControllerHarness(resource=resource(autoRestart={"backoff": {"initial": "1s", "max": "1s"}}))
    harness.to_streaming()
    _lose_rights(harness)
    harness.steps(8)
    assert harness.preflight is not None
    assert harness.preflight.errors
    assert harness.condition("Stalled")[0] == "False"
    assert harness.condition("Ready") == ("False", "PrivilegeMissing")
    harness.errors = ()
    harness.steps(80)
    assert harness.kinds() == {STREAM}


def test_rights_that_stay_away_stall() -> None:
    harness = ControllerHarness(resource=resource(autoRestart={"backoff": {"initial": "1s", "max": "1s"}}))
    harness.to_streaming()
    _lose_rights(harness)
    harness.steps(200)
    assert harness.condition("Stalled") == ("True", "PrivilegeMissing")


def test_the_starts_of_a_step_have_ids_of_their_own() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.change(resnapshot=[{"table": "shop.b", "nonce": 1}], restartNonce=2)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    ids = [a.id for a in harness.log if isinstance(a, StartRun)]
    assert len(ids) == len(set(ids))
