"""The binlogs that count as one history.

A binlog is named after its server (`ServerFacts.log`), and a position is good in the history that
it was taken in only (rule R6). A table that is moved to another server, which needs a proof
(`failover`), keeps the record of where its rows came from: the earlier binlogs.
"""

from __future__ import annotations

from dataclasses import dataclass

#: `mysql:<server_uuid>` or `mariadb:<server_id>`
BinlogId = str
#: binlogs that a lineage keeps
_MOST = 16


@dataclass(frozen=True)
class Lineage:
    """`binlogs`, the oldest first; a table's position is in the newest of them."""

    binlogs: tuple[BinlogId, ...]

    def __post_init__(self) -> None:
        if not self.binlogs:
            raise ValueError("a lineage without a binlog; needed at least one")

    @classmethod
    def of(cls, binlog: BinlogId) -> Lineage:
        return cls((binlog,))

    @property
    def newest(self) -> BinlogId:
        return self.binlogs[-1]

    def accepts(self, binlog: BinlogId) -> bool:
        """Whether a position of this lineage may be resumed in `binlog`: an offset means nothing in
        an earlier one."""
        return binlog == self.newest

    def moved_to(self, binlog: BinlogId) -> Lineage:
        """Adds the binlog of another server; leaves out the oldest ones beyond the limit."""
        return Lineage((*self.binlogs, binlog)[-_MOST:])

    def leads_to(self, later: Lineage) -> bool:
        """Whether `later` is this lineage, or that of one move from here."""
        return later in (self, self.moved_to(later.newest))

    def __str__(self) -> str:
        return ", ".join(self.binlogs)
