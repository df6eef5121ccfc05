"""What a reader must have passed before rows that a SELECT saw are consistent (rule R2).

Three kinds, because the servers state it in three ways: a place in one server's binlog, a GTID set
(MySQL) or a GTID position (MariaDB in strict mode), which hold on any server of the history.
`cdcsync_mysql.positions.watermark.high` makes places only: a transaction is visible before
`gtid_executed` has it, so that set is a safe LOW and no HIGH. A `HighMark` names the transactions,
too, so that another server can be asked for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import LogOffset, Place, Watermark, other_kind
from cdcsync_core.positions.witness import Witness


@dataclass(frozen=True)
class HighMark(Place):
    """A high watermark, and what another server has to have if it has all that the rows may
    contain: the transactions `gtids` (on MariaDB the last one alone). `ends` are the last ones of
    each source since LOW: a server that gives their GTIDs to others has other commit times."""

    gtids: GtidSet
    ends: tuple[Witness, ...]

    def at_place(self, place: Place, lost: GtidSet) -> HighMark:
        """The transactions but for the `lost` ones, which never touched the table: these are before
        `place` in another server's binlog."""
        return HighMark(place.file, place.offset, place.binlog, self.gtids.subtract(lost), self.ends)

    @property
    def place(self) -> Place:
        """The place without the transactions."""
        return Place(self.file, self.offset, self.binlog)

    def set_to_dict(self) -> dict[str, Any]:
        """What `watermark_to_dict` leaves out: only a state needs it."""
        return {"gtidSet": str(self.gtids), "ends": [w.to_list() for w in self.ends]}

    @classmethod
    def from_set(cls, place: Place, data: dict[str, Any]) -> HighMark:
        """The inverse of `set_to_dict`."""
        ends = tuple(Witness.from_list(w) for w in data["ends"])
        return cls(place.file, place.offset, place.binlog, GtidSet.parse(data["gtidSet"]), ends)


def join(a: Watermark, b: Watermark) -> Watermark:
    """What is reached where both are reached, `b` being the later one where they are equal; raises
    PositionLost for two kinds or binlogs."""
    if isinstance(a, LogOffset) and isinstance(b, LogOffset):
        return b if b.covers(a) else a
    if isinstance(a, GtidSet) and isinstance(b, GtidSet):
        return a.union(b)
    if isinstance(a, MariaDbGtidPos) and isinstance(b, MariaDbGtidPos):
        return a.union(b)
    raise other_kind()


def watermark_to_dict(watermark: Watermark) -> dict[str, Any]:
    """As states and `status` have it."""
    if isinstance(watermark, LogOffset):
        return watermark.to_dict()
    return {"gtidSet": str(watermark)} | ({"exact": True} if isinstance(watermark, GtidSet) else {})


def watermark_from_dict(data: dict[str, Any], binlog: BinlogId = "") -> Watermark:
    """The inverse of `watermark_to_dict`; an offset is in `binlog`, or in that of a connection."""
    if data.get("file"):
        at = LogOffset(data["file"], data["offset"])
        return at.in_binlog(binlog) if binlog else at
    return (GtidSet if data.get("exact") else MariaDbGtidPos).parse(data["gtidSet"])
