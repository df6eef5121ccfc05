"""What a preflight changes, and when the next one is due.

Why it is right: nothing is started for a generation of the resource before a preflight of that
generation has passed; what a preflight found is checked again until it is fixed, so the user need
not ask for it. Runs that live go on whatever a preflight finds: they notice themselves what
concerns them. Pure.
"""

from __future__ import annotations

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, only_tables
from cdcsync_core.runs.status_part import Restarts, StatusServer
from cdcsync_core.timestamps import unix_time
from cdcsync_operator.decision.data_flow import STARTING, flow_problem, sink_doubt, source_doubt
from cdcsync_operator.decision.needs import asked
from cdcsync_operator.decision.observed import ObservedRun, PreflightResult, RunPreflight
from cdcsync_operator.decision.runs.due_times import is_resting, needed_file
from cdcsync_operator.decision.situation import Situation, is_revocable
from cdcsync_operator.decision.tables.assignment import reset_failure, resolve
from cdcsync_operator.decision.tables.resnapshots import prompt_of

#: seconds between two preflights of a source that is ready (new tables, changed settings) and of
#: one that is not
PREFLIGHT_EVERY = 300.0
PREFLIGHT_RETRY = 30.0
#: and of one in whose binlog the stream has met tables that came or went, or that has a table which
#: was locked just now
PROMPTED_EVERY = 10.0


# ---- what it changes


def apply_preflight(s: Situation) -> Situation:
    """Takes what a preflight of this generation found, once per generation with all its tables."""
    if s.observed.refusal or s.preflight is None:
        return s
    if s.preflight.failures:
        return s if _goes_on(s) else _apply_failures(s, s.preflight)
    if any(omits_a_table(s, run) for run in s.live):
        return s
    recovered = s.status.phase is Phase.FAILED and s.was_unready and not s.is_exhausted
    everything = s.changed or recovered or not s.assigned
    after = _reset_failures(s) if s.changed else s
    if s.changed or recovered:
        after = after.with_status(phase=Phase.PENDING)
    status = after.status.with_(
        source=StatusServer.model_validate(s.preflight.source), observed_generation=s.generation
    )
    appeared = _may_capture_new_tables(after)
    observed, busy = s.preflight.tables, s.preflight.busy
    return s.with_(status=resolve(s.spec, status, observed, asked=everything, appeared=appeared, busy=busy))


def _goes_on(s: Situation) -> bool:
    """Runs that live, and a stream between two times, which needs nothing of the source now."""
    return bool(s.copying) or (is_resting(s) and not s.changed)


def _may_capture_new_tables(s: Situation) -> bool:
    """They are read while the stream goes on: until there is one they wait, so that they hold back
    no table that came before them."""
    if s.spec.tables.new_tables == "ignore":
        return False
    return not s.observed.status.runs.named or s.has_streamed


def _reset_failures(s: Situation) -> Situation:
    """What failed before the resource changed counts no more. Where the source is not ready, the
    change counts as observed by the time that it is."""
    entries = [reset_failure(s.spec, t) for t in s.status.table_status]
    return s.with_(status=only_tables(s.status, entries).with_(restarts=Restarts()))


def omits_a_table(s: Situation, run: ObservedRun) -> bool:
    """Whether a stream has a table, as the resource asks for it, that it does not stream.

    It omits, for as long as it lives, a table that failed, and one of which it found no content;
    and what it reported of a table while that was to be resnapshotted did not count. So it is
    drained: for a failed table when the resource has changed. Until it has ended the change does
    not count as observed, and a reason stands; a table that is resnapshotted comes back by that.
    """
    if run.kind is not RunKind.STREAM:
        return False
    has, omitted = run.generations, {TablePhase.PENDING, TablePhase.SNAPSHOTTING}
    if s.changed:
        omitted.add(TablePhase.FAILED)
    return any(t.phase in omitted and asked(s.spec, t) <= has.get(t.name, -1) for t in s.assigned)


