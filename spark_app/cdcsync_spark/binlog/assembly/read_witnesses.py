"""The witnesses of the reader's position, kept while transactions are read.

MySQL's count the transactions of other servers (`Witness.others`). MariaDB's are of one server and
follow one another without a gap, because a place has no set that names what is between them: where
another server writes, or a number is left out, they begin again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.mariadb_gtid import MariaDbGtid, MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, GtidPosition, Position, TransactionId
from cdcsync_core.positions.witness import Witness, WitnessTrail


class ReadWitnesses(Protocol):
    """Takes each transaction that is read once, in order."""

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """The position's."""

    @property
    def others(self) -> MariaDbGtidPos | None:
        """The last GTIDs of MariaDB's other servers; None where they are not known."""

    def learn(self, state: MariaDbGtidPos) -> None:
        """Takes the last GTIDs of all of MariaDB's servers up to here."""

    def add(self, transaction: TransactionId, committed_at: float) -> None:
        """Adds the next transaction."""

    def add_all(self, witnesses: Iterable[tuple[Gtid, float, int]]) -> None:
        """Adds transactions, each with how many of its source were read, on MariaDB without a gap,
        of which it is the last."""


def witnesses_since(start: Position) -> ReadWitnesses:
    """The witnesses of a reader that begins at `start`."""
    return SetWitnesses(start) if isinstance(start, GtidPosition) else NumberedWitnesses(start)


class SetWitnesses:
    """MySQL's."""

    others: MariaDbGtidPos | None = None

    def __init__(self, start: GtidPosition) -> None:
        self._trail = WitnessTrail(start.witnesses)
        counts = {source: sum(b - a + 1 for a, b in intervals) for source, intervals in start.gtids.items()}
        self._counts = Counter(counts)
        self._total = self._counts.total()

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        return self._trail.witnesses

    def learn(self, state: MariaDbGtidPos) -> None:
        """Takes nothing: the set has all of it."""

    def add(self, transaction: TransactionId, committed_at: float) -> None:
        if transaction.gtid is not None:
            self._add(transaction.gtid, committed_at, 1)

    def add_all(self, witnesses: Iterable[tuple[Gtid, float, int]]) -> None:
        for gtid, committed_at, passed in witnesses:
            self._add(gtid, committed_at, passed)

    def _add(self, gtid: Gtid, committed_at: float, passed: int) -> None:
        self._counts[gtid.source] += passed
        self._total += passed
        others = self._total - self._counts[gtid.source]
        self._trail.add(gtid, round(committed_at * 1e6), others)


class NumberedWitnesses:
    """MariaDB's; of a server without GTIDs there are none."""

    def __init__(self, start: FilePosition) -> None:
        self._trail = WitnessTrail(start.witnesses)
        self._last = start.gtid_pos.only
        self._others: dict[str, int] | None = None
        if start.others is not None:
            self.learn(start.others)

    def learn(self, state: MariaDbGtidPos) -> None:
        self._others = {g.numbered.source: g.sequence for g in state.gtids}
        if self._last is not None:
            self._others.pop(self._last.source, None)

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        return self._trail.witnesses

    @property
    def others(self) -> MariaDbGtidPos | None:
        if self._others is None:
            return None
        return MariaDbGtidPos(tuple(MariaDbGtid.of(Gtid(*item)) for item in self._others.items()))

    def add(self, transaction: TransactionId, committed_at: float) -> None:
        group, _, number = transaction.mariadb_gtid.rpartition("-")
        if group:
            self._add(Gtid(group, int(number)), committed_at, 1)

    def add_all(self, witnesses: Iterable[tuple[Gtid, float, int]]) -> None:
        for gtid, committed_at, passed in witnesses:
            self._add(gtid, committed_at, passed)

    def _add(self, gtid: Gtid, committed_at: float, passed: int) -> None:
        last, self._last = self._last, gtid
        if last is not None and last.source == gtid.source and last.number + passed == gtid.number:
            self._trail.add(gtid, round(committed_at * 1e6), 0)
            return
        self._trail.clear()
        if self._others is not None:
            if last is not None:
                self._others[last.source] = last.number
            self._others.pop(gtid.source, None)
