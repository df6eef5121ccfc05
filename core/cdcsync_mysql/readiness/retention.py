"""How long the source keeps its binlog: from one time of a schedule to the next, and below the
positions of a stream.

A server purges a file when that was last written longer ago than it keeps binlogs, at the next
rotation. So a file that is being written is kept at least that long, and one that has ended from
its end on, which is the beginning of the next one. A schedule does not foresee a purge by hand or
by size; a stream sees in the list of files how far a purge has come, whatever made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import file_number
from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.resource.schedule_spec import Schedule
from cdcsync_core.timestamps import utc
from cdcsync_mysql.checks import Check, passed, warned
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.rds import KEEP_BINLOG
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import log_retention_seconds
from cdcsync_mysql.sessions.connection import Source, connect, fetch
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection

#: a stream should be away for this part of the binlog's retention at most
_SAFE_PART = 0.5
#: seconds a statement of `kept_binlog` may take
_MAX_SECONDS = 20


def kept_until(source: Source, file: str) -> float | None:
    """Unix seconds up to which the server keeps a file that has ended; 0 where it is gone, None
    while it is written or where nothing is purged. Raises CdcError."""
    with connect(source) as connection:
        files = [str(row[0]) for row in fetch(connection, "SHOW BINARY LOGS")]
        retention = log_retention_seconds(connection)
        reached = cast(SourceConnection, connection).source
    if file not in files:
        return 0.0
    after = files[files.index(file) + 1 :]
    return file_created_at(reached, after[0]) + retention if after and retention else None


@dataclass(frozen=True)
class KeptBinlog:
    """The files that a server lists, by the numbers of the `oldest` and the `newest`, and for how
    many `seconds` it keeps one (0: as long as it lives)."""

    oldest: int
    newest: int
    seconds: float

    @property
    def safe_from(self) -> int:
        """The first file of the newer half: the next purge may take an older one."""
        return (self.oldest + self.newest + 1) // 2


def kept_binlog(source: Source, lineage: Lineage) -> KeptBinlog:
    """Raises CdcError where the server cannot be asked, or is not that of `lineage`."""
    with open_session(source, max_seconds=_MAX_SECONDS) as session:
        connection = session.proved(lineage)
        numbers = [file_number(str(row[0])) for row in fetch(connection, "SHOW BINARY LOGS")]
        return KeptBinlog(min(numbers), max(numbers), log_retention_seconds(connection))


def check_schedule(schedule: Schedule, retention: float, now: float, *, rds: bool = False) -> Check:
    """`retention` in seconds, 0 for as long as the server lives."""
    name, gap = "stream.schedule", schedule.longest_gap(now)
    found = f"the next time is {utc(schedule.next_after(now))}, and up to {show_seconds(gap)} are between two"
    if not retention or gap <= _SAFE_PART * retention:
        return passed(name, found)
    return warned(
        name,
        f"{found}, while the binlog is kept for {show_seconds(retention)}",
        "a binlog that outlives the time between two, twice over",
        f"{KEEP_BINLOG if rds else 'raise binlog_expire_logs_seconds'}, or choose more times",
    )
