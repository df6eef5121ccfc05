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


def catch_up(world: ControllerHarness) -> None:
    """The live stream reaches its goal and ends."""
    world.flow(*world.tables)
    world.step()
    world.end(STREAM)
    world.step()


def rested(**spec: Any) -> ControllerHarness:
    """After the first catch-up."""
    world = scheduled(**spec)
    world.steps()
    world.read(*world.tables)
    world.end(SNAPSHOT)
    world.steps()
    catch_up(world)
    world.steps()
    return world


def until(world: ControllerHarness, at: float) -> None:
    """A step at that time."""
    world.step(at - world.now)


def next_time(world: ControllerHarness) -> float:
    assert world.status.schedule is not None
    found = unix_time(world.status.schedule.next_time)
    assert found is not None
    return found


# ---- the runs


def test_the_first_catch_up_does_not_wait_for_a_time() -> None:
    """A table is not left between its watermarks (R2)."""
    world = scheduled()
    world.steps()
    assert world.kinds() == {"snapshot"}
    world.read(*world.tables)
    world.end(SNAPSHOT)
    world.steps()
    assert world.kinds() == {"stream"}
    assert world.started()[-1].stop_at == LOG_END
    assert world.status.schedule is None
    catch_up(world)
    assert world.kinds() == set()
    assert world.status.phase is Phase.WAITING
    assert next_time(world) == NOON + HOUR


def test_without_a_schedule_a_stream_has_no_end() -> None:
    world = ControllerHarness()
    world.to_streaming()
    assert world.started()[-1].stop_at == ""
    assert world.status.schedule is None


def test_nothing_runs_between_two_times_and_a_time_starts_one_run() -> None:
    world = rested()
    starts = len(world.started())
    until(world, NOON + HOUR - 1)
    assert (world.kinds(), len(world.started())) == (set(), starts)
    until(world, NOON + HOUR)
    assert world.kinds() == {"stream"}
    began = world.now
    world.steps()
    catch_up(world)
    assert world.kinds() == set()
    assert len(world.started()) == starts + 1
    assert next_time(world) == NOON + 2 * HOUR
    assert world.status.schedule is not None
    assert world.status.schedule.last_start == utc(began)


def test_times_that_were_missed_are_caught_up_once() -> None:
    """The operator was away for a day."""
    world = rested()
    starts = len(world.started())
    until(world, NOON + 25.5 * HOUR)
    assert world.kinds() == {"stream"}
    catch_up(world)
    world.steps()
    assert len(world.started()) == starts + 1
    assert next_time(world) == NOON + 26 * HOUR


def test_a_time_that_comes_during_a_run_is_caught_up_by_the_next_one() -> None:
    """What was committed between the run's beginning and that time is not the run's."""
    world = rested()
    until(world, NOON + HOUR)
    world.flow(*world.tables)
    until(world, NOON + 2 * HOUR + 60)
    world.flow(*world.tables)
    first = world.live(STREAM)
    world.end(STREAM)
    world.steps()
    assert world.live(STREAM).id != first.id


def test_a_run_that_fails_is_tried_again_and_counts_from_its_last_beginning() -> None:
    world = rested()
    until(world, NOON + HOUR)
    world.end(STREAM, 1, "OutOfMemory", "killed")
    world.step()
    assert world.condition("Ready") == ("False", "OutOfMemory")
    assert next_time(world) == NOON + HOUR
    until(world, NOON + HOUR + 60)
    assert world.kinds() == {"stream"}
    began = world.now
    catch_up(world)
    assert world.status.schedule is not None
    assert world.status.schedule.last_start == utc(began)
    assert world.status.restarts.consecutive == 0
    assert world.condition("Ready") == ("True", "Waiting")


def test_a_run_that_was_drained_has_not_caught_up() -> None:
    world = rested()
    until(world, NOON + HOUR)
    world.change(stream=HOURLY, restartNonce=1)
    world.steps()
    world.end(STREAM)
    world.steps()
    assert next_time(world) == NOON + HOUR
    assert world.kinds() == {"stream"}


