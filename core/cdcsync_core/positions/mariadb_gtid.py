"""MariaDB's GTID position as a value: the last GTID `domain-server-sequence` of each domain.

It identifies a place of a history and orders nothing by itself: with `gtid_strict_mode=OFF`, the
default, the sequence numbers of a domain may go backwards. So two positions are equal or different
(rule R6), and `covers` holds for a history in strict mode only. Source: MariaDB knowledge base,
"Global Transaction ID".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdcsync_core.positions.gtid import Gtid, GtidSet

_GTID = re.compile(r"(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True, order=True)
class MariaDbGtid:
    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @property
    def numbered(self) -> Gtid:
        """As a number among the transactions of its server in its domain."""
        return Gtid(f"{self.domain}-{self.server}", self.sequence)

    @classmethod
    def of(cls, gtid: Gtid) -> MariaDbGtid:
        """The inverse of `numbered`."""
        return cls.parse(f"{gtid.source}-{gtid.number}")

    @classmethod
    def parse(cls, text: str) -> MariaDbGtid:
        match = _GTID.fullmatch(text.strip())
        if not match:
            raise ValueError(f"not a GTID of MariaDB: {text!r}; needed domain-server-sequence")
        return cls(int(match[1]), int(match[2]), int(match[3]))


@dataclass(frozen=True)
class MariaDbGtidPos:
    """`gtids` are sorted, so that equality is structural; empty where the position is unknown, or
    before the first transaction."""

    gtids: tuple[MariaDbGtid, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "gtids", tuple(sorted(set(self.gtids))))

    @classmethod
    def parse(cls, text: str) -> MariaDbGtidPos:
        """Reads the server's text; `""` is the empty position."""
        return cls(tuple(MariaDbGtid.parse(part) for part in text.split(",") if part.strip()))

    def __str__(self) -> str:
        return ",".join(map(str, self.gtids))

    def __bool__(self) -> bool:
        return bool(self.gtids)

    def covers(self, other: MariaDbGtidPos) -> bool:
        """Whether each domain is as far as in `other`; for a history in strict mode."""
        reached = self._sequences()
        return all(reached.get(domain, -1) >= sequence for domain, sequence in other._sequences().items())

    def union(self, other: MariaDbGtidPos) -> MariaDbGtidPos:
        """The further GTID of each domain; for a history in strict mode."""
        newest: dict[int, MariaDbGtid] = {}
        for gtid in sorted((*self.gtids, *other.gtids), key=lambda g: g.sequence):
            newest[gtid.domain] = gtid
        return MariaDbGtidPos(tuple(newest.values()))

    @classmethod
    def last_of(cls, gtids: GtidSet) -> MariaDbGtidPos:
        """The last GTID of each server in each domain."""
        return cls(tuple(MariaDbGtid.of(Gtid(source, own[-1][1])) for source, own in gtids.items()))

    @property
    def only(self) -> Gtid | None:
        """The GTID where there is one domain; None for none and for several."""
        return self.gtids[0].numbered if len(self.gtids) == 1 and self.gtids[0].sequence else None

    @property
    def up_to(self) -> GtidSet:
        """All transactions of these servers up to these GTIDs."""
        return GtidSet({g.numbered.source: [(1, g.sequence)] for g in self.gtids if g.sequence})

    def _sequences(self) -> dict[int, int]:
        servers: dict[int, int] = {}
        for gtid in self.gtids:
            servers[gtid.domain] = max(gtid.sequence, servers.get(gtid.domain, -1))
        return servers


UNKNOWN = MariaDbGtidPos()
