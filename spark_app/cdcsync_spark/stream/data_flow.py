"""How far behind a stream is, and for how long what it has received waits for a commit. Pure.

Why it is right: what was committed on the source up to the time of the position is applied. That is
the commit time of the last transaction that was applied; where a heartbeat came from the end of the
binlog, nothing came after it and nothing waits, it is the time of that heartbeat. So the lag grows
with the clock whenever nothing more is known, whatever the reason; only a heartbeat that is not
overdue shows that there is none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from cdcsync_core.runs.run import Flow
from cdcsync_spark.binlog.dump.reader_health import Received

#: heartbeat intervals for which a heartbeat counts: one may be late
_HEARTBEATS = 2.0
#: seconds between two marks of what has been received; how exact an age is
_STEP = 1.0


@dataclass
class Backlog:
    """Since when the oldest change that was received waits; times are of one clock, changes are
    counted as in `BinlogBatch`."""

    _marks: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, now: float, received: int, applied: int) -> None:
        while self._marks and self._marks[0][1] <= applied:
            self._marks.popleft()
        newest = self._marks[-1] if self._marks else (float("-inf"), applied)
        if received > newest[1] and now - newest[0] >= _STEP:
            self._marks.append((now, received))

    def waiting(self, now: float) -> float:
        """Seconds; 0 where nothing waits."""
        return now - self._marks[0][0] if self._marks else 0.0


def flow(received: Received | None, now: float, waiting: float, committed: float | None) -> Flow:
    """`now`, and `committed`, the time of the last commit, are of the clock of `received`.

    A reader that waits until a batch is taken does not listen, so the source is not called silent.
    """
    commit = None if committed is None else round(now - committed, 1)
    if received is None:
        return Flow(waiting=round(waiting, 1), commit=commit)
    last = received.since if received.last is None else received.last
    silence = 0.0 if received.blocked else round(max(0.0, now - last), 1)
    return Flow(received.last is not None, silence, round(waiting, 1), commit)


def idle_since(received: Received | None, now: float, applied: int) -> float | None:
    """The age of the heartbeat that says that all is applied; None where none does."""
    if received is None or received.end is None or received.changes > applied:
        return None
    return max(0.0, now - received.end)


def lag_seconds(position_age: float | None, idle: float | None, heartbeat: float) -> float | None:
    """Seconds behind the source: the age of what is applied (None: not known yet), or none while
    the source has nothing to send.

    `idle` is the age of the heartbeat that says so, `heartbeat` the interval of heartbeats.
    """
    if idle is not None and idle <= _HEARTBEATS * heartbeat:
        return 0.0
    return None if position_age is None else round(max(0.0, position_age), 3)
