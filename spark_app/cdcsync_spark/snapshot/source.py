"""What a snapshot asks of its source: watermarks, whether the binlog still leads on from them, and
splits that no plan has.

Why it exists: the snapshot's rules (what is committed when) hold for any source that keeps these
promises, so they are tested on one in memory; `LiveSource` keeps them on a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.resource.snapshot_spec import MaxLoad
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.readiness.load import excess
from cdcsync_mysql.readiness.proof import SourceSession, open_session
from cdcsync_mysql.readiness.snapshot_host import SnapshotHost
from cdcsync_mysql.reading.catalog import refuse_unlike
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source
from cdcsync_spark.snapshot.splits.high_mark import take_high
from cdcsync_spark.snapshot.splits.low_mark import LowMark

#: raises PositionLost where the binlog of this lineage does not lead on from a position
Verify = Callable[[Lineage, Position | None], object]


class SnapshotSource(Protocol):
    """All of it raises CdcError."""

    def low(self) -> Position:
        """A position whose transactions every later SELECT sees."""

    def high(self, lineage: Lineage, low: Position, since: Position | None = None) -> LogOffset:
        """The place behind all that any SELECT has seen so far, on a binlog that leads on from
        `low`. With what proves it on another server where tables are complete by then, of which
        none was read before `since`."""

    def behind(self, low: Position) -> str:
        """What of `low` a SELECT does not see yet, in words; empty where it sees all."""

    def replica_for(self, table: Capture) -> SnapshotHost | None:
        """The replica on which the table's rows are read; None where the source is read."""

    def history(self) -> AbstractContextManager[Verify]:
        """The binlog as it is now, for several questions."""

    def excess(self, most: MaxLoad, tables: Sequence[Capture]) -> str:
        """What is more than it may be of the load of the servers on which these tables' rows are
        read, in words; empty where nothing is."""

    def splits(self, table: Capture, chunk_size: int, frontier: Bound) -> Iterator[Split]:
        """From `frontier` (None: from the beginning) to the open end."""


class LiveSource:
    """A server, with the replica of it on which rows are read, if there is one."""

    def __init__(self, source: Source, facts: ServerFacts, replica: SnapshotHost | None = None) -> None:
        self._source, self._lineage, self._lows = source, facts.lineage, LowMark(source, facts)
        self._replica, self._locks = replica, LockBudget()
        self._on_replica: dict[Capture, bool] = {}

    def low(self) -> Position:
        return self._lows.take()

    def high(self, lineage: Lineage, low: Position, since: Position | None = None) -> LogOffset:
        if since is not None:
            return take_high(self._source, lineage, low, since)
        with open_session(self._source) as session:
            return watermark.high(session.proved(lineage, low), session.facts)

    def behind(self, low: Position) -> str:
        return "" if self._replica is None else self._replica.behind(self._lineage, low)

    def replica_for(self, table: Capture) -> SnapshotHost | None:
        if self._replica is not None and table not in self._on_replica:
            self._on_replica[table] = self._replica.reads(table)
        return self._replica if self._on_replica.get(table) else None

    @contextmanager
    def history(self) -> Iterator[Verify]:
        with open_session(self._source) as session:
            session.refuse_hidden_changes()
            yield session.proved

    def excess(self, most: MaxLoad, tables: Sequence[Capture]) -> str:
        too_much = []
        for on_replica in sorted({self.replica_for(table) is not None for table in tables}):
            with self._reading(on_replica) as session:
                too_much.append(excess(self._proved(session, on_replica), session.facts.flavor, most))
        return "; ".join(filter(None, too_much))

    def splits(self, table: Capture, chunk_size: int, frontier: Bound) -> Iterator[Split]:
        on_replica = self._replica is not None
        with self._reading(on_replica) as session:
            connection = self._proved(session, on_replica)
            if on_replica:
                refuse_unlike(connection, table)
            with self._locks.asking(connection, table.id):
                yield from plan(connection, table, chunk_size, frontier)

    def _reading(self, on_replica: bool) -> AbstractContextManager[SourceSession]:
        return open_session(self._replica.replica if self._replica is not None and on_replica else self._source)

    def _proved(self, session: SourceSession, on_replica: bool) -> Connection:
        if self._replica is not None and on_replica:
            return session.on_replica_of(self._replica.facts)
        return session.proved(self._lineage)
