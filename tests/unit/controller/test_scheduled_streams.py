"""A stream with a schedule: it catches up at its times, rests between them, and the status says of
both what is so."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.manifest import parse_resource
from cdcsync_core.runs.run import LOG_END, RunKind
from cdcsync_core.runs.status import Phase
from cdcsync_core.timestamps import unix_time, utc
from unit.controller.harness import ControllerHarness, resource

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
HOURLY = {"schedule": {"cron": "0 * * * *"}}
NOON = datetime.fromisoformat("2026-06-01T12:00:00+00:00").timestamp()
HOUR = 3600.0
UNREACHABLE = fail(Reason.SOURCE_UNREACHABLE, "the source is away")


def scheduled(**spec: Any) -> ControllerHarness:
    """At ten past twelve."""
    return ControllerHarness(resource=resource(**({"stream": HOURLY} | spec)), now=NOON + 600)


def catch_up(harness: ControllerHarness) -> None:
    """The live stream reaches its goal and ends."""
    harness.flow(*harness.tables)
    harness.step()
    harness.end(STREAM)
    harness.step()


def rested(**spec: Any) -> ControllerHarness:
    """After the first catch-up."""
    harness = scheduled(**spec)
    harness.steps()
    harness.read(*harness.tables)
    harness.end(SNAPSHOT)
    harness.steps()
    catch_up(harness)
    harness.steps()
    return harness


def until(harness: ControllerHarness, at: float) -> None:
    """A step at that time."""
    harness.step(at - harness.now)


def next_time(harness: ControllerHarness) -> float:
    assert harness.status.schedule is not None
    found = unix_time(harness.status.schedule.next_time)
    assert found is not None
    return found


# ---- the runs


def test_the_first_catch_up_does_not_wait_for_a_time() -> None:
    """A table is not left between its watermarks (R2)."""
    harness = scheduled()
    harness.steps()
    assert harness.kinds() == {"snapshot"}
    harness.read(*harness.tables)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}
    assert harness.started()[-1].stop_at == LOG_END
    assert harness.status.schedule is None
    catch_up(harness)
    assert harness.kinds() == set()
    assert harness.status.phase is Phase.WAITING
    assert next_time(harness) == NOON + HOUR


def test_without_a_schedule_a_stream_has_no_end() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    assert harness.started()[-1].stop_at == ""
    assert harness.status.schedule is None


def test_nothing_runs_between_two_times_and_a_time_starts_one_run() -> None:
    harness = rested()
    starts = len(harness.started())
    until(harness, NOON + HOUR - 1)
    assert (harness.kinds(), len(harness.started())) == (set(), starts)
    until(harness, NOON + HOUR)
    assert harness.kinds() == {"stream"}
    began = harness.now
    harness.steps()
    catch_up(harness)
    assert harness.kinds() == set()
    assert len(harness.started()) == starts + 1
    assert next_time(harness) == NOON + 2 * HOUR
    assert harness.status.schedule is not None
    assert harness.status.schedule.last_start == utc(began)


def test_times_that_were_missed_are_caught_up_once() -> None:
    """The operator was away for a day."""
    harness = rested()
    starts = len(harness.started())
    until(harness, NOON + 25.5 * HOUR)
    assert harness.kinds() == {"stream"}
    catch_up(harness)
    harness.steps()
    assert len(harness.started()) == starts + 1
    assert next_time(harness) == NOON + 26 * HOUR


def test_a_time_that_comes_during_a_run_is_caught_up_by_the_next_one() -> None:
    """What was committed between the run's beginning and that time is not the run's."""
    harness = rested()
    until(harness, NOON + HOUR)
    harness.flow(*harness.tables)
    until(harness, NOON + 2 * HOUR + 60)
    harness.flow(*harness.tables)
    first = harness.live(STREAM)
    harness.end(STREAM)
    harness.steps()
    assert harness.live(STREAM).id != first.id


def test_a_run_that_fails_is_tried_again_and_counts_from_its_last_beginning() -> None:
    harness = rested()
    until(harness, NOON + HOUR)
    harness.end(STREAM, 1, "OutOfMemory", "killed")
    harness.step()
    assert harness.condition("Ready") == ("False", "OutOfMemory")
    assert next_time(harness) == NOON + HOUR
    until(harness, NOON + HOUR + 60)
    assert harness.kinds() == {"stream"}
    began = harness.now
    catch_up(harness)
    assert harness.status.schedule is not None
    assert harness.status.schedule.last_start == utc(began)
    assert harness.status.restarts.consecutive == 0
    assert harness.condition("Ready") == ("True", "Waiting")


def test_a_run_that_was_drained_has_not_caught_up() -> None:
    harness = rested()
    until(harness, NOON + HOUR)
    harness.change(stream=HOURLY, restartNonce=1)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    assert next_time(harness) == NOON + HOUR
    assert harness.kinds() == {"stream"}


def test_a_table_that_is_resnapshotted_does_not_wait_for_a_time() -> None:
    harness = rested()
    starts = len(harness.started())
    harness.change(stream=HOURLY, resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    assert harness.kinds() == {"snapshot"}
    harness.read("shop.b", nonce=1)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}
    catch_up(harness)
    harness.steps()
    assert harness.kinds() == set()
    assert len(harness.started()) == starts + 2
    assert next_time(harness) == NOON + HOUR


def test_paused_wins_and_a_time_in_the_pause_is_caught_up_after_it() -> None:
    harness = rested()
    harness.change(stream=HOURLY, state="paused")
    until(harness, NOON + 3.5 * HOUR)
    assert (harness.status.phase, harness.kinds()) == (Phase.PAUSED, set())
    harness.change(stream=HOURLY)
    harness.steps()
    assert harness.kinds() == {"stream"}


def test_a_lost_status_is_caught_up_at_once() -> None:
    harness = rested()
    harness.status = type(harness.status)()
    harness.runs.clear()
    harness.steps()
    harness.read(*harness.tables)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}


# ---- changes of the schedule


def test_another_cron_stops_nothing_and_counts_from_now() -> None:
    harness = rested()
    harness.change(stream={"schedule": {"cron": "30 * * * *"}})
    harness.steps()
    assert next_time(harness) == NOON + HOUR / 2
    until(harness, NOON + HOUR / 2)
    run = harness.live(STREAM)
    harness.change(stream={"schedule": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"}})
    harness.steps()
    assert harness.live(STREAM) == run
    assert harness.condition("Ready")[1] != "ScheduleMissed"
    catch_up(harness)
    assert harness.status.schedule is not None
    assert harness.status.schedule.next_time == "2026-06-02T00:00:00Z"


def test_a_schedule_ends_a_stream_that_runs_all_the_time_and_the_other_way_round() -> None:
    harness = ControllerHarness(now=NOON + 600)
    harness.to_streaming()
    harness.change(stream=HOURLY)
    harness.steps()
    assert harness.condition("Ready") == ("False", "RollingOut")
    assert "stream.schedule" in harness.status.condition("Ready").message
    harness.end(STREAM)
    harness.steps()
    assert harness.started()[-1].stop_at == LOG_END
    catch_up(harness)
    harness.steps()
    assert (harness.kinds(), harness.status.phase) == (set(), Phase.WAITING)
    harness.change()
    harness.steps()
    assert harness.started()[-1].stop_at == ""
    assert harness.status.schedule is None


# ---- what the status says


def test_between_times_the_sync_is_ready_and_settled() -> None:
    harness = rested()
    assert harness.condition("Ready") == ("True", "Waiting")
    assert harness.condition("Reconciling") == ("False", "Waiting")
    assert harness.condition("Stalled")[0] == "False"
    assert harness.condition("Consistent") == ("True", "Consistent")
    assert "next time 2026-06-01T13:00:00Z" in harness.status.condition("Ready").message
    assert harness.status.lag_seconds == 0


def test_at_a_time_it_stays_ready_and_reconciles() -> None:
    """Nothing is late yet, so nothing that waits for Ready is told so."""
    harness = rested()
    until(harness, NOON + HOUR)
    for _ in range(3):
        assert harness.condition("Ready") == ("True", "CatchingUp")
        assert harness.condition("Reconciling") == ("True", "CatchingUp")
        harness.step()
    assert harness.status.lag_seconds == 3
    harness.flow(*harness.tables)
    harness.step()
    assert harness.condition("Ready") == ("True", "CatchingUp")


def test_a_stream_that_goes_silent_at_its_time_is_not_ready() -> None:
    harness = rested()
    until(harness, NOON + HOUR)
    harness.flow(*harness.tables)
    harness.step(120)
    assert harness.condition("Ready") == ("False", "Silent")


@pytest.mark.parametrize("late", [0.0, 5 * HOUR])
def test_a_time_is_missed_when_the_next_one_comes(late: float) -> None:
    harness = rested()
    until(harness, NOON + HOUR)
    harness.flow(*harness.tables)
    until(harness, NOON + 2 * HOUR - 1)
    harness.flow(*harness.tables)
    harness.step(0)
    assert harness.condition("Ready")[0] == "True"
    until(harness, NOON + 2 * HOUR + late)
    assert harness.condition("Ready") == ("False", "ScheduleMissed")
    assert harness.condition("Reconciling")[0] == "True"
    assert "2026-06-01T13:00:00Z was not caught up before the next one" in harness.status.condition("Ready").message
    assert harness.status.lag_seconds == HOUR + late
    catch_up(harness)
    harness.steps()
    catch_up(harness)
    assert harness.condition("Ready") == ("True", "Waiting")


def test_a_source_that_is_away_between_times_is_reported_and_fails_nothing() -> None:
    harness = rested()
    harness.errors = (UNREACHABLE,)
    for _ in range(5):
        harness.step(301)
    assert harness.condition("SourceReady") == ("False", "SourceUnreachable")
    assert harness.condition("Ready") == ("True", "Waiting")
    assert harness.status.restarts.consecutive == 0
    until(harness, NOON + HOUR)
    harness.step()
    assert harness.condition("Ready") == ("False", "SourceUnreachable")
    assert harness.kinds() == set()
    harness.errors = ()
    harness.step(60)
    harness.step(60)
    assert harness.kinds() == {"stream"}


def test_a_table_that_stops_keeps_no_other_from_its_times() -> None:
    harness = rested(schemaChange={"behavior": "fail"})
    until(harness, NOON + HOUR)
    harness.flow("shop.a")
    failed = {"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "shop.b: ALTER"}
    harness.say(STREAM, tables=[failed])
    harness.end(STREAM)
    harness.steps()
    assert harness.condition("Stalled") == ("True", "SchemaChangeRefused")
    assert next_time(harness) == NOON + 2 * HOUR
    until(harness, NOON + 2 * HOUR)
    assert harness.live(STREAM).names == {"shop.a"}


# ---- the binlog between two times


def test_a_position_that_will_be_purged_before_the_next_time_is_reported() -> None:
    harness = rested()
    harness.kept_until = NOON + HOUR + 1
    harness.step(301)
    assert harness.condition("Ready") == ("True", "Waiting"), "it is kept until the next time"
    harness.kept_until = NOON + HOUR - 60
    harness.step(301)
    harness.step()
    assert harness.condition("Ready") == ("False", "PositionWillBeLost")
    assert harness.condition("Stalled") == ("True", "PositionWillBeLost")
    assert "found binlog.000001" in harness.status.condition("Stalled").message
    assert "remedy: raise binlog_expire_logs_seconds" in harness.status.condition("Stalled").message
    assert harness.kinds() == set()
    harness.change(stream={"schedule": {"cron": "50 * * * *"}})
    harness.steps()
    assert harness.condition("Ready") == ("True", "Waiting")
    assert harness.condition("Stalled")[0] == "False"


def test_a_file_that_the_stream_has_left_says_nothing() -> None:
    harness = rested()
    harness.kept_until = NOON
    harness.step(301)
    harness.step()
    assert harness.condition("Ready")[1] == "PositionWillBeLost"
    until(harness, NOON + HOUR)
    harness.steps()
    left = {"file": "binlog.000002", "offset": 4, "gtidSet": ""}
    harness.say(STREAM, position=left, tables=[])
    harness.end(STREAM)
    harness.kept_until = None
    harness.steps()
    assert harness.condition("Ready") == ("True", "Waiting")


@pytest.mark.parametrize("policy", ["fail", "resnapshot"])
def test_a_binlog_that_is_gone_already_does_not_wait_for_a_time(policy: str) -> None:
    """A run finds what is lost, and the policy decides."""
    harness = rested(onPositionLost=policy)
    harness.kept_until = 0.0
    harness.step(301)
    harness.step()
    assert harness.kinds() == {"stream"}
    lost = [{"name": n, "phase": "Failed", "reason": "PositionLost", "message": f"{n}: purged"} for n in harness.tables]
    harness.say(STREAM, tables=lost)
    harness.end(STREAM, 3, "PositionLost", "purged")
    harness.steps()
    harness.step(10)  # the pause after a failure
    harness.steps()
    if policy == "fail":
        assert (harness.status.phase, harness.kinds()) == (Phase.FAILED, set())
        assert harness.condition("Stalled") == ("True", "PositionLost")
    else:
        assert harness.kinds() == {"snapshot"}


# ---- what is no schedule


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"stream": {"schedule": {"cron": "0 25 * * *"}}}, "(bad hour)"),
        ({"stream": {"schedule": {"cron": "0 0 30 2 *"}}}, "(bad day-of-month)"),
        ({"stream": {"schedule": {"cron": "0 2 * * *", "timeZone": "Mars/Olympus"}}}, "'Mars/Olympus'"),
        ({"stream": HOURLY, "snapshot": {"only": True}}, "stream.schedule or snapshot.only"),
    ],
)
def test_a_spec_that_is_wrong_says_what_is_needed(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(CdcError, match="needed") as caught:
        resource(**spec)
    assert caught.value.reason is Reason.SPEC_INVALID
    assert words in caught.value.message


def test_a_resource_keeps_its_schedule_on_the_way_to_a_driver() -> None:
    assert parse_resource(resource(stream=HOURLY).to_dict()).spec.stream == resource(stream=HOURLY).spec.stream
