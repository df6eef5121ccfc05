"""What each connection of a run proves before anything is taken from the source: that it reaches
the binlog of a position (rule R6), and that this binlog has every change (rule R10).

A server that was restarted, restored or replaced answers as well as the one before. Its settings
are those of its configuration of now, whatever the preflight found when the sync began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError, fail
from cdcsync_core.positions.lineage import BinlogId, Lineage
from cdcsync_core.positions.position import Position
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.checks import Level
from cdcsync_mysql.positions.history import COMMIT_SECONDS, verify_resumable
from cdcsync_mysql.rds import on_rds
from cdcsync_mysql.readiness.cascades import LOGGED_SINCE, cascades, unlogged_error
from cdcsync_mysql.readiness.replica_check import replica_faults
from cdcsync_mysql.readiness.servercheck import CHECKS, Server, carry_out, read_server
from cdcsync_mysql.server import ServerFacts, global_variables, read_facts
from cdcsync_mysql.sessions.connection import Connection, Source, connect, fetch
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection


class SourceSession:
    """One connection of a run to the source, and what its server is. The connection is had by a
    proof, or for one, only: `facts` are asked for when it is made, the rest at the first proof."""

    def __init__(self, connection: SourceConnection) -> None:
        self.facts = read_facts(connection)
        self._connection, self._complete = connection, False

    @property
    def source(self) -> Source:
        """The host that was reached, and no other."""
        return self._connection.source

    def proved(
        self, lineage: Lineage, position: Position | None = None, commit_seconds: int = COMMIT_SECONDS
    ) -> SourceConnection:
        """The connection, which reaches the binlog that `lineage` ends with, where everything since
        `position` is. Raises PositionLost and SourceUnreachable as `verify_resumable`, SourceMoved
        where another server may be proved to lead on from it, and as `refuse_hidden_changes`."""
        if not lineage.accepts(self.facts.log) and may_lead_on(self.facts, lineage):
            raise source_moved(self.facts.log, lineage)
        verify_resumable(self._connection, self.facts, lineage, position, commit_seconds)
        self.refuse_hidden_changes()
        return self._connection

    def unproved(self) -> SourceConnection:
        """The connection for a proof that this server leads on from another one's binlog. Raises as
        `refuse_hidden_changes`."""
        self.refuse_hidden_changes()
        return self._connection

    def on_replica_of(self, source: ServerFacts) -> SourceConnection:
        """The connection, whose server is a replica of that of `source` with its rows. Raises
        SnapshotHostUnfit."""
        for fault in replica_faults(self._connection, self.facts, source):
            raise fault.error
        return self._connection

    def refuse_hidden_changes(self) -> None:
        """Raises what the preflight refuses of a server that hides changes: BinlogDisabled,
        BinlogFormatNotRow, RowImageNotFull, RowMetadataNotFull, LogIncomplete."""
        if not self._complete:
            verify_nothing_hidden(self._connection.source, self._connection, self.facts)
        self._complete = True


class SourceMoved(TransientError):
    """Another server answers for the source. The next run proves whether it leads on from the
    binlog before."""


def may_lead_on(facts: ServerFacts, lineage: Lineage) -> bool:
    """Whether another server's binlog can be proved to lead on from that of `lineage`: GTIDs mean
    the same on both."""
    return (facts.gtid or facts.flavor == "mariadb") and lineage.newest.startswith(f"{facts.flavor}:")


def source_moved(binlog: BinlogId, lineage: Lineage) -> SourceMoved:
    return SourceMoved(
        Reason.SOURCE_UNREACHABLE,
        f"another server answers, whose binlog is {binlog}",
        needed=f"{lineage.newest}, or a run of the stream that proves that this one leads on from it",
        remedy="none: the next run of the stream moves the tables by a proof",
    )


def source_left() -> SourceMoved:
    return SourceMoved(
        Reason.SOURCE_UNREACHABLE,
        "the server became read-only and is no replica, so it gets no changes any more",
        needed="a server that gets them",
        remedy="none: the next run takes another one of spec.source.hosts",
    )


@contextmanager
def open_session(
    source: Source,
    *,
    max_seconds: int = 60,
    read_timeout: float | None = None,
    stream: bool = False,
    patience: float = 0.0,
) -> Iterator[SourceSession]:
    """The door to the source for all that a run asks of it; the parameters are those of `connect`.
    Raises as `connect` does."""
    with connect(
        source, max_seconds=max_seconds, read_timeout=read_timeout, stream=stream, patience=patience
    ) as connection:
        yield SourceSession(cast(SourceConnection, connection))


def verify_nothing_hidden(source: Source, connection: Connection, facts: ServerFacts) -> None:
    """Raises what would keep changes out of the binlog: the failures that the preflight would
    find."""
    rows = [row for row in CHECKS if row.hides]
    variables = global_variables(connection, *(name for row in rows for name in row.hides))
    server = Server(source, connection, facts, variables, account="")
    if not any(c.level is Level.FAIL for row in rows for c in row.check(server)):
        return
    server = read_server(source, connection, facts, replica_id=0)
    for check in [c for row in rows for c in carry_out(row, server) if c.level is Level.FAIL]:
        raise on_rds(check).error if server.rds else check.error


def tables_with_unlogged_cascades(
    connection: Connection, facts: ServerFacts, tables: Iterable[TableId]
) -> dict[TableId, CdcError]:
    """The tables that the preflight would refuse by now for their foreign keys, each with its
    error: what a server logs of cascades may change with its restart. A table whose definition
    cannot be read is refused with the reason; one that is gone is not: the binlog has its DROP."""
    name = "innodb_native_foreign_keys"
    if facts.flavor != "mysql" or facts.numbers < LOGGED_SINCE:
        return {}
    if global_variables(connection, name).get(name, "OFF") == "OFF":
        return {}
    errors = {table: _error_of_cascades(connection, table) for table in tables}
    return {table: error for table, error in errors.items() if error is not None}


def _error_of_cascades(connection: Connection, table: TableId) -> CdcError | None:
    """Raises what passes, or what is not known: a retry may not find it."""
    try:
        actions = cascades(str(fetch(connection, f"SHOW CREATE TABLE {table.quoted}")[0][1]))
    except PermanentError as e:
        if e.reason is Reason.NO_SUCH_TABLE:
            return None
        return fail(e.reason, e.found, needed=e.needed, remedy=e.remedy, table=str(table))
    return unlogged_error(table, actions) if actions else None
