"""The witnesses of the reader's position, kept while transactions are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import GtidPosition, Position
from cdcsync_core.positions.witness import Witness, with_newest


class ReadWitnesses:
    """Begins at `start`; each transaction that is read is added once, in order."""

    def __init__(self, start: Position) -> None:
        self.found: tuple[Witness, ...] = start.witnesses if isinstance(start, GtidPosition) else ()
        gtids = start.gtids.items() if isinstance(start, GtidPosition) else ()
        self._counts = Counter({source: sum(b - a + 1 for a, b in intervals) for source, intervals in gtids})
        self._total = self._counts.total()

    def add_all(self, witnesses: Iterable[tuple[Gtid, float, int]]) -> None:
        for gtid, committed_at, passed in witnesses:
            self.add(gtid, committed_at, passed)

    def add(self, gtid: Gtid | None, committed_at: float, passed: int = 1) -> None:
        """`passed` transactions of its source were read, of which it is the last; None for one
        without GTID."""
        if gtid is None:
            return
        self._counts[gtid.source] += passed
        self._total += passed
        others = self._total - self._counts[gtid.source]
        self.found = with_newest(Witness(gtid, round(committed_at * 1e6), others), self.found)
