"""A replica on which a snapshot reads rows, so that its source is spared.

Why the copy is right. The watermarks of a wave are the source's own (rule R1). Before a SELECT, the
replica has executed all of LOW, so the SELECT sees it. Whatever else it sees came from the source's
binlog, so HIGH, which is taken there afterwards, covers it. Between the two the replica may be
anywhere, and may have executed transactions in another order: a row that it shows is that of LOW,
or was left by a transaction behind LOW; these are all in the source's binlog, and are applied again
in its order (R2). It holds for each replica behind a name by itself, because each connection makes
the proof. What a replica must be for that is in `replica_check`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import GtidPosition, Position, other_kind
from cdcsync_mysql.positions.history import COMMIT_SECONDS
from cdcsync_mysql.readiness.proof import SourceSession, open_session
from cdcsync_mysql.readiness.replica_check import applied, errant_error, lacking
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source, fetch_dicts
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_mysql.sessions.replication import channels


@dataclass(frozen=True)
class SnapshotHost:
    """`replica` is where rows are read, `source` the server of which it has to be a replica, and
    `facts` are that one's."""

    replica: Source
    source: Source
    facts: ServerFacts

    def proved(self, session: SourceSession, low: Position) -> SourceConnection:
        """The connection of a session on the replica, of which each later SELECT sees all of `low`.
        Raises SnapshotHostUnfit, and SourceUnreachable where the replica is behind."""
        connection = session.on_replica_of(self.facts)
        missing = lacking(connection, _gtids(low), COMMIT_SECONDS)
        if missing:
            raise fail(
                Reason.SOURCE_UNREACHABLE,
                f"the replica {self.replica.host} lacks {missing}",
                needed="all that the source had when the wave began",
                remedy="none: the snapshot waits for the replica and tries again",
            )
        return connection

    def confirm(self, connection: Connection, lineage: Lineage, low: Position) -> None:
        """Proves that the SELECTs of this connection to the replica saw what the source's binlog
        has, which leads on from `low`, and nothing else. Raises SnapshotHostUnfit and as
        `SourceSession.proved`."""
        seen = applied(connection)
        with open_session(self.source) as session:
            errant = lacking(session.proved(lineage, low), seen, COMMIT_SECONDS)
        if errant:
            raise errant_error(self.replica.host, errant)

    def behind(self, lineage: Lineage, low: Position) -> str:
        """What of `low` the replica lacks, in words; empty where it has all of it and nothing
        else. Raises as `confirm`."""
        with open_session(self.replica) as session:
            connection = session.on_replica_of(self.facts)
            missing = lacking(connection, _gtids(low))
            if not missing:
                self.confirm(connection, lineage, low)
                return ""
            stuck = any(channel.is_stuck for channel in channels(connection, fetch_dicts))
        why = ", and it does not apply what the source writes" if stuck else ""
        return f"the replica {self.replica.host} lacks {missing.count()} transactions of the source{why}"


def _gtids(low: Position) -> GtidSet:
    if not isinstance(low, GtidPosition):
        raise other_kind()
    return low.gtids
