"""How far the targets are: by their own commits, and for idle tables by what the stream reports.

A table without changes keeps an old position in its last commit although the stream has passed the
log for it. Its status says so, and status is written after the fact: what it says is a lower bound.
It is read before the target is opened, so the target has all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from cdcsync_core.positions.position import Position
from cdcsync_core.runs.status import CONSISTENT, Status
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.snapshot import InexactSnapshot, TargetSnapshot


class Opened(NamedTuple):
    """A version of a target and the position that its rows are as of; `until` where each key is as
    of a place up to there (`InexactSnapshot`)."""

    snapshot: TargetSnapshot
    position: Position
    until: Position


def open_target(target: Target, name: str, status: Status) -> Opened:
    """`status` must have been read before. The state must have a position."""
    snapshot = target.open_snapshot()
    position = position_of(snapshot.state, status, name)
    until = snapshot.until if isinstance(snapshot, InexactSnapshot) else None
    return Opened(snapshot, position, position if until is None else position.join(until))


def position_of(state: TableState, status: Status, name: str) -> Position:
    """What the target's content has: its own position, and what the stream has passed for it since
    in the same binlog."""
    position, entry = state.position, status.table(name)
    assert position is not None
    if entry is None or entry.phase not in CONSISTENT or entry.generation != state.generation:
        return position
    for passed in status.covered_positions(entry):
        if passed.binlog == (position.binlog or ""):
            position = position.join(passed.parsed())
    return position
