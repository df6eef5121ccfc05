"""When the last report of a run came, and for how long none has come.

Why it is right: the clocks of two machines differ, and a report has the time of its driver's. A
report that is met now and was not there the last time was written in between by the clock of this
process, so its time is taken within these bounds only. Silence is counted by this clock alone, and
only over observations that follow one another: while the API server refuses or does not answer, or
the operator stands still, drivers report in vain, so the count begins again afterwards. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

#: seconds between two observations beyond which nothing is known of what was reported in between
_GAP = 60.0


@dataclass
class ReportTimes:
    """Times of one run in unix seconds of this process: the last report, of this `number`, was not
    there yet at `after`, and was there at `by`."""

    number: int = -1
    after: float = float("-inf")
    by: float = 0.0
    observed_at: float = float("-inf")
    silent_since: float = 0.0

    def note(self, number: int, now: float) -> None:
        """The number of the last report as it is observed."""
        if number != self.number:
            self.number, self.after, self.by = number, self.observed_at, now
            self.silent_since = now
        elif not 0 <= now - self.observed_at <= _GAP:
            self.silent_since = now
        self.observed_at = now

    def count_anew(self, now: float) -> None:
        """What was reported up to now may not have been taken."""
        self.silent_since = now

    def bounded(self, at: float) -> float:
        """The time of the last report, of which its driver says that it was `at`."""
        return min(max(at, self.after), self.by)

    def silent_seconds(self, now: float) -> float:
        return now - self.silent_since
