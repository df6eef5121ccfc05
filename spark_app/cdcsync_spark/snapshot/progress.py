"""The snapshot's progress in reports: per table and in total, live while a wave runs and exact
after its commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.runs.report import SnapshotReport, TableParts, TableReport
from cdcsync_core.runs.run import TablePhase
from cdcsync_spark.run.progress import Reports, failed_entry, table_entry
from cdcsync_spark.sinks.contract.sink import Counting
from cdcsync_spark.sinks.contract.writer import total_counts
from cdcsync_spark.snapshot.table import SnapshotTable
from cdcsync_spark.snapshot.wave_job import Counts


@dataclass
class SnapshotReports:
    """Reports of one run over `tables`; `clock` gives unix seconds, `commits` are those of waves,
    `bounds` has the most rows and bytes a second."""

    tables: list[SnapshotTable]
    reporter: Reports
    clock: Callable[[], float] = time.time
    commits: int = 0
    bounds: SnapshotSpec = field(default_factory=SnapshotSpec)
    _throttled: str = ""
    _failed: set[str] = field(default_factory=set)
    _started: float = 0.0
    _rows_before: int = 0

    def begin(self, epoch: int) -> None:
        """What the targets have, before anything is read."""
        self._started = self.clock()
        self._rows_before = sum(t.state.rows for t in self.tables)
        self.reporter.report(epoch=epoch, tables=self._entries({}), snapshot=self._total({}))

    def running(self, counts: Counts) -> None:
        """While a wave runs: `counts` are not committed yet."""
        self.reporter.report(tables=self._entries(counts, only=set(counts)), snapshot=self._total(counts))

    def committed(self, tables: Collection[int]) -> None:
        """A wave of these: the others are as they were."""
        self.reporter.report(tables=self._entries({}, only=set(tables)), snapshot=self._total({}), done=self._done())

    def throttled(self, why: str) -> None:
        """The run waits for its source; empty: it goes on."""
        self._throttled = why
        self.reporter.report(snapshot=self._total({}))

    def finished(self) -> None:
        total = self._total({})
        total["finishedAt"] = _rfc3339(self.clock())
        self.reporter.report(tables=self._entries({}), snapshot=total, done=self._done())

    def failed(self, table: SnapshotTable, error: CdcError) -> None:
        """Content that was not published has no position, however complete it is."""
        self._failed.add(table.name)
        unpublished: TableParts = {} if table.published else {"position": None}
        self.reporter.report(tables=[failed_entry(table.name, error, table.state, **unpublished)])

    def _done(self) -> dict[str, int]:
        rows = sum(t.state.rows for t in self.tables) - self._rows_before
        counts = (t.main.counts for t in self.tables if isinstance(t.main, Counting))
        return {"commits": self.commits, "rows": rows} | total_counts(counts)

    def _entries(self, counts: Counts, only: set[int] | None = None) -> list[TableReport]:
        return [
            _entry(table, counts.get(number, (0, 0)))
            for number, table in enumerate(self.tables)
            if table.name not in self._failed and (only is None or number in only)
        ]

    def _total(self, counts: Counts) -> SnapshotReport:
        rows = sum(t.state.rows for t in self.tables) + sum(rows for _, rows in counts.values())
        seconds = max(self.clock() - self._started, 0.001)
        return {
            "splitsTotal": sum(_splits_total(t) for t in self.tables),
            "splitsFinished": sum(t.state.splits for t in self.tables) + sum(splits for splits, _ in counts.values()),
            "rows": rows,
            "rowsPerSecond": round((rows - self._rows_before) / seconds),
            "startedAt": _rfc3339(self._started),
            "finishedAt": "",
            "maxRowsPerSecond": self.bounds.max_rows_per_second or 0,
            "maxBytesPerSecond": self.bounds.max_bytes_per_second or 0,
            "throttled": self._throttled,
        }


def _entry(table: SnapshotTable, running: tuple[int, int]) -> TableReport:
    done = table.state.snapshot_complete and table.published
    return table_entry(
        table.name,
        TablePhase.CATCHING_UP if done else TablePhase.SNAPSHOTTING,
        table.state,
        splitsTotal=_splits_total(table),
        splitsFinished=table.state.splits + running[0],
        rows=table.state.rows + running[1],
    )


def _splits_total(table: SnapshotTable) -> int:
    """As far as the plan is known; never less than what is finished. Of a table that is read to the
    end no plan counts."""
    if table.state.snapshot_complete:
        return table.state.splits
    return max(table.state.splits, table.feed.planned_before + table.feed.planned())


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
