"""The binlogs that count as one history.

A binlog is named after its server (`ServerFacts.log`), and a position is good in the history that
it was taken in only (rule R6). Today a history is one binlog: another server is refused until the
table is resnapshotted. The earlier binlogs have their place here so that a table which is moved to
another server by a proof keeps the record of where its rows came from.
"""

from __future__ import annotations

from dataclasses import dataclass

#: `mysql:<server_uuid>` or `mariadb:<server_id>`
BinlogId = str


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

    def __str__(self) -> str:
        return ", ".join(self.binlogs)
