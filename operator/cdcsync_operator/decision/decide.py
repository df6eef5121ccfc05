"""What to do next: a function of the resource, what is seen, and the time.

Theory of operation. A sync has at most one run of each kind. A *snapshot* run reads the tables that
are not read yet; the *stream* run applies the log to all tables that have a position. The stream
waits for the first snapshot, but tables that were consistent before never wait for others: a table
that is added or read again gets a snapshot run of its own beside the stream, then a *catch-up* run
(a second reader from the table's position to where the stream was), and then the stream is drained
and started again with the table in it (rule R5).

Why it is right:
- Level-triggered: nothing depends on having seen an earlier event, each decision starts from the
  whole state. Lost status means that all tables are read again as far as we know, and the snapshot
  run learns from the targets that they are not (rule R4).
- The id of a run is in the returned status, which is written before the run is made: no run exists
  that the status does not name.
- A run that the status does not name is stopped and forgotten; its reports were never merged.
- A run that the status names, that left no trace and of which nobody heard was never made: whoever
  named it died. It is begun anew.
- A spec that is not allowed here starts nothing and stops nothing but what it pauses; what runs is
  watched.
- A failure for good stops what it concerns: a table, or the sync. A transient one waits (see
  restart.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_core.errors import Reason
from cdcsync_core.run import ExitCode, RunKind, TablePhase
from cdcsync_core.spec import CdcSync
from cdcsync_core.status import (
    Phase,
    Restarts,
    RunRef,
    TableStatus,
    only_tables,
    unix_time,
    utc,
    with_tables,
)
from cdcsync_operator.decision import restart
from cdcsync_operator.decision.assignment import (
    TableNonces,
    all_consistent,
    assigned,
    established,
    late,
    resolve,
    retried,
    to_snapshot,
    to_stream,
)
from cdcsync_operator.decision.conditions import summarise
from cdcsync_operator.decision.draft import Draft
from cdcsync_operator.decision.fingerprint import fingerprint
from cdcsync_operator.decision.observed import (
    Decision,
    Exit,
    ForgetRun,
    Observed,
    ObservedRun,
    PreflightResult,
    RunPreflight,
    RunState,
    StartRun,
    StopRun,
)
from cdcsync_operator.decision.rollout import outdated_by

#: seconds between two looks at a source that is fit (new tables, changed settings) and at one that
#: is not
PREFLIGHT_EVERY = 300.0
PREFLIGHT_RETRY = 30.0
#: and at one in whose binlog the stream has seen tables come or go
PROMPTED_EVERY = 10.0
#: failures in a row up to which rights that worked before are tried again
_ROTATIONS = 3


def decide(resource: CdcSync, seen: Observed, now: float) -> Decision:
    """The new status and the actions that follow from it."""
    draft = Draft(resource, seen, now, seen.status)
    _clear_strangers(draft)
    _leave_old_failures(draft)
    _book_ended_runs(draft)
    _take_preflight(draft)
    _choose_runs(draft)
    _forgive_after_stable_runs(draft)
    return Decision(summarise(draft), tuple(draft.actions), _requeue_after(draft))


# ---- runs that ended


def _clear_strangers(draft: Draft) -> None:
    """Runs that the status does not name: an earlier incarnation's, or a start that was given
    up."""
    for run in draft.seen.runs:
        if draft.status.runs.kind_of(run.id) is None:
            draft.actions.append(StopRun(run.kind, run.id) if run.live else ForgetRun(run.kind, run.id))


def _leave_old_failures(draft: Draft) -> None:
    """What a stream says of content that is to be replaced keeps no table from being read again."""
    stream = draft.named(RunKind.STREAM)
    if stream is None or draft.changed:
        return
    has = dict(stream.tables)
    old = [
        t.model_copy(update={"phase": TablePhase.PENDING, "reason": "", "message": ""})
        for t in assigned(draft.status)
        if t.failed and t.run == stream.id and draft.spec.nonce(t.name) > has.get(t.name, -1)
    ]
    if old:
        draft.status = with_tables(draft.status, old)


def _book_ended_runs(draft: Draft) -> None:
    for kind in RunKind:
        ref = draft.status.runs.get(kind)
        run = draft.named(kind)
        if ref is None or (run is not None and run.live) or _awaits_handover(draft, run):
            continue
        draft.status = draft.status.with_(runs=draft.status.runs.put(kind, None))
        lasted = draft.now - (unix_time(ref.started_at) or draft.now)
        if run is not None and run.exit is not None:
            draft.actions.append(ForgetRun(kind, run.id))
            _book(draft, run, run.exit, lasted)
        elif ref.report:
            _book_trouble(draft, Reason.DRIVER_LOST.value, "no trace of a driver that was there", lasted)
        else:
            draft.drained.add(kind)


def _awaits_handover(draft: Draft, run: ObservedRun | None) -> bool:
    """A catch-up that ended well stays named until the stream has taken its tables over."""
    if run is None or run.kind is not RunKind.CATCH_UP or run.stop_asked:
        return False
    stream = draft.named(RunKind.STREAM)
    if run.exit is None or run.exit.code != ExitCode.DONE or stream is None or not stream.live:
        return False
    return any(name in run.names for name, _ in late(stream, to_stream(draft.spec, draft.status)))


def _book(draft: Draft, run: ObservedRun, outcome: Exit, lasted: float) -> None:
    """What a run that was asked to drain ended with is not booked: it had an older spec, and its
    successor finds out."""
    if run.stop_asked:
        draft.drained.add(run.kind)
        return
    if outcome.code in (ExitCode.USER_MUST_ACT, ExitCode.USAGE) and not _may_come_back(draft, outcome.reason):
        _book_permanent(draft, run, outcome)
        return
    if (outcome.code == ExitCode.DONE or run.kind is RunKind.SNAPSHOT) and _is_complete(draft, run):
        return  # a snapshot that has read all may be lost while it ends
    reason = outcome.reason or Reason.DRIVER_LOST.value
    unexplained = f"the {run.kind.value} driver ended with code {int(outcome.code)} before its work was done"
    _book_trouble(draft, reason, outcome.message or unexplained, lasted)


def _may_come_back(draft: Draft, reason: str) -> bool:
    """Whether a right that a driver lacks may be there soon: a password that was changed reaches it
    late, a grant was revoked for a moment. What is still missing a few attempts later stays so."""
    return _is_revocable(reason) and draft.status.restarts.consecutive < _ROTATIONS


def _is_revocable(reason: str) -> bool:
    return reason in set(Reason) and Reason(reason).revocable


def _is_complete(draft: Draft, run: ObservedRun) -> bool:
    """Whether a run that ended well has done all that such a run can do."""
    nonces = dict(run.tables)
    tables = [t for t in assigned(draft.status) if t.name in nonces]
    if run.kind is RunKind.SNAPSHOT:
        return all(t.failed or _has_read(run, t) for t in tables)
    if run.kind is RunKind.STREAM:  # a stream ends by itself only when all its tables stopped or were taken over
        return all(t.failed or not t.positioned or t.nonce > nonces[t.name] for t in tables)
    return True


def _has_read(run: ObservedRun, table: TableStatus) -> bool:
    return table.positioned and table.nonce >= dict(run.tables)[table.name]


def _book_permanent(draft: Draft, run: ObservedRun, outcome: Exit) -> None:
    """Stops the tables that the run had not finished; with the stream, or where nothing else flows,
    the sync."""
    unfinished = _unfinished(draft, run)
    if not unfinished and any(t.name in run.names for t in draft.status.table_status):
        return
    stream, stopped = draft.named(RunKind.STREAM), {t.name for t in unfinished}
    others = tuple((name, nonce) for name, nonce in to_stream(draft.spec, draft.status) if name not in stopped)
    flowing = (stream is not None and stream.live) or established(draft.status, others)
    if run.kind is RunKind.STREAM or not flowing:
        draft.failure = (outcome.reason or Reason.INTERNAL_ERROR.value, outcome.message)
        return
    update = {"phase": TablePhase.FAILED, "reason": outcome.reason, "message": outcome.message, "run": run.id}
    draft.status = with_tables(draft.status, [t.model_copy(update=update) for t in unfinished])


def _unfinished(draft: Draft, run: ObservedRun) -> list[TableStatus]:
    """The tables for which the run still was at work: of a snapshot those to be read, of the others
    those that are not."""
    tables = [t for t in assigned(draft.status) if t.name in run.names and not t.failed]
    unread = dict(to_snapshot(draft.spec, draft.status))
    if run.kind is not RunKind.SNAPSHOT:
        return [t for t in tables if t.name not in unread]
    return [t for t in tables if t.name in unread and not _has_read(run, t)]


def _book_trouble(draft: Draft, reason: str, message: str, lasted: float) -> None:
    policy = draft.spec.auto_restart
    restarts = restart.after_failure(policy, draft.status.restarts, reason, lasted, draft.now)
    draft.status = draft.status.with_(restarts=restarts)
    draft.trouble = (reason, message)
    if restart.exhausted(policy, restarts):
        draft.failure = (
            reason,
            f"{message} (failure {restarts.consecutive} in a row, spec.autoRestart allows no more)",
        )


def _forgive_after_stable_runs(draft: Draft) -> None:
    """Only when all runs that there should be are there and lasted: one that flows does not cure
    another one beside it.

    This is judged after the choice of runs, when one that had waited for its next attempt is named
    again.
    """
    restarts, policy, named = draft.status.restarts, draft.spec.auto_restart, draft.status.runs.named
    live = draft.live()
    waiting = draft.trouble is not None or restart.wait_left(restarts, draft.now) > 0
    if waiting or not live or len(live) < len(named):
        return
    if all(r.reported_at is not None and restart.is_stable(policy, restarts, draft.now - r.started_at) for r in live):
        draft.status = draft.status.with_(restarts=Restarts())


# ---- the source


def _take_preflight(draft: Draft) -> None:
    """Takes what a preflight of this generation found, once per generation with all its tables."""
    preflight = draft.seen.preflight
    if draft.seen.refusal or preflight is None or preflight.generation != draft.resource.metadata.generation:
        return
    if preflight.failures:
        _take_preflight_errors(draft)
        return
    if any(_leaves_a_table_out(draft, run) for run in draft.live()):
        return
    unfailed = draft.status.phase is Phase.FAILED and _was_unready(draft) and not _is_exhausted(draft)
    asked = draft.changed or unfailed or not assigned(draft.status)
    if draft.changed:
        _try_all_again(draft)
    if draft.changed or unfailed:
        draft.status = draft.status.with_(phase=Phase.PENDING)
    status = draft.status.with_(source=preflight.source, observed_generation=draft.resource.metadata.generation)
    appeared = _may_capture_new_tables(draft)
    draft.status = resolve(draft.spec, status, preflight.tables, asked=asked, appeared=appeared)


def _may_capture_new_tables(draft: Draft) -> bool:
    """They are read beside the stream: until that flows they wait, so that they hold back no table
    that came before them."""
    if draft.spec.tables.new_tables == "ignore":
        return False
    begins = bool(draft.seen.status.runs.named)
    return not begins or established(draft.status, to_stream(draft.spec, draft.status))


def _try_all_again(draft: Draft) -> None:
    """What failed before the resource changed counts no more. Where the source is unfit, its cure
    finds the change taken already."""
    entries = [retried(draft.spec, t) for t in draft.status.table_status]
    draft.status = only_tables(draft.status, entries).with_(restarts=Restarts())


def _leaves_a_table_out(draft: Draft, run: ObservedRun) -> bool:
    """Whether a stream has a table, as the resource asks for it, that does not flow there.

    It leaves out, for as long as it lives, a table that failed, and one of which it found no
    content; and what it said of a table while that was to be read again did not count. So it is
    drained: for a failed table when the resource has changed. Until it has ended the change is not
    taken, and a reason stands; a table that is read again comes back by that.
    """
    if run.kind is not RunKind.STREAM:
        return False
    has, left_out = dict(run.tables), {TablePhase.PENDING, TablePhase.SNAPSHOTTING}
    if draft.changed:
        left_out.add(TablePhase.FAILED)
    return any(t.phase in left_out and draft.spec.nonce(t.name) <= has.get(t.name, -1) for t in assigned(draft.status))


def _take_preflight_errors(draft: Draft) -> None:
    """Running drivers go on: they see for themselves what concerns them."""
    preflight = draft.seen.preflight
    assert preflight
    if draft.live():
        return
    first = next((e for e in preflight.failures if not e.reason.retried), preflight.failures[0])
    message = "\n".join(e.message for e in preflight.failures)
    next_attempt = unix_time(draft.status.restarts.next_attempt_at)
    restarts = draft.status.restarts
    # a driver had the right before: the attempts that its loss allows are not cut short by a look
    # at the source
    lost = restarts.consecutive > 0 and _is_revocable(restarts.reason) and _may_come_back(draft, first.reason.value)
    if not first.reason.retried and not lost:
        draft.failure, draft.unready = (first.reason.value, message), True
        if draft.changed:
            _try_all_again(draft)
            draft.status = draft.status.with_(phase=Phase.PENDING)
        draft.status = draft.status.with_(observed_generation=draft.resource.metadata.generation)
    elif next_attempt is None or preflight.at >= next_attempt:
        _book_trouble(draft, first.reason.value, message, 0.0)


def _is_fit(draft: Draft) -> bool:
    """Whether runs may start; asks for a preflight where there is none that is new enough."""
    preflight, generation = draft.seen.preflight, draft.resource.metadata.generation
    if preflight is None or preflight.generation != generation:
        age, every = 1.0, 0.0
    else:
        age, every = draft.now - preflight.at, _look_every(draft, preflight)
    prompt = _prompt(draft)
    if preflight is not None and prompt not in ("", preflight.prompt):
        every = min(every, PROMPTED_EVERY)
    if age >= every and not draft.seen.preflight_running:
        unread = frozenset(name for name, _ in to_snapshot(draft.spec, draft.status))
        draft.actions.append(RunPreflight(generation, unread if assigned(draft.status) else None, prompt))
    return _is_looked_at(draft)


def _prompt(draft: Draft) -> str:
    """Changes when the stream has seen that tables appeared, or may be gone; empty where it has
    seen neither."""
    stream = draft.named(RunKind.STREAM)
    if stream is None:
        return ""
    appeared = stream.appeared if draft.spec.tables.new_tables == "capture" else 0
    stopped = sum(t.failed and t.reason == Reason.SCHEMA_CHANGE_REFUSED.value for t in assigned(draft.status))
    return f"{stream.id}:{appeared}:{stopped}" if appeared or stopped else ""


def _is_looked_at(draft: Draft) -> bool:
    """Whether the last preflight was for this generation, and found source and sink ready."""
    preflight = draft.seen.preflight
    return (
        preflight is not None and preflight.generation == draft.resource.metadata.generation and not preflight.failures
    )


def _was_lost_to_the_sink(draft: Draft) -> bool:
    """What a driver retries may be permanent, like a bucket that was removed: the next preflight
    knows."""
    return draft.status.restarts.reason == Reason.SINK_UNREACHABLE.value and not draft.live()


def _look_every(draft: Draft, preflight: PreflightResult) -> float:
    """Seconds. What is retried waits by `restarts` already, but where drivers live or the sync has
    failed."""
    if not preflight.failures:
        return PREFLIGHT_RETRY if _was_lost_to_the_sink(draft) else PREFLIGHT_EVERY
    waits = all(e.reason.retried for e in preflight.failures) and not draft.live()
    return 0.0 if waits and draft.status.phase is not Phase.FAILED else PREFLIGHT_RETRY


# ---- what runs


def _choose_runs(draft: Draft) -> None:
    if draft.seen.closing or draft.spec.state == "paused":
        _stop(draft, draft.live())
        return
    if draft.seen.refusal or draft.seen.missing_secrets:
        return  # what lives goes on: it was allowed, and has its Secrets
    if draft.failure or (draft.status.phase is Phase.FAILED and not draft.changed):
        _stop(draft, draft.live())
        if _source_was_unfit(draft) and not _is_exhausted(draft):
            _is_fit(draft)  # what was found may have been cured; a failed run waits for the user's change
        return
    if draft.status.phase is Phase.COMPLETED and not draft.changed:
        return
    _stop_outdated(draft)
    waiting = restart.wait_left(draft.status.restarts, draft.now) > 0
    to_go_on = RunKind.STREAM in draft.drained  # it did not fail, so it does not wait for what failed beside it
    if (waiting and not draft.live() and not to_go_on) or not _is_fit(draft):
        return
    if _is_done(draft):
        _stop(draft, draft.live())
        return
    if not waiting:
        _start_snapshot(draft)
    if to_go_on or not waiting:
        _start_stream(draft)


def _is_exhausted(draft: Draft) -> bool:
    """The user said how often it is tried; only the user asks for more."""
    return restart.exhausted(draft.spec.auto_restart, draft.status.restarts)


def _source_was_unfit(draft: Draft) -> bool:
    """By the last preflight; by the status where this controller has not looked yet."""
    preflight = draft.seen.preflight
    return bool(preflight.failures) if preflight else _was_unready(draft)


def _was_unready(draft: Draft) -> bool:
    """By the last status."""
    return any(draft.status.condition(kind).status == "False" for kind in ("SourceReady", "SinkReady"))


def _stop_outdated(draft: Draft) -> None:
    for run in draft.live():
        why = outdated_by(draft, run)
        if not why and _is_looked_at(draft) and _leaves_a_table_out(draft, run):
            why = "tables that it left out are to flow"
        if why:
            _stop(draft, [run], why)


def _is_done(draft: Draft) -> bool:
    """`snapshot.only`: all is read, and the log has been applied up to where it is consistent."""
    only = draft.spec.snapshot.only and not to_snapshot(draft.spec, draft.status)
    return only and all_consistent(draft.status)


def _stop(draft: Draft, runs: Iterable[ObservedRun], why: str = "") -> None:
    draft.actions.extend(StopRun(r.kind, r.id, why) for r in runs if r.state is RunState.RUNNING)


def _start_snapshot(draft: Draft) -> None:
    tables = to_snapshot(draft.spec, draft.status)
    if not tables or draft.status.runs.snapshot is not None:
        return
    _start(draft, RunKind.SNAPSHOT, tables)
    # what the stream says of them does not count from now on, so it cannot be held to say that they
    # flow
    names = {name for name, _ in tables}
    again = [t for t in assigned(draft.status) if t.positioned and t.name in names]
    draft.status = with_tables(draft.status, [t.model_copy(update={"phase": TablePhase.SNAPSHOTTING}) for t in again])


def _start_stream(draft: Draft) -> None:
    tables = to_stream(draft.spec, draft.status)
    stream, catch_up = draft.named(RunKind.STREAM), draft.named(RunKind.CATCH_UP)
    if stream is not None and stream.live:
        _bring_forward(draft, stream, tables)
    elif catch_up is not None and catch_up.live:
        _stop(draft, [catch_up])
    elif tables and (not to_snapshot(draft.spec, draft.status) or established(draft.status, tables)):
        _start(draft, RunKind.STREAM, tables)


def _bring_forward(draft: Draft, stream: ObservedRun, tables: TableNonces) -> None:
    """Tables that have a position and are not in the stream: a second reader brings them to it,
    then it takes them over."""
    behind = late(stream, tables)
    catch_up = draft.named(RunKind.CATCH_UP)
    position = draft.status.position
    if not behind or stream.state is not RunState.RUNNING:
        return
    if catch_up is not None and not catch_up.live:
        _stop(draft, [stream], "tables that were caught up with it join it")
    elif catch_up is None and draft.status.runs.catch_up is None and position and position.get("file"):
        _start(draft, RunKind.CATCH_UP, behind, f"{position['file']}:{position['offset']}")


def _start(draft: Draft, kind: RunKind, tables: TableNonces, stop_at: str = "") -> None:
    """Names the run in the status; the action follows once that is written."""
    # the runs seen at first count, too: a run that has just been cleared away had its epoch, and so
    # has one that a lost status does not name and that may yet write: the next one exceeds them
    named = max(draft.seen.status.runs.highest_epoch, draft.status.runs.highest_epoch)
    epoch = max([named, *(run.number for run in draft.seen.runs)]) + 1
    run = f"{draft.resource.metadata.name}-{draft.seen.token}-{epoch}"
    ref = RunRef(id=run, epoch=epoch, pod=f"{run}-driver", started_at=utc(draft.now))
    restarts = draft.status.restarts
    if not restart.wait_left(restarts, draft.now):
        restarts = restarts.model_copy(update={"next_attempt_at": None})
    draft.status = draft.status.with_(runs=draft.status.runs.put(kind, ref), restarts=restarts)
    draft.actions.append(StartRun(kind, run, epoch, tables, fingerprint(draft.spec, kind), stop_at))


def _requeue_after(draft: Draft) -> float:
    waits = [10.0]
    left = restart.wait_left(draft.status.restarts, draft.now)
    if left:
        waits.append(left)
    return max(0.1, min(waits))
