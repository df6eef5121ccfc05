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
    world = ControllerHarness()
    decision = world.step()
    assert decision.actions == (RunPreflight(1),)
    assert world.status.phase is Phase.PENDING
    assert world.status.observed_generation == -1
    assert {c.type for c in world.status.conditions} == {
        "Ready", "Reconciling", "Stalled", "SourceReady", "SinkReady", "SnapshotComplete", "Consistent",
    }  # fmt: skip
    assert world.condition("Reconciling")[0] == "True"


def test_tables_are_recorded_then_read_then_flow() -> None:
    world = ControllerHarness()
    world.steps(2)
    assert [t.name for t in world.status.table_status] == ["shop.a", "shop.b"]
    start = world.started()[0]
    assert (start.kind, start.tables, start.epoch) == (SNAPSHOT, (("shop.a", 0), ("shop.b", 0)), 1)
    assert world.status.phase is Phase.PLANNING
    world.say(SNAPSHOT, tables=[{"name": "shop.a", "phase": "Snapshotting"}])
    world.steps()
    assert world.status.phase is Phase.SNAPSHOTTING
    assert world.condition("Ready") == ("False", "Snapshotting")
    world.read("shop.a")
    world.steps()
    assert world.kinds() == {"snapshot"}, "the stream waits for the first snapshot"
    world.read("shop.b")
    world.end(SNAPSHOT)
    world.steps()
    assert world.kinds() == {"stream"}
    assert world.condition("SnapshotComplete")[0] == "True"
    assert world.condition("Consistent") == ("False", "CatchingUp")
    world.flow("shop.a", "shop.b")
    world.steps()
    assert world.status.phase is Phase.STREAMING
    assert world.condition("Ready") == ("True", "Streaming")
    assert world.condition("Reconciling")[0] == "False"
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Consistent")[0] == "True"


@pytest.mark.parametrize(("rows", "executors"), [(400_000, 0), (1_200_000, 2)])
def test_a_snapshot_gets_executors_by_the_rows_of_its_tables(rows: int, executors: int) -> None:
    world = ControllerHarness()
    world.rows = {"shop.a": rows, "shop.b": rows}
    world.steps(2)
    start = world.started()[0]
    assert (start.kind, start.executors) == (SNAPSHOT, executors)


def test_a_first_snapshot_of_an_idle_source_is_waited_for() -> None:
    """Low and high watermark are equal there, so a table is consistent as soon as it is read."""
    world = ControllerHarness()
    world.steps()
    same = {"low": place(100), "high": {"file": "binlog.000001", "offset": 100}, "position": reported(100)}
    world.say(SNAPSHOT, tables=[{"name": "shop.a", "phase": "CatchingUp", "finished": WHOLE, **same}])
    world.steps()
    assert world.kinds() == {"snapshot"}


def test_with_status_lost_a_new_table_does_not_hold_back_the_old_ones() -> None:
    world = ControllerHarness()
    world.steps()
    past = {"low": place(100), "high": {"file": "binlog.000001", "offset": 200}, "position": reported(900)}
    world.say(SNAPSHOT, tables=[{"name": "shop.a", "phase": "CatchingUp", "finished": WHOLE, **past}])
    world.steps()
    assert world.kinds() == {"snapshot", "stream"}


def test_nothing_is_decided_twice() -> None:
    world = ControllerHarness()
    world.to_streaming()
    assert [world.step(5).actions for _ in range(5)] == [()] * 5


def test_ready_and_lag_age_with_the_reports() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.flow("shop.a", "shop.b")
    world.step()
    assert world.status.lag_seconds == 0.5
    world.step(60)
    assert world.condition("Ready") == ("False", "Silent")
    assert world.status.lag_seconds is not None
    assert world.status.lag_seconds >= 60


def test_lost_status_reads_all_tables_and_learns_from_the_targets() -> None:
    """R4: the snapshot run asks the targets and says at once that they are complete."""
    world = ControllerHarness()
    world.to_streaming()
    world.status = Status()
    world.runs.clear()
    world.steps()
    assert world.live(SNAPSHOT).names == {"shop.a", "shop.b"}
    world.read("shop.a", "shop.b")
    world.end(SNAPSHOT)
    world.steps()
    assert world.kinds() == {"stream"}