def _apply_failures(s: Situation, preflight: PreflightResult) -> Situation:
    first = next((e for e in preflight.failures if not e.reason.retried), preflight.failures[0])
    message = "\n".join(e.message for e in preflight.failures)
    restarts = s.status.restarts
    # a driver had the right before: the attempts that its loss allows are not cut short by a
    # preflight
    lost = restarts.consecutive > 0 and is_revocable(restarts.reason) and s.may_regain(first.reason.value)
    if not first.reason.retried and not lost:
        after = _reset_failures(s).with_status(phase=Phase.PENDING) if s.changed else s
        after = after.with_status(observed_generation=s.generation)
        return after.with_(permanent_failure=(first.reason.value, message), unready=True)
    next_attempt = unix_time(restarts.next_attempt_at)
    if next_attempt is None or preflight.at >= next_attempt:
        return s.failing_transiently(first.reason.value, message, 0.0)
    return s


# ---- when it is due


def due_preflight(s: Situation) -> tuple[RunPreflight, ...]:
    prompt, last = _prompt(s), s.observed.preflight
    age, every = (1.0, 0.0) if s.preflight is None else (s.now - s.preflight.at, _interval(s, s.preflight))
    if last is not None and prompt not in ("", last.prompt):
        every = min(every, PROMPTED_EVERY)
    if source_doubt(s.spec, s.stream) or sink_doubt(s.spec, s.stream):
        every = min(every, PREFLIGHT_RETRY)
    if age < every or s.observed.preflight_running:
        return ()
    unread = frozenset(name for name, _ in s.needs.unread)
    return (RunPreflight(s.generation, unread if s.assigned else None, prompt, needed_file(s), _busy(s)),)


def _busy(s: Situation) -> frozenset[tuple[str, str]]:
    """The tables that runs have met locked, and that no run reads any more: a stream leaves one out
    as long as it lives."""
    met, without = [t for t in s.assigned if t.is_busy and t.run], (None, RunKind.STREAM)
    return frozenset((t.name, t.run) for t in met if s.status.runs.kind_of(t.run) in without)


def _prompt(s: Situation) -> str:
    """Changes when the stream has met tables that appeared, or may be gone, and when a resnapshot
    waits for a definition; empty where nothing of this has happened."""
    seen, waiting = _seen_by_stream(s), prompt_of(s.spec, s.assigned)
    return f"{seen}\n{waiting}" if seen or waiting else ""


def _seen_by_stream(s: Situation) -> str:
    stream = s.named(RunKind.STREAM)
    if stream is None:
        return ""
    appeared = stream.appeared if s.spec.tables.new_tables == "capture" else 0
    stopped = sum(t.failed and t.reason in _MAY_BE_GONE for t in s.assigned)
    return f"{stream.id}:{appeared}:{stopped}" if appeared or stopped else ""


_MAY_BE_GONE = (Reason.SCHEMA_CHANGE_REFUSED.value, Reason.SCHEMA_CHANGE_PENDING.value, Reason.TABLE_GONE.value)


def _interval(s: Situation, preflight: PreflightResult) -> float:
    """Seconds. What is retried waits by `restarts` already, unless drivers live or the sync has
    failed."""
    if not preflight.failures:
        return PREFLIGHT_RETRY if _was_lost(s) else _pause_of_busy_tables(s)
    waits = all(e.reason.retried for e in preflight.failures) and not _goes_on(s)
    return 0.0 if waits and s.status.phase is not Phase.FAILED else PREFLIGHT_RETRY


def _pause_of_busy_tables(s: Situation) -> float:
    """Seconds, which grow with the time since all tables were consistent."""
    since = unix_time(s.status.condition("Consistent").last_transition_time)
    if since is None or not any(t.is_busy for t in s.assigned):
        return PREFLIGHT_EVERY
    return min(PREFLIGHT_EVERY, max(PROMPTED_EVERY, (s.now - since) / 4))


def _was_lost(s: Situation) -> bool:
    """To the source or the sink, and nothing has come since. What a driver retries may be
    permanent, like a bucket that was removed, or an outage, of which the conditions know nothing
    yet: the next preflight knows."""
    lost = (Reason.SINK_UNREACHABLE.value, Reason.SOURCE_UNREACHABLE.value)
    if s.status.restarts.reason not in lost:
        return False
    problem = flow_problem(s.spec, s.stream, s.now) if s.stream else None
    return not s.copying or (problem is not None and problem[0] == STARTING)


def source_was_unready(s: Situation) -> bool:
    """Whether the last preflight found it so; the status says it where this controller has had none
    yet."""
    last = s.observed.preflight
    return bool(last.failures) if last else s.was_unready