def test_a_table_that_is_resnapshotted_does_not_wait_for_a_time() -> None:
    world = rested()
    starts = len(world.started())
    world.change(stream=HOURLY, resnapshot=[{"table": "shop.b", "nonce": 1}])
    world.steps()
    assert world.kinds() == {"snapshot"}
    world.read("shop.b", nonce=1)
    world.end(SNAPSHOT)
    world.steps()
    assert world.kinds() == {"stream"}
    catch_up(world)
    world.steps()
    assert world.kinds() == set()
    assert len(world.started()) == starts + 2
    assert next_time(world) == NOON + HOUR


def test_paused_wins_and_a_time_in_the_pause_is_caught_up_after_it() -> None:
    world = rested()
    world.change(stream=HOURLY, state="paused")
    until(world, NOON + 3.5 * HOUR)
    assert (world.status.phase, world.kinds()) == (Phase.PAUSED, set())
    world.change(stream=HOURLY)
    world.steps()
    assert world.kinds() == {"stream"}


def test_a_lost_status_is_caught_up_at_once() -> None:
    world = rested()
    world.status = type(world.status)()
    world.runs.clear()
    world.steps()
    world.read(*world.tables)
    world.end(SNAPSHOT)
    world.steps()
    assert world.kinds() == {"stream"}


# ---- changes of the schedule