def test_an_unnamed_run_is_stopped_and_forgotten() -> None:
    """R8: what the status does not name must not write."""
    world = ControllerHarness()
    world.runs["zombie"] = ObservedRun(STREAM, "zombie", (("shop.a", 0),), "x", RunState.RUNNING, world.now)
    assert StopRun(STREAM, "zombie") in world.step().actions
    zombie = world.runs["zombie"]
    world.runs["zombie"] = replace(zombie, state=RunState.ENDED)
    assert ForgetRun(STREAM, "zombie") in world.step().actions


def test_a_run_that_must_not_go_on_is_stopped_and_has_no_successor_before_its_end() -> None:
    """Its plan was lost, or its stop was interrupted: the next one would run concurrently."""
    world = ControllerHarness()
    world.to_streaming()
    run = world.live(STREAM)
    world.runs[run.id] = replace(run, state=RunState.DRAINING, stop_asked=True, unfit=True)
    decision = world.step()
    assert decision.actions == (StopRun(STREAM, run.id),)
    world.runs[run.id] = replace(run, state=RunState.DRAINING, stop_asked=True)
    assert world.step().actions == ()
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).id != run.id


def test_all_failures_of_a_preflight_are_shown_and_only_the_user_can_help() -> None:
    world = ControllerHarness(errors=(
        fail(Reason.BINLOG_FORMAT_NOT_ROW, "binlog_format is MIXED", needed="ROW"),
        fail(Reason.PRIVILEGE_MISSING, "no REPLICATION SLAVE", remedy="GRANT REPLICATION SLAVE"),
    ))  # fmt: skip
    world.steps()
    assert world.status.phase is Phase.PENDING, "it is checked again"
    assert world.condition("Stalled") == ("True", "BinlogFormatNotRow")
    assert world.condition("Reconciling")[0] == "False"
    message = world.status.condition("Stalled").message
    assert "MIXED" in message
    assert "GRANT REPLICATION SLAVE" in message
    assert world.status.observed_generation == 1, "kstatus reports the failure of this generation"
    assert world.started() == []


def test_a_cured_source_goes_on_by_itself() -> None:
    world = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),))
    world.steps()
    world.errors = ()
    world.step(40)
    world.steps(3)
    assert world.kinds() == {"snapshot"}
    assert world.condition("Stalled")[0] == "False"


def test_an_unreachable_source_is_tried_again_with_growing_pauses() -> None:
    world = ControllerHarness(errors=(fail(Reason.SOURCE_UNREACHABLE, "connection refused"),))
    passes = []
    for _ in range(200):
        before = len(world.log)
        world.step(1)
        passes += [world.now] * len(world.log[before:])
    pauses = [round(b - a) for a, b in itertools.pairwise(passes)]
    assert pauses[:4] == sorted(pauses[:4])
    assert pauses[0] < 10 < pauses[3]
    assert world.status.phase is Phase.PENDING
    assert world.condition("Ready") == ("False", "SourceUnreachable")
    assert world.condition("Stalled")[0] == "False"
    world.errors = ()
    for _ in range(200):
        world.step(1)
    assert world.kinds() == {"snapshot"}


def test_a_refused_table_is_shown_and_holds_nobody_back() -> None:
    error = fail(Reason.NO_PRIMARY_KEY, "found no primary key", table="shop.b")
    world = ControllerHarness(table_errors={"shop.b": error})
    world.steps()
    assert world.live(SNAPSHOT).names == {"shop.a"}
    assert world.condition("Stalled") == ("True", "NoPrimaryKey")
    assert world.condition("Ready")[0] == "False"
    world.read("shop.a")
    world.end(SNAPSHOT)
    world.steps()
    world.flow("shop.a")
    world.steps()
    assert world.status.phase is Phase.STREAMING
    assert (world.status.tables.failed, world.status.tables.streaming) == (1, 1)


def test_a_sync_whose_tables_all_failed_has_failed() -> None:
    world = ControllerHarness(
        tables=("shop.a",), table_errors={"shop.a": fail(Reason.NO_PRIMARY_KEY, "no key", table="shop.a")}
    )
    world.steps()
    assert world.status.phase is Phase.FAILED
    assert world.kinds() == set()


def test_a_sync_whose_tables_all_failed_is_not_judged_before_a_change_is_taken_in() -> None:
    """A run with an edited manifest would report the old failure."""
    world = ControllerHarness(tables=("shop.a",))
    world.to_streaming()
    world.say(STREAM, tables=[{"name": "shop.a", "phase": "Failed", "reason": "PositionLost", "message": "reset"}])
    world.end(STREAM)
    world.steps()
    assert world.status.phase is Phase.FAILED
    world.change(resnapshot=[{"table": "shop.a", "nonce": 1}])
    phases = set()
    for _ in range(4):
        world.step()
        phases.add(world.status.phase)
    assert Phase.FAILED not in phases
    assert world.kinds() == {"snapshot"}


