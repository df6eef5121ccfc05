"""Asks targets whether another program has committed to them.

Why it exists: a commit finds what others did to its table (rule R4); a table without changes of its
own makes none for hours. So each target is asked by one cheap question twice a minute, in the
background. What has news is then opened between two batches, so that nothing is decided beside a
commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from cdcsync_spark.stream.applier import StreamTable

#: seconds between two questions about a target
_PAUSE = 30.0


class TargetWatch:
    """Of the run's `tables`; `clock` counts seconds. `begin` and `news` are called between two
    batches."""

    def __init__(
        self,
        tables: Iterable[StreamTable],
        clock: Callable[[], float],
        run: Callable[[Callable[[], None]], None] = lambda work: threading.Thread(target=work, daemon=True).start(),
    ) -> None:
        self._tables = tuple(tables)
        self._clock, self._run = clock, run
        self._next = clock() + _PAUSE
        self._asking = False
        self._found: list[StreamTable] = []

    def begin(self) -> None:
        """Asks in the background, if it is time."""
        now = self._clock()
        if self._asking or now < self._next:
            return
        self._next, self._asking = now + _PAUSE, True
        due = [t for t in self._tables if t.flowing]
        self._run(lambda: self._ask(due))

    def _ask(self, due: Sequence[StreamTable]) -> None:
        try:
            for table in due:
                if table.target.has_news():
                    self._found.append(table)
        finally:
            self._asking = False

    def news(self) -> list[StreamTable]:
        """The tables whose targets have commits of others since the last call."""
        found = [self._found.pop() for _ in range(len(self._found))]
        return [table for table in found if table.flowing]
