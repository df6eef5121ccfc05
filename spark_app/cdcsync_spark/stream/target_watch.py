"""Asks targets whether another program has committed to them.

Why it exists: a commit finds what others did to its table (rule R4); a table without changes of its
own makes none for hours. So all targets are asked in rounds, one cheap question each, several at a
time, in the background: a round begins every half minute, or when the one before has ended. What
has news is then opened between two batches, so that nothing is decided beside a
commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from cdcsync_spark.stream.apply.stream_table import StreamTable

#: seconds from the beginning of a round to the next
_PAUSE = 30.0
#: targets that are asked at the same time: a question to an object store waits for its answer
_AT_ONCE = 8


class TargetWatch:
    """Watches the targets of the run's `tables`; `clock` counts seconds. `begin` and `news` are
    called between two batches."""

    def __init__(
        self,
        tables: Iterable[StreamTable],
        clock: Callable[[], float],
        run: Callable[[Callable[[], None]], None] = lambda work: threading.Thread(target=work, daemon=True).start(),
    ) -> None:
        self._tables = tuple(tables)
        self._clock, self._run = clock, run
        self._next = clock() + _PAUSE
        self._asking = 0
        self._counting = threading.Lock()
        self._found: list[StreamTable] = []

    def begin(self) -> None:
        """Asks in the background, if it is time."""
        now = self._clock()
        if self._asking or now < self._next:
            return
        due = [t for t in self._tables if t.flowing]
        shares = [share for n in range(_AT_ONCE) if (share := due[n::_AT_ONCE])]
        self._next, self._asking = now + _PAUSE, len(shares)
        for share in shares:
            self._run(partial(self._ask, share))

    def _ask(self, due: Sequence[StreamTable]) -> None:
        try:
            for table in due:
                if table.target.has_news():
                    self._found.append(table)
        finally:
            with self._counting:
                self._asking -= 1

    def news(self) -> Iterator[StreamTable]:
        """The tables whose targets have commits of others since the last call; what a caller leaves
        comes with the next one."""
        while self._found:
            table = self._found.pop()
            if table.flowing:
                yield table
