"""What a reader must have passed before rows that a SELECT saw are consistent (rule R2).

Three kinds, because the servers state it in three ways: a place in one server's binlog, a GTID set
(MySQL) or a GTID position (MariaDB in strict mode), which hold on any server of the history.
`cdcsync_mysql.positions.watermark.high` makes places only: a transaction is visible before
`gtid_executed` has it, so that set is a safe LOW and no HIGH.
"""

from __future__ import annotations

from typing import Any

from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import LogOffset, Watermark, other_kind


def join(a: Watermark, b: Watermark) -> Watermark:
    """What is reached where both are reached; raises PositionLost for two kinds or binlogs."""
    if isinstance(a, LogOffset) and isinstance(b, LogOffset):
        return a if a.covers(b) else b
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
