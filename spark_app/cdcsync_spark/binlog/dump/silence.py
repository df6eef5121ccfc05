"""What a heartbeat from the end of the binlog is worth: nothing, until a proof has followed it.

Why it is right: the proof is made after the heartbeat came. It shows that the binlog is still ours
and ends where the dump stands, so at the time of the heartbeat nothing was behind it. Where it ends
further on, the rest is on its way, and the heartbeat does not count; where nothing has come three
heartbeats later, the dump follows another file than the server writes, and is opened again. A proof
that could not be made changes nothing: the heartbeat does not count, not even as a sign of life,
and the next one is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cdcsync_core.errors import Reason, TransientError, fail
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_mysql.readiness.proof import SourceMoved
from cdcsync_spark.logs import get_logger

_log = get_logger()


#: heartbeats while which what is behind them may be on its way
_ON_ITS_WAY = 3


class Note(Protocol):
    def __call__(self, last: float, end: float | None = None) -> None: ...


@dataclass
class Silence:
    """The heartbeats of one dump. `prove_end` gives the end of the source's binlog, after a proof
    that it leads on from a position; `note` takes when something came, and that nothing was behind
    it."""

    prove_end: Callable[[Position], LogOffset]
    clock: Callable[[], float]
    note: Note
    #: of the last heartbeats, where all of them came from one place and the binlog ended beyond it
    _behind: tuple[LogOffset, ...] = ()

    def prove(self, waits_at: Position) -> None:
        """Called when a heartbeat has come from there. Raises PositionLost, SourceUnreachable where
        the dump does not follow the binlog, and what `prove` raises of hidden changes."""
        came, at = self.clock(), waits_at.at
        assert at is not None, "the place that a heartbeat names"
        try:
            end = self.prove_end(waits_at)
        except SourceMoved:
            raise
        except TransientError as e:
            _log.warning("a heartbeat could not be proved", at=str(at), error=e.message)
            return
        if at.covers(end):
            self._behind = ()
            self.note(last=came, end=came)
            return
        self._behind = (*(place for place in self._behind if place == at), at)
        if len(self._behind) > _ON_ITS_WAY:
            raise _does_not_follow(at, end)
        self.note(last=came)


def _does_not_follow(at: LogOffset, end: LogOffset) -> Exception:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        f"the dump waits at {at} for {_ON_ITS_WAY} heartbeats, and the binlog ends at {end}",
        needed="a dump of the file that the server writes",
    )
