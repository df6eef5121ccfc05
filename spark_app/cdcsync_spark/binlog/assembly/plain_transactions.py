"""Plain transactions of a buffer of events, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cdcsync_core.positions.gtid import Gtid, GtidSet, Interval
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds, intervals_of
from cdcsync_spark.wire.binlog.columnar.plain import Stretch
from cdcsync_spark.wire.binlog.columnar.plain_rows import PlainRows
from cdcsync_spark.wire.binlog.rows_block import RowsBlock
from cdcsync_spark.wire.columns.gather import Cursors, Flags

#: what a transaction with rows that a table lacks costs besides them: id, time, entries in lists
TRANSACTION_BYTES = 100


@dataclass(frozen=True)
class PlainTransactions:
    """The first `count` transactions of a stretch, from `begin` on, as the assembler takes them. Of
    their rows events (`rows`) those are `lacking` that their tables lack; `size` is what all of it
    takes of a batch, `spooled` what of it is rows in memory."""

    stretch: Stretch
    rows: PlainRows
    lacking: Flags
    begin: LogOffset
    count: int
    size: int
    spooled: int
    gtid_pos: str

    @property
    def end(self) -> LogOffset:
        return replace(self.begin, offset=int(self.stretch.ends[self.count - 1]))

    @property
    def timestamp(self) -> float | None:
        """The timestamp of the last transaction that has one."""
        timed = np.flatnonzero(self.stretch.times[: self.count])
        return float(self.stretch.times[timed[-1]]) if len(timed) else None

    @property
    def changing(self) -> Cursors:
        """The transactions with rows that a table lacks."""
        return np.unique(self.rows.transactions[self.lacking])

    @property
    def gtids(self) -> GtidSet:
        intervals: dict[str, list[Interval]] = {}
        for source, low, high in self.runs():
            if source is not None:
                intervals.setdefault(source, []).extend(intervals_of(self.stretch.numbers[low:high]))
        return GtidSet(intervals)

    def witnesses(self) -> Iterator[tuple[Gtid, float, int]]:
        """The first and the last transaction of each source's run, on MariaDB also the second, the
        first that follows another, of a run without a gap in one second: its GTID, when it
        was committed, how many are read since the one before."""
        numbered = self.stretch.domains is not None
        for source, low, high in self._numbered_runs() if numbered else self.runs():
            if source is not None and low < high:
                last = high - 1
                before = low - 1
                for at in sorted({low, min(low + numbered, last), last}):
                    yield self._witness(source, at, at - before)
                    before = at

    def _witness(self, source: str, at: int, passed: int) -> tuple[Gtid, float, int]:
        return Gtid(source, int(self.stretch.numbers[at])), float(self.stretch.times[at]), passed

    def runs(self) -> Iterator[tuple[str | None, int, int]]:
        """The source of GTIDs, None for none, and the transactions with it."""
        starts = [(source, low) for source, low in self.stretch.sources if low < self.count]
        for (source, low), (_, high) in pairwise([*starts, (None, self.count)]):
            yield source, low, high

    def _numbered_runs(self) -> Iterator[tuple[str | None, int, int]]:
        assert self.stretch.domains is not None
        assert self.stretch.servers is not None
        columns = (self.stretch.domains, self.stretch.servers, self.stretch.numbers)
        domains, servers, numbers = (column[: self.count].astype(np.int64) for column in columns)
        times = self.stretch.times[: self.count]
        same = (
            (times[1:] == times[:-1])
            & (domains[1:] == domains[:-1])
            & (servers[1:] == servers[:-1])
            & (numbers[1:] == numbers[:-1] + 1)
        )
        for low, high in pairwise([0, *(np.flatnonzero(~same) + 1).tolist(), self.count]):
            yield f"{domains[low]}-{servers[low]}", low, high

    def blocks(self, first: int) -> Iterator[tuple[TableId, RowsBlock]]:
        """The rows that each table lacks; `first` is the number of the first of the `changing`
        transactions."""
        numbers = np.zeros(self.count, np.int32)
        numbers[self.changing] = np.arange(first, first + len(self.changing))
        for table, events in self.rows.of_tables():
            events = events[self.lacking[events]]
            if len(events):
                for block in self.rows.blocks(events, numbers):
                    yield table, block

    def add_to(self, ids: TransactionIds, committed_at: list[float | None]) -> int:
        """Appends the `changing` transactions; how many these are."""
        changing = self.changing
        ends, numbers = self.stretch.ends.astype(np.uint64), self.stretch.numbers.astype(np.uint64)
        domains, servers = self.stretch.domains, self.stretch.servers
        if domains is not None and servers is not None:
            ids.extend_mariadb(self.begin, ends[changing], domains[changing], servers[changing], numbers[changing])
        else:
            for source, low, high in self.runs():
                indexes = changing[np.searchsorted(changing, low) : np.searchsorted(changing, high)]
                ids.extend(self.begin, ends[indexes], source, numbers[indexes])
        committed_at.extend(self.stretch.times[changing].tolist())
        return len(changing)
