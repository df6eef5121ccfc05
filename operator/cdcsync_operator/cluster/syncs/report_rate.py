"""How often a driver reports: one whose tables change does every two seconds, any other every ten.

What the operator shows of the first is older with each report that it has not seen, so it is
reconciled more often; a quiet one costs no more for that.
"""

from __future__ import annotations

from dataclasses import dataclass

#: the shortest time over which reports are counted: a reconciliation may follow on another at once
_COUNTED_SECONDS = 5.0
#: reports a second, between those of the two kinds of drivers
_OFTEN = 0.25


@dataclass
class ReportRate:
    """Counts the reports of one sync's run, which are numbered."""

    often: bool = False
    _run: str = ""
    _number: int = 0
    _at: float = 0.0

    def note(self, run: str, number: int, now: float) -> None:
        """`number` is that of the newest report at the time `now`."""
        seconds = now - self._at
        if run == self._run and 0 <= seconds < _COUNTED_SECONDS:
            return
        self.often = run == self._run and number - self._number > _OFTEN * seconds
        self._run, self._number, self._at = run, number, now