def test_a_table_that_stops_in_the_stream_is_left_out_of_the_next_run() -> None:
    world = ControllerHarness(resource=resource(schemaChange={"behavior": "fail"}))
    world.to_streaming()
    world.say(
        STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "ALTER"}]
    )
    world.steps()
    assert world.condition("Ready") == ("False", "SchemaChangeRefused")
    assert world.condition("Stalled")[0] == "True"
    world.end(STREAM, 1, "SourceUnreachable", "gone")
    for _ in range(10):
        world.step()
    assert world.live(STREAM).names == {"shop.a"}


def test_pause_drains_and_keeps_and_resume_goes_on() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(state="paused")
    world.step()
    assert world.live(STREAM).stop_asked
    assert world.status.phase is Phase.STREAMING
    world.end(STREAM)
    world.steps()
    assert world.status.phase is Phase.PAUSED
    assert world.condition("Ready") == ("False", "Paused")
    assert world.status.observed_generation == 2
    assert world.status.restarts.consecutive == 0
    assert world.runs == {}
    world.change(state="running")
    world.steps()
    assert world.live(STREAM).names == {"shop.a", "shop.b"}


@pytest.mark.parametrize("spec", [{"restartNonce": 1}, {"stream": {"interval": "5s"}}, {"driver": {"memory": "4Gi"}}])
def test_a_changed_nonce_or_setting_drains_and_starts_a_new_run(spec: dict[str, object]) -> None:
    world = ControllerHarness()
    world.to_streaming()
    first = world.live(STREAM)
    world.change(**spec)
    world.steps()
    assert world.live(STREAM).id == first.id
    assert world.live(STREAM).stop_asked
    world.end(STREAM)
    world.steps()
    second = world.live(STREAM)
    assert second.id != first.id
    epochs = {a.id: a.epoch for a in world.started()}
    assert epochs[second.id] > epochs[first.id]
    assert world.status.restarts.consecutive == 0


@pytest.mark.parametrize("spec", [{"snapshot": {"chunkSize": 10}}, {"autoRestart": {"maxRestarts": 3}}])
def test_what_does_not_concern_the_stream_leaves_it_alone(spec: dict[str, object]) -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(**spec)
    world.steps()
    assert world.live(STREAM).state is RunState.RUNNING
    assert world.status.observed_generation == 2


def test_resnapshot_runs_beside_the_stream_then_catches_up_then_is_handed_over() -> None:
    """R5: the others flow all the time."""
    world = ControllerHarness()
    world.to_streaming()
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert world.live(STREAM).state is RunState.RUNNING
    world.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1}])
    world.flow("shop.a", offset=900)
    assert world.status.phase is Phase.STREAMING
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT)
    world.steps()
    catch_up = world.started()[-1]
    assert (catch_up.kind, catch_up.tables, catch_up.stop_at) == (CATCH_UP, (("shop.b", 1),), "binlog.000001:900")
    assert world.live(STREAM).state is RunState.RUNNING
    world.end(CATCH_UP)
    world.step()
    assert world.live(STREAM).stop_asked, "the stream is drained for the handover"
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).tables == (("shop.a", 0), ("shop.b", 1))
    assert world.kinds() == {"stream"}
    assert world.status.runs.get(CATCH_UP) is None
    world.flow("shop.a", "shop.b", offset=1000)
    world.steps()
    assert world.condition("Consistent")[0] == "True"
    assert world.status.restarts.consecutive == 0


def test_what_the_old_stream_says_of_a_table_that_is_read_again_is_no_news() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    world.read("shop.b", nonce=1)
    stale = world.status
    world.flow("shop.a", "shop.b")
    merged = stale.table("shop.b")
    assert merged is not None
    assert merged.phase is TablePhase.CATCHING_UP


def test_a_failed_table_comes_back_by_its_nonce() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.say(STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "PositionLost", "message": "purged"}])
    world.steps()
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert world.condition("Stalled")[0] == "False"


def test_snapshot_only_completes_after_the_stream_is_consistent() -> None:
    world = ControllerHarness(resource=resource(snapshot={"only": True}))
    world.steps()
    world.read("shop.a", "shop.b")
    world.end(SNAPSHOT)
    world.steps()
    assert world.kinds() == {"stream"}
    world.flow("shop.a", "shop.b")
    world.step()
    assert world.live(STREAM).stop_asked
    world.end(STREAM)
    world.steps()
    assert world.status.phase is Phase.COMPLETED
    assert {t.phase for t in world.status.table_status} == {TablePhase.COMPLETED}
    assert world.condition("Ready") == ("True", "Completed")
    assert world.step(1000).actions == ()


