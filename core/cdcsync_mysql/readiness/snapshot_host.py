"""A replica on which a snapshot reads rows, so that its source is spared.

Why the copy is right. The watermarks of a wave are the source's own (rule R1). Before a SELECT, the
replica has executed all of LOW, so the SELECT sees it. Whatever else it sees came from the source's
binlog, so HIGH, which is taken there afterwards, covers it. Between the two the replica may be
anywhere, and may have executed transactions in another order: a row that it shows is that of LOW,
or was left by a transaction behind LOW; these are all in the source's binlog, and are applied again
in its order (R2). It holds for each replica behind a name by itself, because each connection makes
the proof. What a replica must be for that is in `replica_check`, how GTIDs say what it has executed
in `replica_gtids`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import GtidPosition, Position, other_kind
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.positions.history import COMMIT_SECONDS
from cdcsync_mysql.readiness.failover_check import drawn_defaults
from cdcsync_mysql.readiness.proof import SourceSession, open_session
from cdcsync_mysql.readiness.replica_gtids import applied, errant, errant_error, gtid_text, lacking
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source, fetch, fetch_dicts
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_mysql.sessions.replication import channels
from cdcsync_mysql.sessions.version import Flavor


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
        missing = lacking(connection, session.facts, self._gtids(low), COMMIT_SECONDS)
        if missing:
            raise fail(
                Reason.SOURCE_UNREACHABLE,
                f"the replica {self.replica.host} lacks {gtid_text(missing, self.facts.flavor)}",
                needed="all that the source had when the wave began",
                remedy="none: the snapshot waits for the replica and tries again",
            )
        return connection

    def confirm(self, connection: Connection, lineage: Lineage, low: Position) -> None:
        """Proves that the SELECTs of this connection to the replica saw what the source's binlog
        has, which leads on from `low`, and nothing else. Raises SnapshotHostUnfit and as
        `SourceSession.proved`."""
        seen = applied(connection, self.facts.flavor)
        with open_session(self.source) as session:
            own = errant(session.proved(lineage, low), session.facts, seen)
        if own:
            raise errant_error(self.replica.host, own, self.facts.flavor)

    def behind(self, lineage: Lineage, low: Position) -> str:
        """What of `low` the replica lacks, in words; empty where it has all of it and nothing
        else. Raises as `confirm`."""
        with open_session(self.replica) as session:
            connection = session.on_replica_of(self.facts)
            missing = lacking(connection, session.facts, self._gtids(low))
            if not missing:
                self.confirm(connection, lineage, low)
                return ""
            stuck = any(channel.is_stuck for channel in channels(connection, fetch_dicts))
        why = ", and it does not apply what the source writes" if stuck else ""
        return f"the replica {self.replica.host} lacks {_amount(missing, self.facts.flavor)} of the source{why}"

    def reads(self, table: Capture) -> bool:
        """Whether the table's rows are read on the replica. A table without a key, or with a
        declared one, needs an exact view of its source. MariaDB gives a column that is added with a
        default such as UUID() other values on each server, with no trace in the binlog."""
        if table.chunk_key is None or self.facts.flavor != "mariadb":
            return table.chunk_key is not None
        with open_session(self.source) as session:
            return not drawn_defaults(session.proved(self.facts.lineage), table.id, ())

    def _gtids(self, low: Position) -> GtidSet:
        """All of `low`, or more. On MariaDB the last transaction of each domain stands for those
        before it; where a place has no GTID position, the end of the binlog has one."""
        if isinstance(low, GtidPosition):
            return low.gtids
        if self.facts.flavor != "mariadb":
            raise other_kind()
        return (low.gtid_pos or self._end_of_source()).up_to

    def _end_of_source(self) -> MariaDbGtidPos:
        with open_session(self.source) as session:
            rows = fetch(session.proved(self.facts.lineage), "SELECT @@GLOBAL.gtid_binlog_pos")
        return MariaDbGtidPos.parse(str(rows[0][0]))


def _amount(missing: GtidSet, flavor: Flavor) -> str:
    """How many transactions are missing, in words. On MariaDB their numbers have gaps, so the last
    ones say it."""
    if flavor == "mariadb":
        return f"transactions up to {gtid_text(missing, flavor)}"
    return f"{missing.count()} transactions"
