"""The high watermark with what proves it on another server.

Why it is right. Whatever a SELECT saw is in the binlog before the place that is asked for after
it. A transaction that is before that place, or visible, was given its GTID earlier. On MySQL a
session owns it, or it is executed, when both are asked for afterwards (`replica_gtids.applied`);
the status that shows the place has a set of executed ones only, taken before it. On MariaDB the
last GTID of the binlog is of that transaction or of a later one.

The commit times of the last ones are read, because their GTIDs may be given to others: by a server
that lost its tail in a crash and went on. Where a transaction does not end within a moment, or
MariaDB has several domains, the place stands alone, which proves nothing elsewhere. It does, too,
where the question fails, because the rows that were read need no answer.
"""

from __future__ import annotations

import structlog

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import GtidPosition, Place, Position
from cdcsync_core.positions.watermark import HighMark
from cdcsync_core.positions.witness import Witness
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.readiness.replica_gtids import applied, lacking
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source, fetch
from cdcsync_spark.binlog.search.commit_time import commit_time

_log = structlog.get_logger()
#: how long the commits are waited for that are on their way
_SECONDS = 2


def take_high(source: Source, lineage: Lineage, low: Position, since: Position) -> Place:
    """A `HighMark` where the server says enough, for tables of which nothing was read before
    `since`. Raises CdcError as `SourceSession.proved`, to which `low` is given."""
    with open_session(source) as session:
        connection, server = session.proved(lineage, low), session.facts
        place = high(connection, server)
        gtids = _gtids(connection, server)
    try:
        ends = _ends(source, server, gtids, since)
    except CdcError as e:
        _log.warning("what a failover would compare with could not be read", error=str(e))
        return place
    return HighMark(place.file, place.offset, place.binlog, gtids, ends) if ends else place


def _gtids(connection: Connection, server: ServerFacts) -> GtidSet:
    """Empty where they are not known."""
    if server.flavor == "mariadb":
        last = MariaDbGtidPos.parse(str(fetch(connection, "SELECT @@GLOBAL.gtid_binlog_pos")[0][0])).only
        return GtidSet().with_gtids([last] if last else [])
    if not server.gtid:
        return GtidSet()
    gtids = applied(connection, server.flavor)
    return GtidSet() if lacking(connection, server, gtids, _SECONDS) else gtids


def _ends(source: Source, server: ServerFacts, gtids: GtidSet, since: Position) -> tuple[Witness, ...]:
    """The last transactions behind `since`; none where one of them is not found."""
    behind = gtids.subtract(since.gtids) if isinstance(since, GtidPosition) else gtids
    ends = list[Witness]()
    for name, intervals in behind.last(1).items():
        end = Gtid(name, intervals[-1][1])
        committed = commit_time(source, server, end, gtids)
        if committed is None:
            return ()
        ends.append(Witness(end, committed, 0))
    return tuple(ends)