def test_a_transient_end_backs_off_and_a_stable_run_is_forgiven() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.end(STREAM, 1, "SourceUnreachable", "lost connection")
    world.step()
    assert world.status.restarts.consecutive == 1
    assert world.condition("Ready") == ("False", "SourceUnreachable")
    assert "lost connection" in world.status.condition("Ready").message
    assert world.kinds() == set()
    for _ in range(8):
        world.step()
    assert world.kinds() == {"stream"}
    for _ in range(70):
        world.flow("shop.a", "shop.b")
        world.step()
    assert world.status.restarts.consecutive == 0


def test_a_driver_that_vanished_is_a_transient_failure() -> None:
    world = ControllerHarness()
    world.to_streaming()
    accepted = world.status.runs.stream
    assert accepted is not None
    world.status = world.status.with_(runs=Runs(stream=accepted.model_copy(update={"report": 7})))
    world.runs.clear()
    world.step()
    assert world.status.restarts.reason == "DriverLost"
    assert world.status.runs.stream is None


@pytest.mark.parametrize("kind", [SNAPSHOT, STREAM])
def test_a_run_that_was_named_and_never_made_is_begun_anew(kind: RunKind) -> None:
    """Who named it died before it made anything. Nothing has failed, also where a failure would be
    the last word."""
    world = ControllerHarness(resource=resource(autoRestart={"enabled": False}))
    if kind is SNAPSHOT:
        world.steps()
    else:
        world.to_streaming()
    before = world.live(kind)
    world.runs.clear()
    world.steps()
    after = world.live(kind)
    assert (after.tables, after.fingerprint) == (before.tables, before.fingerprint)
    assert after.id != before.id
    assert world.status.restarts.consecutive == 0
    assert world.condition("Stalled")[0] == "False"


def _asked(world: ControllerHarness, seconds: int) -> int:
    """How many preflights there are in that time."""
    before = len([a for a in world.log if isinstance(a, RunPreflight)])
    for _ in range(seconds):
        world.step(1)
    return len([a for a in world.log if isinstance(a, RunPreflight)]) - before


UNREACHABLE = (fail(Reason.SOURCE_UNREACHABLE, "Too many connections (1040)"),)


def test_a_source_that_refuses_the_operator_while_a_stream_flows_is_asked_twice_a_minute() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.errors = UNREACHABLE
    world.step(400)
    assert _asked(world, 120) == 4
    assert world.status.phase is Phase.STREAMING


def test_a_source_that_was_unfit_and_is_away_is_tried_again_as_any_that_is_away() -> None:
    """As a server is that restarts to be fixed: what is retried is not called failed, nor
    stalled."""
    world = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),))
    world.steps()
    assert (world.status.phase, world.condition("Stalled")) == (Phase.PENDING, ("True", "BinlogDisabled"))
    world.errors = UNREACHABLE
    assert _asked(world, 121) >= 4
    assert (world.status.phase, world.condition("Stalled")[0]) == (Phase.PENDING, "False")
    assert world.condition("Ready") == ("False", "SourceUnreachable")


def test_what_was_tried_as_often_as_the_user_said_waits_for_the_user() -> None:
    """Also when the source is back."""
    world = ControllerHarness(resource=resource(autoRestart={"enabled": False}))
    world.to_streaming()
    world.errors = UNREACHABLE
    world.end(STREAM, 1, "SourceUnreachable", "gone")
    world.step(400)
    assert world.status.phase is Phase.FAILED
    world.errors = ()
    assert _asked(world, 600) == 0
    assert world.kinds() == set()
    world.change(autoRestart={"enabled": False}, restartNonce=1)
    world.steps()
    assert world.kinds() == {"stream"}


def test_a_driver_that_ends_too_early_does_not_spin() -> None:
    world = ControllerHarness()
    for _ in range(30):
        world.step()
        if world.kinds():
            world.end(SNAPSHOT)
    assert len(world.started()) <= 4
    assert world.status.restarts.consecutive >= 2


