"""When a snapshot may read: the windows of `spec.snapshot.windows`.

Theory of operation. Outside of them no snapshot begins, and one that reads is drained: it commits
the wave that it has, and the next window goes on behind it. What is read in a wave is bounded, so
little is read after the end of a window. Tables that begin without their rows wait for none, nor do
those that a status has lost: the run asks their targets first, and reports what each has. Pure.
"""

from __future__ import annotations

from cdcsync_core.runs.run import RunKind
from cdcsync_core.timestamps import utc
from cdcsync_operator.decision.needs import Generations
from cdcsync_operator.decision.situation import Situation


def may_begin(s: Situation, unread: Generations) -> Generations:
    """Leaves out the tables that wait for a window."""
    if s.spec.snapshot.closed_until(s.now) is None or _tables_were_lost(s):
        return unread
    return tuple((name, generation) for name, generation in unread if not is_read_from_source(s, name, generation))


def _tables_were_lost(s: Situation) -> bool:
    """Whether no run has reported any of the tables, though a stream has reported its position."""
    return s.status.position is not None and not any(t.run or t.low for t in s.status.table_status)


def is_read_from_source(s: Situation, name: str, generation: int) -> bool:
    """Whether the content is made of the table's rows."""
    return bool(generation) or not s.spec.begins_at_start(name)


def show_window(s: Situation) -> Situation:
    """Sets why a snapshot waits, of which no run is there to report it."""
    run, progress = s.named(RunKind.SNAPSHOT), s.status.snapshot
    if run is not None and run.live:
        return s
    why = _why_closed(s)
    return s if why == progress.throttled else s.with_status(snapshot=progress.model_copy(update={"throttled": why}))


def _why_closed(s: Situation) -> str:
    until = s.spec.snapshot.closed_until(s.now)
    waits = may_begin(s, s.needs.unread) != s.needs.unread
    if until is None or not waits or s.spec.state == "paused":
        return ""
    return f"outside of spec.snapshot.windows, the next one begins at {utc(until)}"
