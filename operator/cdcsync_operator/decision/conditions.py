"""The summary of a decision: phase, conditions, lag, counts.

Why it is right: `Ready` is True only while data flows and nothing fails, and what flows is what the
stream reported lately, not what a process's state promises; `Stalled` is True when only the user
can help; `Reconciling` is True while there is something left to wait for and nothing is stalled
(kstatus). Every condition is set on every look, so none is ever left behind. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.errors import Reason
from cdcsync_core.run import RunKind, TablePhase
from cdcsync_core.status import (
    CONSISTENT,
    Phase,
    Status,
    TableStatus,
    effective_lag,
    only_tables,
    unix_time,
    utc,
    with_condition,
    with_tables,
)
from cdcsync_operator.decision import restart
from cdcsync_operator.decision.assignment import all_consistent, assigned, established, is_read, to_snapshot, to_stream
from cdcsync_operator.decision.data_flow import obstacle
from cdcsync_operator.decision.draft import Draft
from cdcsync_operator.decision.rollout import rolling_out

_SHOWN_FAILURES = 5
#: why a snapshot of which nothing is left to be read is not complete
TABLES_FAILED = "TablesFailed"
#: a change of the spec has not reached all runs yet
ROLLING_OUT = "RollingOut"


@dataclass(frozen=True)
class Health:
    """The conditions' common ground: a reason and a message for the state, and what they mean for
    kstatus."""

    ready: bool
    stalled: bool
    settled: bool
    reason: str
    message: str


def summarise(draft: Draft) -> Status:
    """The status of a decision, whole."""
    _judge_what_flows(draft)
    phase = _phase(draft)
    if phase is Phase.FAILED and not draft.live():
        _let_nothing_flow(draft)
    if phase is Phase.COMPLETED:
        _complete_tables(draft)
    if _is_taken_in(draft):
        draft.status = draft.status.with_(observed_generation=draft.resource.metadata.generation)
    stream = draft.named(RunKind.STREAM)
    reported_at = stream.reported_at if stream else None
    lag = effective_lag(draft.status, reported_at, draft.spec.stream.interval, draft.now)
    before = draft.status
    draft.status = draft.status.with_(phase=phase, lag_seconds=lag)
    health = _health(draft, before)
    status = _with_health(draft.status, health, _waiting(draft), draft.now)
    judged = (_source_ready(draft), _sink_ready(draft), _snapshot_complete(draft), _consistent(draft))
    for kind, value, reason, message in judged:
        status = with_condition(status, kind, value, reason, message, draft.now)
    return status


def _judge_what_flows(draft: Draft) -> None:
    """A table flows only in a stream that has its content, whatever was said of it before: by a
    stream that did not know yet that it is to be read again, or by the one before this."""
    stream = draft.named(RunKind.STREAM)
    if stream is None or not stream.live:
        return
    has = dict(stream.tables)
    left = [t for t in draft.status.table_status if t.phase in CONSISTENT and has.get(t.name, -1) < t.nonce]
    if left:
        draft.status = with_tables(draft.status, [t.model_copy(update={"phase": TablePhase.CATCHING_UP}) for t in left])


def _let_nothing_flow(draft: Draft) -> None:
    """A sync that failed has no run, and gets none by itself: no table of it flows."""
    left = [t for t in draft.status.table_status if t.phase is TablePhase.STREAMING]
    if left:
        draft.status = with_tables(draft.status, [t.model_copy(update={"phase": TablePhase.CATCHING_UP}) for t in left])


def _is_taken_in(draft: Draft) -> bool:
    """A generation counts as observed when it was acted upon: a preflight decides that, save where
    nothing is to run, or may."""
    return bool(draft.seen.refusal) or (draft.spec.state == "paused" and not draft.live() and not draft.seen.closing)


# ---- phase


def _phase(draft: Draft) -> Phase:
    status, tables = draft.status, assigned(draft.status)
    if (
        draft.unready
        and status.phase is not Phase.FAILED
        and not restart.exhausted(draft.spec.auto_restart, status.restarts)
    ):
        return Phase.PENDING  # it goes on by itself once source and sink are as needed
    if draft.failure or (tables and all(t.failed for t in tables) and not draft.changed):
        return Phase.FAILED
    if status.phase is Phase.FAILED and not draft.changed:
        return status.phase  # also while what still runs drains
    if draft.seen.closing or draft.live():
        return _phase_of_work(draft, tables) if draft.live() else status.phase
    if draft.spec.state == "paused":
        return Phase.PAUSED
    if status.phase is Phase.COMPLETED and not draft.changed:
        return status.phase
    if (
        draft.spec.snapshot.only
        and not draft.changed
        and not to_snapshot(draft.spec, status)
        and all_consistent(status)
    ):
        return Phase.COMPLETED
    return _phase_of_work(draft, tables)


def _phase_of_work(draft: Draft, tables: tuple[TableStatus, ...]) -> Phase:
    if not tables or draft.status.observed_generation < 0:
        return Phase.PENDING
    flowing = to_stream(draft.spec, draft.status)
    if flowing and (not to_snapshot(draft.spec, draft.status) or established(draft.status, flowing)):
        return Phase.STREAMING
    snapshot = draft.named(RunKind.SNAPSHOT)
    begun = any(t.phase is TablePhase.SNAPSHOTTING for t in tables)
    return Phase.SNAPSHOTTING if begun or (snapshot and snapshot.reported_at is not None) else Phase.PLANNING


def _complete_tables(draft: Draft) -> None:
    tables = [
        t.model_copy(update={"phase": TablePhase.COMPLETED}) if t.phase is TablePhase.STREAMING else t
        for t in draft.status.table_status
    ]
    draft.status = only_tables(draft.status, tables)


# ---- Ready, Reconciling, Stalled


def _health(draft: Draft, before: Status) -> Health:
    phase, failed = draft.status.phase, [t for t in assigned(draft.status) if t.failed]
    if draft.seen.refusal:
        return Health(False, True, False, Reason.SPEC_INVALID.value, draft.seen.refusal)
    if draft.failure:
        return Health(False, True, False, *draft.failure)
    if _awaits_first_preflight(draft, before):
        ready, stalled = before.condition("Ready"), before.condition("Stalled")
        return Health(False, True, False, ready.reason, stalled.message)
    if failed:
        return Health(False, True, False, failed[0].reason, _failures(failed))
    if phase is Phase.FAILED:
        stalled = before.condition("Stalled")
        return Health(False, True, False, stalled.reason, stalled.message)
    if draft.seen.missing_secrets and not draft.live():
        return Health(False, False, False, Reason.SPEC_INVALID.value, "; ".join(draft.seen.missing_secrets))
    if phase is Phase.PAUSED:
        return Health(False, False, True, "Paused", "spec.state is paused; nothing runs, everything is kept")
    if phase is Phase.COMPLETED:
        return Health(True, False, True, "Completed", "the snapshot is complete and consistent; nothing is left to do")
    return _health_of_work(draft, before)


def _awaits_first_preflight(draft: Draft, before: Status) -> bool:
    """A new controller has not checked yet what the one before it found."""
    unready = any(before.condition(kind).status == "False" for kind in ("SourceReady", "SinkReady"))
    idle = draft.seen.preflight is None and not draft.live() and not draft.changed
    return idle and unready and before.phase is Phase.PENDING and before.condition("Stalled").status == "True"


def _health_of_work(draft: Draft, before: Status) -> Health:
    if draft.seen.closing:
        return Health(False, False, False, "Stopped", "the controller was asked to stop")
    restarts, ready = draft.status.restarts, before.condition("Ready")
    replaced = rolling_out(draft)
    if replaced:
        return Health(False, False, False, ROLLING_OUT, replaced)
    if draft.trouble:
        return Health(False, False, False, *draft.trouble)
    stream = draft.named(RunKind.STREAM)
    if restarts.reason and not (stream and stream.live) and not _waiting(draft)[0]:
        kept = ready.message if ready.reason == restarts.reason else f"failure {restarts.consecutive} in a row"
        return Health(False, False, False, restarts.reason, kept)
    if stream is None or not stream.live or draft.status.phase is not Phase.STREAMING:
        reason, words = _waiting(draft)
        message = "; ".join(filter(None, (_work(draft), words)))
        return Health(False, False, False, reason or draft.status.phase.value, message)
    found = obstacle(draft.spec, stream, draft.now)
    if found:
        return Health(False, False, False, found[0], f"{found[1]}; {_work(draft)}")
    return Health(True, False, all_consistent(draft.status), "Streaming", _work(draft))


def _waiting(draft: Draft) -> tuple[str, str]:
    """Reason and words of a run whose pods no node takes."""
    return next((run.waiting for run in draft.live() if run.waiting[0]), ("", ""))


def _work(draft: Draft) -> str:
    counts = draft.status.tables
    parts = [f"{counts.streaming} of {counts.total} tables consistent{_as_of(draft.status)}"]
    if draft.status.phase in (Phase.PLANNING, Phase.SNAPSHOTTING):
        progress = draft.status.snapshot
        parts = [f"{progress.splits_finished} of {progress.splits_total} splits read"]
    if counts.unassigned:
        parts.append(_unassigned(draft.status))
    return "; ".join(parts)


def _as_of(status: Status) -> str:
    """What the reader has passed is known; of what came after that nothing is claimed."""
    stamp = unix_time((status.position or {}).get("timestamp"))
    return "" if stamp is None else f" as of {utc(stamp)}"


def _unassigned(status: Status) -> str:
    """Each with its reason; a table without one waits for the spec, or for the first snapshot."""
    tables = [t for t in status.table_status if t.phase is TablePhase.UNASSIGNED]
    shown = ", ".join(f"{t.name} ({t.reason})" if t.reason else t.name for t in tables[:_SHOWN_FAILURES])
    more = f" and {len(tables) - _SHOWN_FAILURES} more" if len(tables) > _SHOWN_FAILURES else ""
    return f"{len(tables)} tables match and are not captured: {shown}{more}"


def _failures(failed: list[TableStatus]) -> str:
    shown = [t.message or f"{t.name}: {t.reason}" for t in failed[:_SHOWN_FAILURES]]
    more = len(failed) - len(shown)
    return "\n".join(shown) + (f"\nand {more} more tables" if more > 0 else "")


def _with_health(status: Status, health: Health, waiting: tuple[str, str], now: float) -> Status:
    status = with_condition(status, "Ready", health.ready, health.reason, health.message, now)
    reconciling = not health.stalled and not health.settled
    hindrance = waiting if reconciling and waiting[0] else (health.reason, "")
    status = with_condition(status, "Reconciling", reconciling, *hindrance, now)
    stalled = health.message if health.stalled else ""
    return with_condition(status, "Stalled", health.stalled, health.reason, stalled, now)


# ---- SourceReady, SinkReady, SnapshotComplete, Consistent

Verdict = tuple[str, bool | None, str, str]


def _source_ready(draft: Draft) -> Verdict:
    preflight, before = draft.seen.preflight, draft.status.condition("SourceReady")
    if draft.seen.missing_secrets:
        return ("SourceReady", False, Reason.SPEC_INVALID.value, "; ".join(draft.seen.missing_secrets))
    if preflight is None or preflight.generation != draft.resource.metadata.generation:
        known = {"True": True, "False": False}.get(before.status)
        return ("SourceReady", known, before.reason, before.message)
    if preflight.errors:
        message = "\n".join(e.message for e in preflight.errors)
        return ("SourceReady", False, preflight.errors[0].reason.value, message)
    return ("SourceReady", True, "PreflightPassed", "\n".join(preflight.warnings[:_SHOWN_FAILURES]))


def _sink_ready(draft: Draft) -> Verdict:
    """Unknown where the operator has not the driver's identity, so that nothing is claimed that was
    not tried."""
    preflight, before = draft.seen.preflight, draft.status.condition("SinkReady")
    if preflight is None or preflight.generation != draft.resource.metadata.generation:
        known = {"True": True, "False": False}.get(before.status)
        return ("SinkReady", known, before.reason, before.message)
    if preflight.sink_errors:
        message = "\n".join(e.message for e in preflight.sink_errors)
        return ("SinkReady", False, preflight.sink_errors[0].reason.value, message)
    if preflight.sink_unchecked:
        return ("SinkReady", None, "CheckedByDriver", f"not checked here: {preflight.sink_unchecked}")
    return ("SinkReady", True, "PreflightPassed", "")


def _snapshot_complete(draft: Draft) -> Verdict:
    """A table that failed before it was read to the end is not read, though no run will read it."""
    left = len(to_snapshot(draft.spec, draft.status))
    if not assigned(draft.status):
        return ("SnapshotComplete", False, "Pending", "no table has been resolved yet")
    if left:
        return ("SnapshotComplete", False, "Snapshotting", f"{left} tables are not read to the end")
    unread = [t.name for t in assigned(draft.status) if not is_read(draft.spec, t)]
    if unread:
        named = ", ".join(unread[:_SHOWN_FAILURES])
        return ("SnapshotComplete", False, TABLES_FAILED, f"{len(unread)} tables failed before they were read: {named}")
    return ("SnapshotComplete", True, "Complete", "")


def _consistent(draft: Draft) -> Verdict:
    tables = assigned(draft.status)
    if not tables:
        return ("Consistent", False, "Pending", "no table has been resolved yet")
    preflight = draft.seen.preflight
    gaps = sorted(t.name for t in preflight.tables if t.unlogged_cascades) if preflight else []
    if gaps:
        named = ", ".join(gaps[:_SHOWN_FAILURES])
        return (
            "Consistent",
            False,
            Reason.CASCADES_NOT_LOGGED.value,
            f"accepted by the spec, never consistent: {named}",
        )
    behind = [t.name for t in tables if t.phase not in CONSISTENT]
    if behind:
        named = ", ".join(behind[:_SHOWN_FAILURES])
        return ("Consistent", False, "CatchingUp", f"{len(behind)} of {len(tables)} tables are not consistent: {named}")
    as_of = _as_of(draft.status) or " as of their positions"
    return ("Consistent", True, "Consistent", f"{len(tables)} of {len(tables)} tables equal the source{as_of}")
