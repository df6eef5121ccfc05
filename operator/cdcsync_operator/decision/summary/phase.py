"""The phase of a sync, a summary for people, and of its tables where a run cannot report it.

Why it is right: a table is streamed only by a run that has its content, whatever was reported of it
before. Pure.
"""

from __future__ import annotations

from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus
from cdcsync_operator.decision.runs.due_times import is_resting
from cdcsync_operator.decision.runs.schedule import is_done
from cdcsync_operator.decision.situation import Situation


def settle_phases(s: Situation) -> Situation:
    """Sets the phase of the sync, and those of its tables that follow from it."""
    s = _demote_tables_not_in_stream(s)
    phase = _phase(s)
    if phase is Phase.FAILED and not s.live:  # it gets no run by itself
        s = _move(s, TablePhase.STREAMING, TablePhase.CATCHING_UP)
    if phase is Phase.COMPLETED:
        s = _move(s, TablePhase.STREAMING, TablePhase.COMPLETED)
    if _generation_is_observed(s):
        s = s.with_status(observed_generation=s.generation)
    return s.with_status(phase=phase)


def _demote_tables_not_in_stream(s: Situation) -> Situation:
    """A live stream does not have the content of a table that it did not know of, or that it has as
    it was before its resnapshot."""
    if s.stream is None:
        return s
    has = s.stream.generations
    left = [t for t in s.status.table_status if t.phase in CONSISTENT and has.get(t.name, -1) < t.generation]
    return s.with_tables([t.model_copy(update={"phase": TablePhase.CATCHING_UP}) for t in left])


def _move(s: Situation, before: TablePhase, after: TablePhase) -> Situation:
    moved = [t for t in s.status.table_status if t.phase is before]
    return s.with_tables([t.model_copy(update={"phase": after}) for t in moved])


def _generation_is_observed(s: Situation) -> bool:
    """A generation counts as observed when it was acted upon: a preflight decides that, unless
    nothing is to run, or may."""
    return bool(s.observed.refusal) or (s.spec.state == "paused" and not s.live and not s.observed.closing)


def _phase(s: Situation) -> Phase:
    before, tables = s.status.phase, s.assigned
    if s.unready and before is not Phase.FAILED and not s.is_exhausted:
        return Phase.PENDING  # it goes on by itself once source and sink are ready
    if s.permanent_failure or (tables and all(t.failed and not t.is_busy for t in tables) and not s.changed):
        return Phase.FAILED
    if before is Phase.FAILED and not s.changed:
        return before  # also while what still runs drains
    if s.copying:
        return _phase_of_work(s, tables)
    if s.observed.closing:
        return before
    if s.spec.state == "paused":
        return Phase.PAUSED
    if before is Phase.COMPLETED and not s.changed:
        return before
    return Phase.COMPLETED if is_done(s) and not s.changed else _phase_of_work(s, tables)


def _phase_of_work(s: Situation, tables: tuple[TableStatus, ...]) -> Phase:
    if not tables or s.status.observed_generation < 0:
        return Phase.PENDING
    if s.may_stream:
        return Phase.WAITING if is_resting(s) else Phase.STREAMING
    snapshot = s.named(RunKind.SNAPSHOT)
    begun = any(t.phase is TablePhase.SNAPSHOTTING for t in tables)
    return Phase.SNAPSHOTTING if begun or (snapshot and snapshot.reported_at is not None) else Phase.PLANNING
