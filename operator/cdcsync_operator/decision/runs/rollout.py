"""Whether a live run is what the resource asks for, and if not, why. Pure.

Why it is right: a change counts as rolled out when no live run was made for what was asked before.
Until the old run has drained, the sync is reconciling, whatever is still streamed by it.
"""

from __future__ import annotations

from cdcsync_operator.decision.observed import ObservedRun
from cdcsync_operator.decision.runs.fingerprint import changed_fields, fingerprint
from cdcsync_operator.decision.situation import Situation

_SHOWN = 5


def outdated_by(s: Situation, run: ObservedRun) -> str:
    """What about the run is of an older spec, in words; empty where nothing is.

    A table that is gone from the source has stopped in its run already; one that no longer matches
    has not.
    """
    fields = changed_fields(run.fingerprint, fingerprint(s.spec, run.kind))
    if fields:
        return f"{_listed([f'spec.{f}' if f else 'the spec' for f in fields])} changed"
    unknown = run.names - {t.name for t in s.status.table_status}
    dropped = sorted(name for name in unknown if not s.spec.tables.selection.captures(name))
    return f"{_listed(dropped)} left the sync" if dropped else ""


def rolling_out(s: Situation) -> str:
    """Why live runs are being replaced; empty where none is."""
    outdated = [(run, why) for run in s.copying if (why := outdated_by(s, run))]
    return "; ".join(f"{why}: {run.kind.value} run {run.id} drains and is replaced" for run, why in outdated)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