def test_another_cron_stops_nothing_and_counts_from_now() -> None:
    world = rested()
    world.change(stream={"schedule": {"cron": "30 * * * *"}})
    world.steps()
    assert next_time(world) == NOON + HOUR / 2
    until(world, NOON + HOUR / 2)
    run = world.live(STREAM)
    world.change(stream={"schedule": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"}})
    world.steps()
    assert world.live(STREAM) == run
    assert world.condition("Ready")[1] != "ScheduleMissed"
    catch_up(world)
    assert world.status.schedule is not None
    assert world.status.schedule.next_time == "2026-06-02T00:00:00Z"


def test_a_schedule_ends_a_stream_that_runs_all_the_time_and_the_other_way_round() -> None:
    world = ControllerHarness(now=NOON + 600)
    world.to_streaming()
    world.change(stream=HOURLY)
    world.steps()
    assert world.condition("Ready") == ("False", "RollingOut")
    assert "stream.schedule" in world.status.condition("Ready").message
    world.end(STREAM)
    world.steps()
    assert world.started()[-1].stop_at == LOG_END
    catch_up(world)
    world.steps()
    assert (world.kinds(), world.status.phase) == (set(), Phase.WAITING)
    world.change()
    world.steps()
    assert world.started()[-1].stop_at == ""
    assert world.status.schedule is None


# ---- what the status says


def test_between_times_the_sync_is_ready_and_settled() -> None:
    world = rested()
    assert world.condition("Ready") == ("True", "Waiting")
    assert world.condition("Reconciling") == ("False", "Waiting")
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Consistent") == ("True", "Consistent")
    assert "next time 2026-06-01T13:00:00Z" in world.status.condition("Ready").message
    assert world.status.lag_seconds == 0


def test_at_a_time_it_stays_ready_and_reconciles() -> None:
    """Nothing is late yet, so nothing that waits for Ready is told so."""
    world = rested()
    until(world, NOON + HOUR)
    for _ in range(3):
        assert world.condition("Ready") == ("True", "CatchingUp")
        assert world.condition("Reconciling") == ("True", "CatchingUp")
        world.step()
    assert world.status.lag_seconds == 3
    world.flow(*world.tables)
    world.step()
    assert world.condition("Ready") == ("True", "CatchingUp")


def test_a_stream_that_goes_silent_at_its_time_is_not_ready() -> None:
    world = rested()
    until(world, NOON + HOUR)
    world.flow(*world.tables)
    world.step(120)
    assert world.condition("Ready") == ("False", "Silent")


@pytest.mark.parametrize("late", [0.0, 5 * HOUR])
def test_a_time_is_missed_when_the_next_one_comes(late: float) -> None:
    world = rested()
    until(world, NOON + HOUR)
    world.flow(*world.tables)
    until(world, NOON + 2 * HOUR - 1)
    world.flow(*world.tables)
    world.step(0)
    assert world.condition("Ready")[0] == "True"
    until(world, NOON + 2 * HOUR + late)
    assert world.condition("Ready") == ("False", "ScheduleMissed")
    assert world.condition("Reconciling")[0] == "True"
    assert "2026-06-01T13:00:00Z was not caught up before the next one" in world.status.condition("Ready").message
    assert world.status.lag_seconds == HOUR + late
    catch_up(world)
    world.steps()
    catch_up(world)
    assert world.condition("Ready") == ("True", "Waiting")


def test_a_source_that_is_away_between_times_is_reported_and_fails_nothing() -> None:
    world = rested()
    world.errors = (UNREACHABLE,)
    for _ in range(5):
        world.step(301)
    assert world.condition("SourceReady") == ("False", "SourceUnreachable")
    assert world.condition("Ready") == ("True", "Waiting")
    assert world.status.restarts.consecutive == 0
    until(world, NOON + HOUR)
    world.step()
    assert world.condition("Ready") == ("False", "SourceUnreachable")
    assert world.kinds() == set()
    world.errors = ()
    world.step(60)
    world.step(60)
    assert world.kinds() == {"stream"}


def test_a_table_that_stops_keeps_no_other_from_its_times() -> None:
    world = rested(schemaChange={"behavior": "fail"})
    until(world, NOON + HOUR)
    world.flow("shop.a")
    failed = {"name": "shop.b", "phase": "Failed", "reason": "SchemaChangeRefused", "message": "shop.b: ALTER"}
    world.say(STREAM, tables=[failed])
    world.end(STREAM)
    world.steps()
    assert world.condition("Stalled") == ("True", "SchemaChangeRefused")
    assert next_time(world) == NOON + 2 * HOUR
    until(world, NOON + 2 * HOUR)
    assert world.live(STREAM).names == {"shop.a"}


# ---- the binlog between two times


def test_a_position_that_will_be_purged_before_the_next_time_is_reported() -> None:
    world = rested()
    world.kept_until = NOON + HOUR + 1
    world.step(301)
    assert world.condition("Ready") == ("True", "Waiting"), "it is kept until the next time"
    world.kept_until = NOON + HOUR - 60
    world.step(301)
    world.step()
    assert world.condition("Ready") == ("False", "PositionWillBeLost")
    assert world.condition("Stalled") == ("True", "PositionWillBeLost")
    assert "found binlog.000001" in world.status.condition("Stalled").message
    assert "remedy: raise binlog_expire_logs_seconds" in world.status.condition("Stalled").message
    assert world.kinds() == set()
    world.change(stream={"schedule": {"cron": "50 * * * *"}})
    world.steps()
    assert world.condition("Ready") == ("True", "Waiting")
    assert world.condition("Stalled")[0] == "False"


def test_a_file_that_the_stream_has_left_says_nothing() -> None:
    world = rested()
    world.kept_until = NOON
    world.step(301)
    world.step()
    assert world.condition("Ready")[1] == "PositionWillBeLost"
    until(world, NOON + HOUR)
    world.steps()
    left = {"file": "binlog.000002", "offset": 4, "gtidSet": ""}
    world.say(STREAM, position=left, tables=[])
    world.end(STREAM)
    world.kept_until = None
    world.steps()
    assert world.condition("Ready") == ("True", "Waiting")


@pytest.mark.parametrize("policy", ["fail", "resnapshot"])
def test_a_binlog_that_is_gone_already_does_not_wait_for_a_time(policy: str) -> None:
    """A run finds what is lost, and the policy decides."""
    world = rested(onPositionLost=policy)
    world.kept_until = 0.0
    world.step(301)
    world.step()
    assert world.kinds() == {"stream"}
    lost = [{"name": n, "phase": "Failed", "reason": "PositionLost", "message": f"{n}: purged"} for n in world.tables]
    world.say(STREAM, tables=lost)
    world.end(STREAM, 3, "PositionLost", "purged")
    world.steps()
    world.step(10)  # the pause after a failure
    world.steps()
    if policy == "fail":
        assert (world.status.phase, world.kinds()) == (Phase.FAILED, set())
        assert world.condition("Stalled") == ("True", "PositionLost")
    else:
        assert world.kinds() == {"snapshot"}


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
