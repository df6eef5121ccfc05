"""The GTIDs of transactions that were read since the last batch."""

from __future__ import annotations

from cdcsync_core.positions.gtid import Gtid, GtidSet


class ReadGtids:
    """Joined to a set, `at_once` at a time: a set costs more for each than a list."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._single: list[Gtid] = []
        self._joined = GtidSet()

    def add(self, gtid: Gtid | None) -> None:
        """None for a transaction without."""
        if gtid is None:
            return
        self._single.append(gtid)
        if len(self._single) >= self._at_once:
            self._joined, self._single = self._joined.with_gtids(self._single), []

    def join(self, gtids: GtidSet) -> None:
        self._joined = self._joined.union(gtids)

    def added_to(self, gtids: GtidSet) -> GtidSet:
        return gtids.union(self._joined).with_gtids(self._single)
