"""How a transaction gets on. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


def _now() -> float:
    """Seconds, those in which the machine sleeps included: the brokers count them, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Pace:
    """The pace of one transaction, from now on."""

    clock: Callable[[], float] = _now
    _longest: float = 0.0
    _left: int = 0

    def __post_init__(self) -> None:
        self._begun = self._moved = self.clock()

    @property
    def seconds(self) -> float:
        return self.clock() - self._begun

    @property
    def pause(self) -> float:
        """Seconds since something was queued or acknowledged."""
        return self.clock() - self._moved

    @property
    def longest_pause(self) -> float:
        return max(self._longest, self.pause)

    def note(self, left: int) -> None:
        """So many records are queued and not acknowledged; another number is progress."""
        if left != self._left:
            self.moved()
        self._left = left

    def moved(self) -> None:
        self._longest = self.longest_pause
        self._moved = self.clock()
