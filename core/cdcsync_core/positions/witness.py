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
    then: while it has no more of them, everything since is of the witness's source."""

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


def _tenfold(age: int) -> int:
    return sum(age >= begin for begin in _AGES)
