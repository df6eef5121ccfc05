"""A view of one table as of an exact position, for rows that no key identifies.

Why it exists: changes by key forgive rows that are newer than LOW, because what happened since LOW
is applied again and the last image wins (R2). Without a key a change that is applied twice is a row
too many.

Why it is right. A view has all that its position covers, and may have more, up to HIGH
(`cdcsync_mysql.positions.view`). The binlog up to HIGH is read. Where no transaction behind the
position has rows of the table or a statement, and none behind the floor ends an XA transaction
(whose rows are where it was prepared), the table in the view is the table as of the position: each
change after it is to be applied, once. Else the view is given up and another one is opened. A view
does not keep a table's name to its rows: partitions may be dropped or exchanged and names swapped
until a SELECT has the metadata lock. So that is taken at once, and a statement up to the end of the
binlog behind it counts as well. Rows are not locked, and nothing is written. A table that is
written without a pause is given up after a while, with the reason. The dump has replica id 0, for
which the server ends no other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pymysql

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.positions.view import View, open_view
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source, fetch
from cdcsync_spark.binlog.dump.dump import facts_behind
from cdcsync_spark.binlog.dump.event_bound import bound_unpacked_events
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.wire.binlog import facts as binlog
from cdcsync_spark.wire.sql.syntax.text import Statement

#: how long views are opened one after the other
_SECONDS = 60.0
#: tries after which the floor is taken again, so that little of the binlog is behind it
_TRIES_A_FLOOR = 20


@dataclass(frozen=True)
class ExactView:
    """Opens one on a connection of its caller; `server` is what that connection is of."""

    source: Source
    lineage: Lineage
    server: ServerFacts
    table: TableId
    seconds: float = _SECONDS
    clock: Callable[[], float] = time.monotonic

    def open(self, connection: pymysql.Connection) -> Position:
        """The position that the table in the transaction, which is open then, is as of. Raises
        TableBusy."""
        bound_unpacked_events()
        marks, deadline, tries = LowMark(self.source, self.server), self.clock() + self.seconds, 0
        floor = marks.take()
        while tries == 0 or self.clock() < deadline:
            if tries and tries % _TRIES_A_FLOOR == 0:
                floor = marks.take()
            tries += 1
            view = open_view(connection, self.server, floor)
            fetch(connection, f"SELECT 1 FROM {self.table.quoted} LIMIT 0", doing=f"reading {self.table}")
            locked = high(connection, self.server)
            start = floor if isinstance(floor, FilePosition) else view.position
            if not may_differ(self.facts_after(start), self.table, view, locked):
                return self._complete(view.position)
            fetch(connection, "ROLLBACK")
        raise _written_all_the_time(self.table, tries)

    def _complete(self, position: Position) -> Position:
        """Adds to the position what proves that its file is the one that it was."""
        if isinstance(position, GtidPosition):
            return position
        created = file_created_at(self.source, position.at.file, self.lineage.newest)
        return replace(position, file_created_at=created)

    def facts_after(self, start: Position) -> Iterator[binlog.Fact]:
        """What the binlog has behind `start`, with the rows of the table alone."""
        return facts_behind(self.source, self.lineage, start, lambda table: table == self.table)


def may_differ(facts: Iterable[binlog.Fact], table: TableId, view: View, locked: LogOffset) -> bool:
    """Whether what the transaction reads of the table may be another than as of the view's
    position. `facts` are those from a place on where all was visible before, or those that the
    position does not cover; since `locked` no statement changes the table."""
    rows = stated = ended = False
    for fact in facts:
        stated |= isinstance(fact, Statement | binlog.Incident)
        rows |= isinstance(fact, binlog.RowsEvent) and fact.table == table
        ended |= isinstance(fact, binlog.XaEnd)
        end = _end_of(fact)
        if end is None:
            continue
        if not locked.covers(end):
            return False
        seen = view.high.covers(end)
        if (ended and seen) or ((stated or (rows and seen)) and not _has(view.position, end)):
            return True
        rows = stated = ended = False
    return rows or stated or ended


def _end_of(fact: binlog.Fact) -> LogOffset | None:
    """Where the reader is outside of transactions behind this fact; None within one."""
    if isinstance(fact, binlog.Progress):
        return fact.at
    return fact.id.end if isinstance(fact, binlog.TransactionEnd | binlog.TransactionRollback) and fact.id else None


def _has(position: Position, end: LogOffset) -> bool:
    """Whether the position has what ends there; where it is one of GTIDs, only what it has not is
    read."""
    return isinstance(position, FilePosition) and position.at.covers(end)


def _written_all_the_time(table: TableId, tries: int) -> CdcError:
    return fail(
        Reason.TABLE_BUSY,
        f"each of {tries} views of the table was opened beside a change of it, and it has no key",
        needed="a moment in which the table is not written, or a key",
        remedy=f"pause what writes it for a second, or ALTER TABLE {table.quoted} ADD PRIMARY KEY (...); the sync tries"
        " again by itself",
        table=str(table),
    )
