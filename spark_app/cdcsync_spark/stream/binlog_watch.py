"""Asks the source which binlog files it still has.

Why it exists: a table without changes has an old position in its last commit, and a run that is
killed leaves it so. Where the file of that position is purged meanwhile, the next run cannot prove
that nothing is missing (rule R6). A server purges by time, and also by size or by hand, and its
settings change while a stream lives. So it is asked now and then, beside the stream. An answer that
cannot be had is asked for again; the time that was known when the run began bounds commits anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cdcsync_core.errors import CdcError
from cdcsync_mysql.readiness.retention import KeptBinlog

#: seconds from one question to the next
_PAUSE = 60.0

#: raises CdcError
AskKept = Callable[[], KeptBinlog]


class BinlogWatch:
    """Asks by `ask`; `clock` counts seconds. `begin` and `news` are called between two batches."""

    def __init__(
        self,
        ask: AskKept,
        clock: Callable[[], float],
        run: Callable[[Callable[[], None]], None] = lambda work: threading.Thread(target=work, daemon=True).start(),
    ) -> None:
        self._ask, self._clock, self._run = ask, clock, run
        self._next = clock() + _PAUSE
        self._asking = False
        self._answer: KeptBinlog | None = None

    def begin(self) -> None:
        """Asks in the background, if it is time."""
        if self._asking or self._clock() < self._next:
            return
        self._next, self._asking = self._clock() + _PAUSE, True
        self._run(self._question)

    def _question(self) -> None:
        try:
            self._answer = self._ask()
        except CdcError:
            pass  # the reader meets the same, and says so
        finally:
            self._asking = False

    def news(self) -> KeptBinlog | None:
        """The answer since the last call; None where there is none."""
        answer, self._answer = self._answer, None
        return answer
