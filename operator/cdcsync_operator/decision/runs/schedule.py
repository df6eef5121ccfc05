"""The runs that should exist, as a function of the situation.

Why it is right: nothing here starts or stops anything. What may happen to runs at all is decided
for the sync as a whole (`permit`); which runs should exist follows from that and from what the
tables need (`wanted_runs`), kind by kind, by the rows of `RUNS`. A run of an older spec is not
wanted, nor is one that has to give way. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Phase
from cdcsync_operator.decision.needs import all_consistent
from cdcsync_operator.decision.observed import ObservedRun
from cdcsync_operator.decision.runs.kinds import RUNS, WantedRun
from cdcsync_operator.decision.runs.preflights import omits_a_table, source_was_unready
from cdcsync_operator.decision.runs.rollout import outdated_by
from cdcsync_operator.decision.situation import Situation

_NONE: frozenset[RunKind] = frozenset()
_ALL = frozenset(RunKind)
#: what may go on, and begin, where nothing is left to be copied
_COMPARING = frozenset(kind for kind in RunKind if not kind.copies)


@dataclass(frozen=True)
class Permit:
    """What may be done in this reconcile: `keep` live runs of these kinds (the others drain),
    `replace` those of an older spec, `start` runs of these kinds, ask for a `preflight` when one is
    due."""

    keep: frozenset[RunKind]
    replace: bool = False
    start: frozenset[RunKind] = _NONE
    preflight: bool = False


def permit(s: Situation) -> Permit:
    """A spec that is not allowed here starts nothing, and stops nothing but what it pauses."""
    if s.observed.closing or s.spec.state == "paused":
        return Permit(keep=_NONE)
    if s.observed.refusal or s.observed.missing_secrets:
        return Permit(keep=_ALL)  # what lives was allowed, and has its Secrets
    if s.has_failed:  # what was found may be fixed meanwhile; a failed run waits for the user's change
        return Permit(keep=_NONE, preflight=source_was_unready(s) and not s.is_exhausted)
    if s.status.phase is Phase.COMPLETED and not s.changed:
        return Permit(keep=_ALL, start=_COMPARING)
    if s.is_waiting and not s.live and not _resumes(s):
        return Permit(keep=_ALL, replace=True)
    if not s.preflight_passed:
        return Permit(keep=_ALL, replace=True, preflight=True)
    if is_done(s):
        return Permit(keep=_COMPARING, replace=True, start=_COMPARING, preflight=True)
    return Permit(keep=_ALL, replace=True, start=_startable(s), preflight=True)


def is_done(s: Situation) -> bool:
    """`snapshot.only`: all is read, and the binlog has been applied up to where it is
    consistent."""
    return s.spec.snapshot.only and not s.needs.unread and all_consistent(s.status)


def _resumes(s: Situation) -> bool:
    """A stream that was drained did not fail, so it does not wait for what failed."""
    return RunKind.STREAM in s.drained


def _startable(s: Situation) -> frozenset[RunKind]:
    if not s.is_waiting:
        return frozenset(RUNS)
    return frozenset(kind for kind, rule in RUNS.items() if rule.resumes) if _resumes(s) else _NONE


def wanted_runs(s: Situation, allowed: Permit) -> tuple[WantedRun, ...]:
    """The runs that go on, and new ones of the kinds of which the status names none."""
    still_wanted = [
        WantedRun(r.kind, r.tables, id=r.id)
        for r in s.live
        if r.kind in allowed.keep and not replaced_because(s, r, allowed)
    ]
    free = [kind for kind in RUNS if kind in allowed.start and s.status.runs.get(kind) is None]
    new = [WantedRun(kind, *RUNS[kind].required(s)) for kind in free]
    return (*still_wanted, *(run for run in new if run.tables))


def replaced_because(s: Situation, run: ObservedRun, allowed: Permit) -> str:
    """Why a live run is not wanted any more; empty where it is, or where nothing is replaced."""
    if not allowed.replace:
        return ""
    why = outdated_by(s, run)
    if not why and s.preflight_passed and omits_a_table(s, run):
        why = "tables that it omits are to be streamed"
    if not why and run.kind in allowed.start:
        why = RUNS[run.kind].gives_way(s, run)
    return why
