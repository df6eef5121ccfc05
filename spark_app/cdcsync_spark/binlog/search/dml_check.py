"""Whether a change in statement format can reach a captured table: the statement, the catalog, and
the binlog since.

Theory of operation. `wire.sql.row_changes.dml` reads which tables the statement writes and reads.
The source's catalog says which triggers, keys and views hang on them now; the statement was written
earlier. So the binlog from the statement to its end is read for statements that may have taken away
what hung on them then (`wire.sql.changes.relations`): on these tables, on captured ones, and on
those whose changes cascade to captured ones. The chain of foreign keys from a written table to a
captured one begins at the captured one, so whatever broke it first names a table that the catalog
still shows in it. If there is such a statement, the catalog of that time is not known and the
tables stop, as they do for everything else that is not certain. Else the answer is right for the
statement, and for those like it until one comes that may change it (`TransactionAssembler` forgets
it then). Where the statement may be about temporary tables that were not seen, a name that the
source does not have is that of such a table, unless a view of that name was dropped since.

MariaDB's catalog waits for a table that another session locks for DDL. Of a captured one, or a
parent of it, what cascades to it is not known: it alone is held back. The triggers of the written
table may change any captured one, and so may what a read one runs: all wait for these. What
MariaDB answers without the wait cannot replace it: it names no trigger of a locked table, and may
be the result of a DDL that is not in the binlog yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace

from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.readiness.reach import Cascades, cascades_to, fault_of_reading, fault_of_writing
from cdcsync_mysql.sessions.connection import Connection, Source
from cdcsync_spark.binlog.assembly.known_reach import Reach
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.sql.changes.relations import may_take_view, may_unrelate
from cdcsync_spark.wire.sql.row_changes.dml import Dml
from cdcsync_spark.wire.sql.syntax.reader import TableName
from cdcsync_spark.wire.sql.syntax.text import Statement


@dataclass(frozen=True)
class DmlCheck:
    """`read` gives the facts of the history `log` from an offset to its end."""

    source: Source
    lineage: Lineage
    captured: tuple[TableId, ...]
    read: Callable[[LogOffset], Iterator[facts.Fact]]
    locks: LockBudget = field(default_factory=LockBudget)

    def reach(self, dml: Dml, place: LogOffset) -> Reach:
        """What the statement, which ends at `place`, may reach besides the table that it writes.
        Raises CdcError: TableBusy where a table that it names is locked."""
        with open_session(self.source) as session:
            reach, related = self._reach_now(session.proved(self.lineage), dml)
        written = _ids((dml.written,) if dml.written else ())
        views = _ids(dml.tables) if dml.in_doubt else ()
        return replace(reach, fault=reach.fault or _fault_since(self.read(place), related, written, views))

    def _reach_now(self, connection: Connection, dml: Dml) -> tuple[Reach, set[TableId]]:
        """What the catalog says, and the tables whose relations it says so of."""
        read = _ids(dml.read)
        fault, related, cascades = "", set(read), Cascades()
        if dml.written is not None:
            (written,) = _ids((dml.written,))
            cascades = cascades_to(connection, self.captured, self.locks)
            with self.locks.asking(connection, written):
                fault = fault_of_writing(connection, written, cascades, in_doubt=dml.in_doubt)
            related |= {written, *self.captured, *(TableId(*name) for name in cascades.parents)}
        for table in read:
            with self.locks.asking(connection, table):
                fault = fault or fault_of_reading(connection, table, in_doubt=dml.in_doubt)
        return Reach(fault, cascades.locked), related


def _ids(names: Iterable[TableName]) -> tuple[TableId, ...]:
    return tuple(TableId(name.database, name.name) for name in names)


def _fault_since(
    read: Iterable[facts.Fact], related: Set[TableId], written: tuple[TableId, ...], views: tuple[TableId, ...]
) -> str:
    for fact in read:
        if isinstance(fact, Statement) and (may_unrelate(fact, related, written) or may_take_view(fact, views)):
            return f"what hangs on its tables may have changed since: {' '.join(fact.sql.split())[:80]}"
    return ""
