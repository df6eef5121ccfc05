"""How far the targets are: by their own commits, and for idle tables by what the stream reports.

A table without changes keeps an old position in its last commit although the stream has passed the
log for it. Its status says so, and status is written after the fact: what it says is a lower bound.
It is read before the target is opened, so the target has all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from cdcsync_core.positions.position import Position
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import CONSISTENT
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.snapshot import InexactSnapshot, TargetSnapshot


class Opened(NamedTuple):
    """A version of a target and the position that its rows are as of; `until` where each key is as
    of a place up to there (`InexactSnapshot`). While it is `catching_up` a key may have any row
    that it had since the position, because a snapshot read it later (R2)."""

    snapshot: TargetSnapshot
    position: Position
    until: Position
    catching_up: bool


def open_target(target: Target, name: str, status: Status) -> Opened:
    """`status` must have been read before. The state must have a position."""
    snapshot = target.open_snapshot()
    position, high = position_of(snapshot.state, status, name), snapshot.state.high
    until = snapshot.until if isinstance(snapshot, InexactSnapshot) else None
    catching_up = high is not None and not position.has_reached(high)
    return Opened(snapshot, position, position if until is None else position.join(until), catching_up)


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
