"""How far the targets are: by their own commits, and for idle tables by what the stream reports.

A table without changes keeps an old position in its last commit although the stream has passed the
log for it. Its status says so, and status is written after the fact: what it says is a lower bound.
It is read before the target is opened, so the target has all of it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import yaml

from cdcsync_core.positions.position import Position
from cdcsync_core.runs.status import CONSISTENT, Status
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.snapshot import InexactSnapshot, TargetSnapshot

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SyncStatus(Protocol):
    """The status of the sync whose targets are compared."""

    def read(self) -> Status: ...

    @property
    def running(self) -> bool:
        """Whether anything may bring the targets on."""
        ...


@dataclass(frozen=True)
class StatusFile:
    """The status beside the resource in `file`, and whether a controller holds `lock`. Files that
    are not there say nothing."""

    file: Path
    lock: Path

    def read(self) -> Status:
        return read_status(self.file)

    @property
    def running(self) -> bool:
        if not self.lock.is_file():
            return False
        descriptor = os.open(self.lock, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def read_status(file: Path) -> Status:
    """That of a resource in YAML; the initial one where there is no such file."""
    if not file.is_file():
        return Status()
    data = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 (a safe loader)
    return Status.model_validate(data.get("status") or {})


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