@pytest.mark.parametrize(
    ("policy", "starts"), [({"enabled": False}, 1), ({"maxRestarts": 2, "backoff": {"initial": "1s", "max": "1s"}}, 3)]
)
def test_restarts_end_where_the_user_said(policy: dict[str, object], starts: int) -> None:
    world = ControllerHarness(resource=resource(autoRestart=policy))
    for _ in range(40):
        world.step()
        if world.kinds():
            world.end(SNAPSHOT, 1, "DriverLost", "killed")
    assert len(world.started()) == starts
    assert world.status.phase is Phase.FAILED
    assert world.condition("Stalled") == ("True", "DriverLost")


def test_a_permanent_end_stops_the_sync_until_the_spec_changes() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.end(STREAM, 3, "PositionLost", "binlog.000001 was purged; remedy: resnapshot")
    for _ in range(400):
        world.step(5)
    assert world.status.phase is Phase.FAILED
    assert world.condition("Stalled") == ("True", "PositionLost")
    assert "purged" in world.status.condition("Stalled").message
    assert len(world.started()) == 2
    world.change(restartNonce=1)
    world.steps()
    assert world.kinds() == {"stream"}


def test_a_permanent_end_of_a_second_snapshot_stops_its_tables_only() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    world.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "nonce": 1, "generation": 1}])
    world.end(SNAPSHOT, 3, "SnapshotOutlivesBinlog", "purged")
    world.steps()
    assert world.live(STREAM).state is RunState.RUNNING
    failed = world.status.table("shop.b")
    assert failed is not None
    assert (failed.phase, failed.reason) == (TablePhase.FAILED, "SnapshotOutlivesBinlog")


def test_a_closing_controller_drains_and_starts_nothing() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.closing = True
    world.step()
    assert world.live(STREAM).stop_asked
    world.end(STREAM)
    world.steps()
    assert world.runs == {}
    assert world.status.runs.stream is None
    assert world.status.restarts.consecutive == 0


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

    world = ControllerHarness()
    world.to_streaming()
    seen = Observed(
        world.status, tuple(world.runs.values()), world.preflight, missing_secrets=("found no Secret login",)
    )
    decision = decide(world.resource, seen, world.now + 1)
    assert decision.actions == ()
    assert decision.status.condition("Ready").status == "True"
    assert decision.status.condition("SourceReady").status == "False"
    assert "login" in decision.status.condition("SourceReady").message


def test_a_driver_with_an_old_password_gets_a_successor_and_one_with_a_wrong_one_stalls() -> None:
    world = ControllerHarness(resource=resource(autoRestart={"backoff": {"initial": "1s", "max": "1s"}}))
    world.to_streaming()
    for attempt in range(4):
        assert world.condition("Stalled")[0] == "False", attempt
        world.end(STREAM, 3, "AuthenticationFailed", "Access denied for user 'cdc'")
        world.step()
        assert world.condition("Ready") == ("False", "AuthenticationFailed")
        world.steps(8)
    assert world.condition("Stalled") == ("True", "AuthenticationFailed")
    assert world.kinds() == set()


def _lose_rights(world: ControllerHarness) -> None:
    """The next preflight is due, and misses what the driver missed."""
    world.errors = (fail(Reason.PRIVILEGE_MISSING, "no REPLICATION SLAVE"),)
    world.end(STREAM, 3, "PrivilegeMissing", "you need the REPLICATION SLAVE privilege")
    world.preflight = None


def test_rights_that_were_lost_are_waited_for_though_a_look_misses_them_too() -> None:
    """Revoked for a moment: the driver ends, the preflight before its successor finds the same, and
    then they are back."""
    world = ControllerHarness(resource=resource(autoRestart={"backoff": {"initial": "1s", "max": "1s"}}))
    world.to_streaming()
    _lose_rights(world)
    world.steps(8)
    assert world.preflight is not None
    assert world.preflight.errors
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Ready") == ("False", "PrivilegeMissing")
    world.errors = ()
    world.steps(80)
    assert world.kinds() == {STREAM}


def test_rights_that_stay_away_stall() -> None:
    world = ControllerHarness(resource=resource(autoRestart={"backoff": {"initial": "1s", "max": "1s"}}))
    world.to_streaming()
    _lose_rights(world)
    world.steps(200)
    assert world.condition("Stalled") == ("True", "PrivilegeMissing")


def test_the_starts_of_a_step_have_ids_of_their_own() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.change(resnapshot=[{"table": "shop.b", "nonce": 1}], restartNonce=2)
    world.steps()
    world.end(STREAM)
    world.steps()
    ids = [a.id for a in world.log if isinstance(a, StartRun)]
    assert len(ids) == len(set(ids))
