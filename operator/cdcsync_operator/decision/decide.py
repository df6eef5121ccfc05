"""What to do next: a function of the resource, what is observed, and the time.

What happened since (runs that ended, a preflight) is recorded; from that follows what each table
needs (`needs`), from the needs the runs that should exist (`schedule`), and the actions are the
difference between those and the runs that there are.

Why it is right:
- Level-triggered: nothing depends on having seen an earlier event, each decision starts from the
  whole state. After a lost status all tables count as unread, and the snapshot run
  learns from the targets that they are not (rule R4).
- The id of a run is in the returned status, which is written before the run is made: no run exists
  that the status does not name.
- A run that the status does not name is stopped and forgotten; its reports were never merged.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.status import RunRef
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.timestamps import utc
from cdcsync_operator.decision import restart
from cdcsync_operator.decision.observed import (
    Action,
    Decision,
    ForgetRun,
    Observed,
    RunState,
    StartRun,
    StopRun,
)
from cdcsync_operator.decision.runs.due_times import with_next_time
from cdcsync_operator.decision.runs.fingerprint import fingerprint
from cdcsync_operator.decision.runs.kinds import RUNS, WantedRun, executors
from cdcsync_operator.decision.runs.outcomes import drop_superseded_failures, record_ended_runs, reset_backoff
from cdcsync_operator.decision.runs.preflights import apply_preflight, due_preflight
from cdcsync_operator.decision.runs.schedule import Permit, permit, replaced_because, wanted_runs
from cdcsync_operator.decision.runs.verification import show_progress, take_request, without_results
from cdcsync_operator.decision.runs.windows import show_window
from cdcsync_operator.decision.situation import Situation
from cdcsync_operator.decision.summary.conditions import summarise
from cdcsync_operator.decision.tables.resnapshots import decide_resnapshots, refuse_large

_REQUEUE_SECONDS = 10.0


def decide(resource: CdcSync, observed: Observed, now: float) -> Decision:
    """The new status and the actions that follow from it."""
    before = with_next_time(Situation(resource, observed, now, observed.status))
    ended = decide_resnapshots(record_ended_runs(drop_superseded_failures(before)))
    recorded = take_request(refuse_large(apply_preflight(ended)))
    allowed = permit(recorded)
    due = wanted_runs(recorded, allowed)
    named, starts = _name_new_runs(recorded, due)
    actions: list[Action] = [*_clear_unnamed(recorded), *_stop_unwanted(recorded, due, allowed)]
    actions += due_preflight(recorded) if allowed.preflight else ()
    after = show_window(reset_backoff(named))
    return Decision(summarise(show_progress(after)), (*actions, *starts), _requeue_after(after))


# ---- the difference


def _clear_unnamed(s: Situation) -> Iterable[Action]:
    """Runs that the status does not name: an earlier incarnation's, a start that was given up, or
    one whose end is recorded."""
    unnamed = [run for run in s.observed.runs if s.status.runs.kind_of(run.id) is None]
    return [StopRun(run.kind, run.id) if run.live else ForgetRun(run.kind, run.id) for run in unnamed]


def _stop_unwanted(s: Situation, due: Iterable[WantedRun], allowed: Permit) -> Iterable[Action]:
    wanted_ids = {run.id for run in due}
    unwanted = [run for run in s.live if run.unfit or (run.id not in wanted_ids and run.state is RunState.RUNNING)]
    return [StopRun(run.kind, run.id, replaced_because(s, run, allowed)) for run in unwanted]


def _name_new_runs(s: Situation, due: Iterable[WantedRun]) -> tuple[Situation, list[StartRun]]:
    """Names the runs in the status; the actions follow once that is written."""
    starts = []
    for run in due:
        if not run.id:
            s, start = _name(s, run)
            starts.append(start)
    return s, starts


def _name(s: Situation, run: WantedRun) -> tuple[Situation, StartRun]:
    epoch = _next_epoch(s)
    name = f"{s.resource.metadata.name}-{s.observed.token}-{epoch}"
    ref = RunRef(id=name, epoch=epoch, pod=f"{name}-driver", started_at=utc(s.now))
    restarts = s.status.restarts
    if not s.is_waiting:
        restarts = restarts.model_copy(update={"next_attempt_at": None})
    start = StartRun(run.kind, name, epoch, run.tables, fingerprint(s.spec, run.kind), run.stop_at, executors(s, run))
    named = s.with_status(runs=s.status.runs.put(run.kind, ref), restarts=restarts)
    return named.with_tables(_begun_again(named, run)), start


def _next_epoch(s: Situation) -> int:
    """Beyond that of every run that is known, of one, too, that is cleared in this reconcile or
    that a lost status does not name: it may yet write."""
    refs = max(s.observed.status.runs.highest_epoch, s.status.runs.highest_epoch)
    return max([refs, *(run.number for run in s.observed.runs)]) + 1


def _begun_again(s: Situation, run: WantedRun) -> list[TableStatus]:
    """Tables with a position that the run resnapshots. What the stream reports of them does not
    count from now on, so it cannot count as streaming them. Of a run that compares tables those
    that were compared before."""
    rule, names = RUNS[run.kind], {name for name, _ in run.tables}
    if not run.kind.copies:
        return without_results(t for t in s.assigned if t.name in names)
    if not rule.begins:
        return []
    again = [t for t in s.assigned if t.positioned and t.name in names]
    return [t.model_copy(update={"phase": rule.during}) for t in again]


def _requeue_after(s: Situation) -> float:
    left = restart.wait_left(s.status.restarts, s.now)
    return max(0.1, min(_REQUEUE_SECONDS, left or _REQUEUE_SECONDS))
