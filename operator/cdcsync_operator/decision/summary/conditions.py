"""The summary of a decision: phase, conditions, lag.

Why it is right: `Ready` is True only while data flows and nothing fails, and what flows is what the
stream reported lately, not what a process's state promises; `Stalled` is True when only the user
can help; `Reconciling` is True while there is something left to wait for and nothing is stalled
(kstatus). Every condition is set in every reconcile, so none is ever left behind. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.errors import Reason, fail, message_parts
from cdcsync_core.quoting import quoted, visible
from cdcsync_core.remedies import resnapshot
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase, Status, effective_lag, with_condition
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import CONSISTENT, SinkWriteStatus, TableStatus
from cdcsync_core.runs.verification_status import VerifiedStatus
from cdcsync_core.timestamps import utc
from cdcsync_operator.decision.data_flow import STARTING, Doubt, flow_problem, sink_doubt, source_doubt
from cdcsync_operator.decision.needs import all_consistent, is_read
from cdcsync_operator.decision.observed import PreflightResult
from cdcsync_operator.decision.runs.due_times import missed, will_be_lost
from cdcsync_operator.decision.runs.rollout import rolling_out
from cdcsync_operator.decision.runs.verification import differing_keys
from cdcsync_operator.decision.situation import Situation
from cdcsync_operator.decision.summary.phase import settle_phases

_SHOWN_FAILURES = 5
#: of a position
_SHOWN_CHARACTERS = 120
#: why a snapshot of which nothing is left to be read is not complete
TABLES_FAILED = "TablesFailed"
#: the resource was deleted, and a finalizer holds it
DELETING = "Deleting"
#: a change of the spec has not reached all runs yet
ROLLING_OUT = "RollingOut"
#: a time of the schedule is not caught up, and the next one has come
SCHEDULE_MISSED = "ScheduleMissed"
#: the source may purge the stream's position before the next time of the schedule
POSITION_WILL_BE_LOST = "PositionWillBeLost"
#: a time of the schedule has come and is being caught up
CATCHING_UP = "CatchingUp"
#: tables began where spec.start says, without the rows of before
WITHOUT_SNAPSHOT = "WithoutSnapshot"
#: a verification found tables that are not as the source has them
DIFFERS = "Differs"
#: tables are resnapshotted without the user's request
RESNAPSHOTTING = "Resnapshotting"


@dataclass(frozen=True)
class Health:
    """The conditions' common ground: a reason and a message for the state, and what they mean for
    kstatus."""

    ready: bool
    stalled: bool
    settled: bool
    reason: str
    message: str


def summarise(s: Situation) -> Status:
    """The status of a decision, whole."""
    before = s.status.phase
    s = settle_phases(s)
    reported_at = s.stream.reported_at if s.stream else None
    s = s.with_status(lag_seconds=effective_lag(s.status, reported_at, s.spec.stream.interval, s.now))
    status = _with_health(s.status, _health(s, before), _hindrance(s), s.now)
    for kind, value, reason, message in (_source_ready(s), _sink_ready(s), _snapshot_complete(s), _consistent(s)):
        status = with_condition(status, kind, value, reason, message, s.now)
    return status


# ---- Ready, Reconciling, Stalled


def _stalled(reason: str, message: str) -> Health:
    return Health(ready=False, stalled=True, settled=False, reason=reason, message=message)


def _reconciling(reason: str, message: str) -> Health:
    return Health(ready=False, stalled=False, settled=False, reason=reason, message=message)


def _health(s: Situation, before: Phase) -> Health:
    phase, failed = s.status.phase, [t for t in s.assigned if t.failed]
    if s.spec.state == "paused" and s.resource.metadata.deletion_timestamp:
        return Health(
            False, False, not s.live, DELETING, "the resource is deleted; it is there while a finalizer holds it"
        )
    if s.observed.refusal:
        return _stalled(Reason.SPEC_INVALID.value, s.observed.refusal)
    if s.permanent_failure:
        return _stalled(*s.permanent_failure)
    if _awaits_first_preflight(s, before):
        ready, stalled = s.status.condition("Ready"), s.status.condition("Stalled")
        return _stalled(ready.reason, stalled.message)
    stopped = [t for t in failed if not t.is_busy]
    if stopped:
        return _stalled(stopped[0].reason, _failures([*stopped, *(t for t in failed if t.is_busy)]))
    if failed and not s.observed.closing:
        return _reconciling(failed[0].reason, _failures(failed))
    if phase is Phase.FAILED:
        stalled = s.status.condition("Stalled")
        return _stalled(stalled.reason, stalled.message)
    if s.observed.missing_secrets and not s.live:
        return _reconciling(Reason.SPEC_INVALID.value, "; ".join(s.observed.missing_secrets))
    if phase is Phase.PAUSED:
        return Health(False, False, True, "Paused", "spec.state is paused; nothing runs, everything is kept")
    if phase is Phase.COMPLETED:
        return Health(True, False, True, "Completed", "the snapshot is complete and consistent; nothing is left to do")
    return _health_of_work(s)


def _awaits_first_preflight(s: Situation, before: Phase) -> bool:
    """A new controller has not checked yet what the one before it found."""
    unready = any(s.status.condition(kind).status == "False" for kind in ("SourceReady", "SinkReady"))
    idle = s.observed.preflight is None and not s.live and not s.changed
    return idle and unready and before is Phase.PENDING and s.status.condition("Stalled").status == "True"


def _health_of_work(s: Situation) -> Health:
    if s.observed.closing:
        return _reconciling("Stopped", "the controller was asked to stop")
    restarts = s.status.restarts
    replaced = rolling_out(s)
    if replaced:
        return _reconciling(ROLLING_OUT, replaced)
    if s.transient_failure and not s.stream:
        return _reconciling(*s.transient_failure)
    if restarts.reason and not s.stream and not _waiting(s)[0]:
        return _reconciling(restarts.reason, restarts.message or f"failure {restarts.consecutive} in a row")
    if s.status.schedule is not None and s.status.phase in (Phase.STREAMING, Phase.WAITING):
        return _health_of_schedule(s)
    if s.stream is None or s.status.phase is not Phase.STREAMING:
        reason, words = _waiting(s)
        message = "; ".join(filter(None, (_work(s), words)))
        return _reconciling(reason or _reason_of_phase(s), message)
    problem = flow_problem(s.spec, s.stream, s.now) or _outage(s)
    if problem:
        return _reconciling(problem[0], f"{problem[1]}; {_work(s)}")
    return Health(True, False, all_consistent(s.status), "Streaming", _work(s))


def _outage(s: Situation) -> tuple[str, str] | None:
    """Reason and message of a preflight that found source or sink gone while the stream doubts
    it."""
    preflight = s.preflight
    if preflight is None:
        return None
    errors = preflight.errors if source_doubt(s.spec, s.stream) else ()
    errors += preflight.sink_errors if sink_doubt(s.spec, s.stream) else ()
    return (errors[0].reason.value, errors[0].message) if errors else None


def _reason_of_phase(s: Situation) -> str:
    """No run streams: it is about to."""
    return STARTING if s.status.phase is Phase.STREAMING else s.status.phase.value


def _health_of_schedule(s: Situation) -> Health:
    """The condition of a stream that has caught up once: ready while no time is missed and what
    runs is in order."""
    reason, words = _waiting(s)
    if reason:
        return _reconciling(reason, f"{_work(s)}; {words}")
    late = missed(s)
    if late:
        return _reconciling(SCHEDULE_MISSED, f"{late}; {_work(s)}")
    if s.status.phase is Phase.WAITING:
        ends = will_be_lost(s)
        if ends:
            return _stalled(POSITION_WILL_BE_LOST, ends)
        return Health(True, False, all_consistent(s.status), Phase.WAITING.value, f"{_work(s)}; {_times(s)}")
    problem = flow_problem(s.spec, s.stream, s.now) if s.stream else None
    if problem and problem[0] != STARTING:
        return _reconciling(problem[0], f"{problem[1]}; {_work(s)}")
    return Health(True, False, False, CATCHING_UP, f"{_work(s)}; {_times(s)}")


def _times(s: Situation) -> str:
    schedule = s.status.schedule
    assert schedule is not None
    return f"last caught up at {schedule.caught_up_at}, next time {schedule.next_time}"


def _waiting(s: Situation) -> tuple[str, str]:
    """Reason and words of a run whose pods no node takes."""
    return next((run.waiting for run in s.copying if run.waiting[0]), ("", ""))


def _setback(s: Situation) -> tuple[str, str]:
    """Reason and words of the failures in a row that keep tables from being read or caught up."""
    restarts = s.status.restarts
    if not restarts.consecutive or not (s.needs.unread or s.needs.behind):
        return "", ""
    again = f", next attempt at {restarts.next_attempt_at}" if restarts.next_attempt_at else ""
    return restarts.reason, f"{restarts.message or restarts.reason}; failure {restarts.consecutive} in a row{again}"


def _hindrance(s: Situation) -> tuple[str, str]:
    """What holds back a part of the sync, beside a stream that may be in order."""
    waiting = _waiting(s)
    return waiting if waiting[0] or s.stream is None else _setback(s)


def _work(s: Situation) -> str:
    counts = s.status.tables
    differ = sum(
        (t.written is not None or t.without_snapshot or t.differs) and t.phase in CONSISTENT for t in s.assigned
    )
    parts = [f"{counts.streaming - differ} of {counts.total} tables consistent{_as_of(s.status)}"]
    if s.status.phase in (Phase.PLANNING, Phase.SNAPSHOTTING):
        progress = s.status.snapshot
        parts = [f"{progress.splits_finished} of {progress.splits_total} splits read"]
        parts += [progress.throttled] if progress.throttled else []
    if counts.unassigned:
        parts.append(_unassigned(s.status))
    return "; ".join(parts)


def _as_of(status: Status) -> str:
    """What the reader has passed is known; of what came after that nothing is claimed."""
    stamp = status.position.seconds if status.position else None
    return "" if stamp is None else f" as of {utc(stamp)}"


def _unassigned(status: Status) -> str:
    """Each with its reason; a table without one waits for the spec, or for the first snapshot."""
    tables = [t for t in status.table_status if t.phase is TablePhase.UNASSIGNED]
    shown = ", ".join(
        f"{visible(t.name)} ({t.reason})" if t.reason else visible(t.name) for t in tables[:_SHOWN_FAILURES]
    )
    more = f" and {len(tables) - _SHOWN_FAILURES} more" if len(tables) > _SHOWN_FAILURES else ""
    return f"{len(tables)} tables match and are not captured: {shown}{more}"


def _failures(failed: list[TableStatus]) -> str:
    shown = [t.message or f"{visible(t.name)}: {t.reason}" for t in failed[:_SHOWN_FAILURES]]
    more = len(failed) - len(shown)
    return "\n".join(shown) + (f"\nand {more} more tables" if more > 0 else "")


def _with_health(status: Status, health: Health, hindrance: tuple[str, str], now: float) -> Status:
    status = with_condition(status, "Ready", health.ready, health.reason, health.message, now)
    reconciling = not health.stalled and not health.settled
    why = hindrance if reconciling and hindrance[0] else (health.reason, "")
    status = with_condition(status, "Reconciling", reconciling, *why, now)
    stalled = health.message if health.stalled else ""
    return with_condition(status, "Stalled", health.stalled, health.reason, stalled, now)


# ---- SourceReady, SinkReady, SnapshotComplete, Consistent

ConditionValue = tuple[str, bool | None, str, str]


def _source_ready(s: Situation) -> ConditionValue:
    preflight, before = s.preflight, s.status.condition("SourceReady")
    if s.observed.missing_secrets:
        return ("SourceReady", False, Reason.SPEC_INVALID.value, "; ".join(s.observed.missing_secrets))
    if preflight is None:
        was_ready = {"True": True, "False": False}.get(before.status)
        return ("SourceReady", was_ready, before.reason, before.message)
    if preflight.errors:
        message = "\n".join(e.message for e in preflight.errors)
        return ("SourceReady", False, preflight.errors[0].reason.value, message)
    if doubt := _doubted(source_doubt(s.spec, s.stream), preflight):
        return ("SourceReady", None, doubt.reason, doubt.message)
    return ("SourceReady", True, "PreflightPassed", "\n".join(preflight.warnings[:_SHOWN_FAILURES]))


def _doubted(doubt: Doubt | None, preflight: PreflightResult) -> Doubt | None:
    """A doubt that no preflight has answered."""
    return doubt if doubt and preflight.at < doubt.since else None


def _sink_ready(s: Situation) -> ConditionValue:
    """Unknown where the operator has not the driver's identity, so that nothing is claimed that was
    not tried."""
    preflight, before = s.preflight, s.status.condition("SinkReady")
    if preflight is None:
        was_ready = {"True": True, "False": False}.get(before.status)
        return ("SinkReady", was_ready, before.reason, before.message)
    if preflight.sink_errors:
        message = "\n".join(e.message for e in preflight.sink_errors)
        return ("SinkReady", False, preflight.sink_errors[0].reason.value, message)
    if preflight.sink_unchecked:
        return ("SinkReady", None, "CheckedByDriver", f"not checked here: {preflight.sink_unchecked}")
    if doubt := _doubted(sink_doubt(s.spec, s.stream), preflight):
        return ("SinkReady", None, doubt.reason, doubt.message)
    return ("SinkReady", True, "PreflightPassed", "")


def _snapshot_complete(s: Situation) -> ConditionValue:
    """A table that failed before it was read to the end is not read, though no run will read it."""
    left = len(s.needs.unread)
    if not s.assigned:
        return ("SnapshotComplete", False, "Pending", "no table has been resolved yet")
    if left:
        reason, words = _setback(s)
        counted = f"{left} tables are not read to the end"
        return ("SnapshotComplete", False, reason or "Snapshotting", "; ".join(filter(None, (counted, words))))
    unread = [t.name for t in s.assigned if not is_read(s.spec, t)]
    if unread:
        named = ", ".join(map(visible, unread[:_SHOWN_FAILURES]))
        return ("SnapshotComplete", False, TABLES_FAILED, f"{len(unread)} tables failed before they were read: {named}")
    return ("SnapshotComplete", True, "Complete", "")


def _resnapshotted(tables: list[TableStatus]) -> str:
    shown = [
        f"{visible(t.name)} is resnapshotted, its previous content is served: {_why(t)}"
        for t in tables[:_SHOWN_FAILURES]
    ]
    more = len(tables) - len(shown)
    return "\n".join(shown) + (f"\nand {more} more tables" if more > 0 else "")


def _why(table: TableStatus) -> str:
    return message_parts(table.resnapshot.message)["found"] if table.resnapshot else ""


def _differing(tables: list[TableStatus]) -> str:
    shown = [_difference(t.name, t.verified) for t in tables[:_SHOWN_FAILURES] if t.verified]
    more = len(tables) - len(shown)
    return "\n".join(shown) + (f"\nand {more} more tables" if more > 0 else "")


def _difference(name: str, verified: VerifiedStatus) -> str:
    """Counts are those of the verification that found the difference; a later one that has proven
    nothing has none."""
    counts = f": {differing_keys(verified)}" if verified.differences else ""
    return (
        f"{visible(name)}: not equal to the source by the verification of {verified.differs_since}{counts};"
        " needed: equal rows, or changes in the binlog that explain the difference;"
        f" remedy: {resnapshot(name)}; `cdcsync verify -f` with this manifest shows the keys"
    )


def _sink_written(tables: list[TableStatus]) -> str:
    shown = [_foreign_write(t.name, t.written) for t in tables[:_SHOWN_FAILURES] if t.written]
    more = len(tables) - len(shown)
    return "\n".join(shown) + (f"\nand {more} more tables" if more > 0 else "")


def _without_snapshot(tables: list[TableStatus]) -> str:
    shown = [f"{visible(t.name)} from {_place(t.low)}" for t in tables[:_SHOWN_FAILURES]]
    more = f" and {len(tables) - _SHOWN_FAILURES} more" if len(tables) > _SHOWN_FAILURES else ""
    return f"begun by spec.start, without the rows of before; a resnapshot reads them: {', '.join(shown)}{more}"


def _place(position: StatusPosition | None) -> str:
    """For people; a GTID set may be long."""
    if position is None:
        return "a place that is not known"
    text = position.place or f"the GTIDs after {position.gtid_set}"
    return visible(text) if len(text) <= _SHOWN_CHARACTERS else f"{visible(text[:_SHOWN_CHARACTERS])}..."


def _foreign_write(name: str, write: SinkWriteStatus) -> str:
    program = f"the program {quoted(write.program)}" if write.program else "a program that does not give its name"
    when = f" at {write.at}" if write.at else ""
    text = f"{program} changed rows of the target by its version {write.version}{when}"
    text += f" (operation {quoted(write.operation)})" if write.operation else ""
    return fail(
        Reason.SINK_WRITTEN,
        text,
        needed="a target that only this sync writes",
        remedy="RESTORE the target to a version before that change: the binlog is applied again from there; "
        f"or {resnapshot(name)}; a replica may be verified instead, and counts again if it is equal",
        table=name,
    ).message


def _consistent(s: Situation) -> ConditionValue:
    tables = s.assigned
    if not tables:
        return ("Consistent", False, "Pending", "no table has been resolved yet")
    preflight = s.observed.preflight
    gaps = sorted(t.name for t in preflight.tables if t.unlogged_cascades) if preflight else []
    if gaps:
        named = ", ".join(map(visible, gaps[:_SHOWN_FAILURES]))
        return (
            "Consistent",
            False,
            Reason.CASCADES_NOT_LOGGED.value,
            f"accepted by the spec, never consistent: {named}",
        )
    failed = [t for t in tables if t.failed]
    if failed:
        named = ", ".join(f"{visible(t.name)} ({t.reason})" for t in failed[:_SHOWN_FAILURES])
        more = f" and {len(failed) - _SHOWN_FAILURES} more" if len(failed) > _SHOWN_FAILURES else ""
        return (
            "Consistent",
            False,
            failed[0].reason,
            f"{len(failed)} of {len(tables)} tables have stopped: {named}{more}",
        )
    behind = [t.name for t in tables if t.phase not in CONSISTENT]
    again = [t for t in tables if t.is_resnapshotted]
    if again:
        return ("Consistent", False, RESNAPSHOTTING, _resnapshotted(again))
    differing = [t for t in tables if t.differs]
    if differing:
        return ("Consistent", False, DIFFERS, _differing(differing))
    written = [t for t in tables if t.written is not None]
    if written:
        return ("Consistent", False, Reason.SINK_WRITTEN.value, _sink_written(written))
    started = [t for t in tables if t.without_snapshot]
    if started:
        return ("Consistent", False, WITHOUT_SNAPSHOT, _without_snapshot(started))
    if behind:
        named = ", ".join(map(visible, behind[:_SHOWN_FAILURES]))
        return ("Consistent", False, "CatchingUp", f"{len(behind)} of {len(tables)} tables are not consistent: {named}")
    as_of = _as_of(s.status) or " as of their positions"
    return ("Consistent", True, "Consistent", f"{len(tables)} of {len(tables)} tables equal the source{as_of}")
