"""What the end of a run means: its work is done, it is tried again after a pause, or what it
concerned has stopped.

Why it is right: a run that the status names, that left no trace and that has never reported was
never made: the controller that named it died. It is started again. A permanent failure stops what
it concerns: the tables that the run had not finished, or the sync where nothing else is streamed. A
transient one waits (see restart.py). Pure.
"""

from __future__ import annotations

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import ExitCode, RunKind, TablePhase
from cdcsync_core.runs.status import RunRef
from cdcsync_core.runs.status_part import Restarts
from cdcsync_core.timestamps import unix_time
from cdcsync_operator.decision import restart
from cdcsync_operator.decision.observed import Exit, ObservedRun
from cdcsync_operator.decision.runs.due_times import catches_up, with_caught_up
from cdcsync_operator.decision.runs.kinds import is_complete, is_superseded, unfinished
from cdcsync_operator.decision.runs.verification import record_verification
from cdcsync_operator.decision.situation import Situation


def drop_superseded_failures(s: Situation) -> Situation:
    """What a run reports of content that is to be replaced keeps no table from its
    resnapshot."""
    if s.changed:
        return s
    runs = {run.id: run for kind in RunKind if (run := s.named(kind))}
    failed = [t for t in s.assigned if t.failed and t.run in runs]
    old = [t for t in failed if is_superseded(s, runs[t.run], t)]
    return s.with_tables([t.model_copy(update=_PENDING) for t in old])


_PENDING = {"phase": TablePhase.PENDING, "reason": "", "message": ""}


def record_ended_runs(s: Situation) -> Situation:
    for kind in RunKind:
        s = _record_ended_run(s, kind) if kind.copies else record_verification(s)
    return s


def _record_ended_run(s: Situation, kind: RunKind) -> Situation:
    ref, run = s.status.runs.get(kind), s.named(kind)
    if ref is None or (run is not None and run.live) or _awaits_handover(s, run):
        return s
    lasted = s.now - (unix_time(ref.started_at) or s.now)
    cleared = s.with_status(runs=s.status.runs.put(kind, None))
    if run is not None and run.exit is not None:
        after = _record_exit(cleared, run, run.exit, lasted)
        return _record_catch_up(after, ref) if _has_caught_up(s, run) else after
    if ref.report:
        message = "no trace of a driver that was there"
        return cleared.failing_transiently(Reason.DRIVER_LOST.value, message, lasted)
    return cleared.with_(drained=s.drained | {kind})


def _has_caught_up(s: Situation, run: ObservedRun) -> bool:
    done = run.exit is not None and run.exit.code == ExitCode.DONE and not run.stop_asked
    return done and catches_up(run) and is_complete(s, run)


def _record_catch_up(s: Situation, ref: RunRef) -> Situation:
    """Failures before it count no more, save those of tables that are still to be read."""
    after = with_caught_up(s, ref)
    return after if s.needs.unread else after.with_status(restarts=Restarts())


def _awaits_handover(s: Situation, run: ObservedRun | None) -> bool:
    """A catch-up that ended well stays named until the stream has taken its tables over."""
    if run is None or run.kind is not RunKind.CATCH_UP or run.stop_asked:
        return False
    if run.exit is None or run.exit.code != ExitCode.DONE or s.stream is None:
        return False
    return any(name in run.names for name, _ in s.needs.behind)


def _record_exit(s: Situation, run: ObservedRun, outcome: Exit, lasted: float) -> Situation:
    """The exit of a run that was asked to drain does not count: it had an older spec, and its
    successor finds out."""
    if run.stop_asked:
        return s.with_(drained=s.drained | {run.kind})
    if outcome.code in (ExitCode.USER_MUST_ACT, ExitCode.USAGE) and not s.may_regain(outcome.reason):
        return _record_permanent_failure(s, run, outcome, lasted)
    if (outcome.code == ExitCode.DONE or run.kind is RunKind.SNAPSHOT) and is_complete(s, run):
        return s  # a snapshot that has read all may be lost while it ends
    if outcome.reason == Reason.TABLE_BUSY.value and not unfinished(s, run):
        return s  # its tables are tried again by themselves, and delay no other run
    reason = outcome.reason or Reason.DRIVER_LOST.value
    unexplained = f"the {run.kind.value} driver ended with code {int(outcome.code)} before its work was done"
    return s.failing_transiently(reason, outcome.message or unexplained, lasted)


def _record_permanent_failure(s: Situation, run: ObservedRun, outcome: Exit, lasted: float) -> Situation:
    """Stops the tables that the run had not finished; with the stream, or where nothing else is
    streamed, the sync."""
    stopped = unfinished(s, run)
    if not stopped and any(t.name in run.names for t in s.status.table_status):
        return s
    if outcome.reason == Reason.POSITION_LOST.value and s.spec.on_position_lost == "resnapshot":
        # the next run finds for each table whether its position is lost
        return s.failing_transiently(outcome.reason, outcome.message, lasted)
    others_stream = s.stream is not None or s.streamed_without(frozenset(t.name for t in stopped))
    if run.kind is RunKind.STREAM or not others_stream:
        return s.with_(permanent_failure=(outcome.reason or Reason.INTERNAL_ERROR.value, outcome.message))
    failed = {"phase": TablePhase.FAILED, "reason": outcome.reason, "message": outcome.message, "run": run.id}
    return s.with_tables([t.model_copy(update=failed) for t in stopped])


def reset_backoff(s: Situation) -> Situation:
    """Only when all runs that there should be are there and lasted: one that works does not fix
    another one.

    This is decided after the choice of runs, when one that had waited for its next attempt is named
    again.
    """
    restarts, policy = s.status.restarts, s.spec.auto_restart
    named = sum(s.status.runs.get(kind) is not None for kind in RunKind if kind.copies)
    if s.transient_failure is not None or s.is_waiting or not s.copying or len(s.copying) < named:
        return s
    stable = (
        run.reported_at is not None and restart.is_stable(policy, restarts, s.now - run.started_at) for run in s.copying
    )
    return s.with_status(restarts=Restarts()) if all(stable) else s
