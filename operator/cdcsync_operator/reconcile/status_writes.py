"""When a status that has changed is written.

What a person or a program waits for is written at once. Mere progress waits for five seconds after
the last write: less than the pause between two reconciliations of a stream, so each of them writes
what it has seen, and none that follows at once, by an event, writes again.
"""

from __future__ import annotations

from typing import Any

from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Status

#: seconds between two writes of mere progress
_PROGRESS_EVERY = 5.0


def seconds_to_write(written: Status, current: Status, written_at: float, now: float) -> float | None:
    """How long the current status can wait until it is written: a change of phase, condition, run
    or table phase not at all, mere progress until five seconds after the last write; None where it
    is what was written. A clock that was set back makes nothing wait."""
    if written == current:
        return None
    since = now - written_at
    if _significant_fields(written) != _significant_fields(current) or since < 0:
        return 0.0
    return max(0.0, _PROGRESS_EVERY - since)


def _significant_fields(status: Status) -> tuple[Any, ...]:
    return (
        status.observed_generation,
        status.phase,
        tuple((c.type, c.status, c.reason) for c in status.conditions),
        tuple((ref.id, ref.epoch) for k in RunKind if (ref := status.runs.get(k))),
        status.restarts,
        status.schedule,
        status.verification,
        tuple((t.name, t.phase, t.generation, t.reason, t.resnapshot) for t in status.table_status),
    )
