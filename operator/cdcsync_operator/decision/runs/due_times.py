"""When a stream with a schedule runs, and whether its times are kept.

Theory of operation. A run that began after a time of the schedule, and has reached the end that the
binlog had when it began, has caught up that time and all before it. So one time is enough to know:
`status.schedule.nextTime`, the first that is not caught up. While it lies ahead it follows the
schedule as that is now; once it has come it stays until a run has caught it up, however many come
meanwhile, so times that were missed are caught up by one run. A time is missed when the next one
comes before it is caught up. Pure.
"""

from __future__ import annotations

from cdcsync_core.runs.run import LOG_END, TablePhase
from cdcsync_core.runs.status import RunRef, ScheduleStatus
from cdcsync_core.timestamps import unix_time, utc
from cdcsync_operator.decision.observed import ObservedRun
from cdcsync_operator.decision.situation import Situation


def with_next_time(s: Situation) -> Situation:
    """Sets the time of the schedule as the spec has it now."""
    schedule, recorded = s.spec.stream.schedule, s.status.schedule
    if recorded is None:
        return s
    if schedule is None:
        return s.with_status(schedule=None)
    if _next(recorded) <= s.now:
        return s
    return s.with_status(schedule=recorded.model_copy(update={"next_time": utc(schedule.next_after(s.now))}))


def is_due(s: Situation) -> bool:
    """Whether a stream is to run: one without a schedule always; else at first, at a time of the
    schedule, where a table was read and is not consistent yet, and where the binlog was purged,
    because a run finds what is lost."""
    recorded = s.status.schedule
    if s.spec.stream.schedule is None or recorded is None or _next(recorded) <= s.now or _kept_until(s) == 0:
        return True
    streamable = {name for name, _ in s.needs.streamable}
    return any(t.phase is TablePhase.CATCHING_UP and t.name in streamable for t in s.assigned)


def is_resting(s: Situation) -> bool:
    """Between two times: nothing is to be streamed."""
    return s.spec.stream.schedule is not None and s.stream is None and s.may_stream and not is_due(s)


def missed(s: Situation) -> str:
    """In words; empty where no time is missed."""
    schedule, recorded = s.spec.stream.schedule, s.status.schedule
    if schedule is None or recorded is None or _next(recorded) > s.now:
        return ""
    following = schedule.next_after(_next(recorded))
    if following > s.now:
        return ""
    return f"the time {recorded.next_time} was not caught up before the next one, {utc(following)}"


def needed_file(s: Situation) -> str:
    """The file of the binlog at which a stream with a schedule goes on; empty where none does."""
    position = s.status.position
    if s.status.schedule is None or position is None:
        return ""
    return position.file or (position.anchor.file if position.anchor else "")


def will_be_lost(s: Situation) -> str:
    """Why the position may be purged before the next time; empty where that is not foreseen."""
    recorded, until = s.status.schedule, _kept_until(s)
    if recorded is None or until is None or until > _next(recorded):
        return ""
    return (
        f"found {needed_file(s)}, from which the stream goes on, purged from {utc(until)} on;"
        f" needed it at the next time, {recorded.next_time};"
        " remedy: raise binlog_expire_logs_seconds, or set an earlier time in spec.stream.schedule.cron"
    )


def _kept_until(s: Situation) -> float | None:
    """Until when the source keeps the binlog, by the last preflight, where that was about the file
    that is needed now."""
    if s.preflight is None:
        return None
    file, until = s.preflight.retained
    return until if file and file == needed_file(s) else None


def catches_up(run: ObservedRun) -> bool:
    """Whether it ends by itself at the end that the binlog had when it began."""
    return run.stop_at == LOG_END


def with_caught_up(s: Situation, ref: RunRef) -> Situation:
    """After the run `ref` has caught up."""
    schedule, began = s.spec.stream.schedule, unix_time(ref.started_at)
    if schedule is None or began is None:
        return s
    upcoming = utc(schedule.next_after(began))
    return s.with_status(
        schedule=ScheduleStatus(next_time=upcoming, last_start=ref.started_at, caught_up_at=utc(s.now))
    )


def _next(recorded: ScheduleStatus) -> float:
    return unix_time(recorded.next_time) or 0.0
