"""Transactions that prove, on another server, that its binlog leads on from ours.

Why it is right: MySQL keeps the time of a transaction's first commit, in microseconds, through
replication. A server that was reset gives the same GTIDs to other transactions, but at other times.
A tail of transactions may be lost with its server, so the last one alone is not enough: some
earlier ones are kept, about one in each tenfold of age, the oldest some minutes older than the
last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdcsync_core.positions.gtid import Gtid

#: ages in microseconds, relative to the last one, that begin another tenfold; beyond the last of
#: them none is kept
_AGES = (10_000_000, 100_000_000, 1_000_000_000)


@dataclass(frozen=True)
class Witness:
    """A transaction that a position has. `committed` is when it was first committed, in
    microseconds since 1970; `others` counts the transactions that the position had of other sources
    then: so many more as it has, came since."""

    gtid: Gtid
    committed: int
    others: int

    def to_list(self) -> list[Any]:
        return [str(self.gtid), self.committed, self.others]

    @classmethod
    def from_list(cls, data: list[Any]) -> Witness:
        return cls(Gtid.parse(data[0]), data[1], data[2])


def with_newest(newest: Witness, earlier: tuple[Witness, ...]) -> tuple[Witness, ...]:
    """The newest first. Of those in one tenfold of age the oldest is kept, because it is the next
    one of the tenfold behind it."""
    by_age = {_tenfold(newest.committed - w.committed): w for w in earlier if w != newest}
    return (newest, *(by_age[age] for age in sorted(by_age) if age < len(_AGES)))


class WitnessTrail:
    """Takes the transactions of a reader one by one; its witnesses are those of `with_newest` after
    each.

    Why it exists: a transaction of one row costs less to read than `with_newest`. Why it is right:
    what stands behind the newest one changes only where an age enters another tenfold, which takes
    seconds. `_steady` has the times of commit at which nothing does: a transaction of such a time
    is in the tenfold of the one that it follows and of the youngest one behind that, which is no
    younger and stays, unless it is that transaction itself
    (`tests/property/test_witness_trail.py`). MariaDB's times are whole seconds, so that those of a
    busy second are equal.
    """

    def __init__(self, witnesses: tuple[Witness, ...] = ()) -> None:
        self._behind = witnesses[1:]
        self._newest = (witnesses[0].gtid, witnesses[0].committed, witnesses[0].others) if witnesses else None
        self._steady = self._steady_times()

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        return (Witness(*self._newest), *self._behind) if self._newest else ()

    def add(self, gtid: Gtid, committed: int, others: int) -> None:
        begin, end = self._steady
        if begin <= committed < end and (committed != begin or gtid != self._behind[0].gtid):
            self._newest = (gtid, committed, others)
            return
        self._behind = with_newest(Witness(gtid, committed, others), self.witnesses)[1:]
        self._newest = (gtid, committed, others)
        self._steady = self._steady_times()

    def clear(self) -> None:
        self._newest, self._behind, self._steady = None, (), _NEVER

    def _steady_times(self) -> tuple[int, int]:
        """From a first to before a last one; none unless one behind the newest is of its tenfold,
        and the others are of one each."""
        if self._newest is None or not self._behind:
            return _NEVER
        committed = self._newest[1]
        tenfolds = [_tenfold(committed - w.committed) for w in self._behind]
        youngest = self._behind[0].committed
        if committed < youngest or tenfolds[0] != 0:
            return _NEVER
        if tenfolds != sorted(set(tenfolds)) or tenfolds[-1] >= len(_AGES):
            return _NEVER  # a position that `with_newest` did not make
        aged = list(zip(self._behind[1:], tenfolds[1:], strict=True))
        begin = max([youngest, *(w.committed + _AGES[t - 1] for w, t in aged)])
        end = min([youngest + _AGES[0], *(w.committed + _AGES[t] for w, t in aged)])
        return (begin, end) if committed >= begin else _NEVER


#: no time is in it
_NEVER = (0, 0)


def _tenfold(age: int) -> int:
    return sum(age >= begin for begin in _AGES)
