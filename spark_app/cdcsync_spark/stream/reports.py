"""What a stream reports to its controller: tables, the reader's position, the lag, what waits.

Thousands of idle tables make no report longer: a table has an entry where it has a new commit or
another phase. What the reader has passed, an idle table has as well (`Status.covered_positions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cdcsync_core.positions.position import position_to_dict
from cdcsync_core.runs.report import TableParts, TableReport
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.dump.reader_health import Received, ReceivedFile
from cdcsync_spark.run.progress import Reports, failed_entry, position_entry, schema_part, table_entry
from cdcsync_spark.sinks.contract.writer import Maintenance, total_counts
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.data_flow import Backlog, flow, idle_since, lag_seconds

#: between two reports; where the stream is quiet
_REPORT_SECONDS, _QUIET_REPORT_SECONDS = 2.0, 10.0
#: without a batch, after which the stream is quiet
_QUIET_SECONDS = 5.0


@dataclass
class StreamReports:
    """Reports a run of `kind` and its `applier` to `reporter`; `received` is what its reader notes.

    `clock` counts seconds and measures all pauses, because `wall` (unix seconds) may be adjusted:
    it is only reported.
    """

    reporter: Reports
    kind: RunKind
    heartbeat_seconds: float
    tables: Sequence[StreamTable]
    applier: Applier
    received: ReceivedFile | None
    clock: Callable[[], float]
    wall: Callable[[], float]

    def __post_init__(self) -> None:
        self._committed: float | None = None
        self._changes = 0
        self._appeared = 0
        self._backlog = Backlog()
        self._reported_at = float("-inf")
        #: the last batch, or the run's beginning
        self._applied_at = self.clock()
        self._reported: dict[str, str] = {}

    def note_applied(self, batch: BinlogBatch) -> None:
        """Called after each batch. The time is set before the count of changes: a report that
        counts a batch as applied has its time."""
        self._applied_at = self.clock()
        self._appeared += batch.appeared
        self._committed = self._committed if batch.timestamp is None else batch.timestamp
        self._changes = batch.changes

    def observe(self) -> tuple[Received | None, float]:
        """What the reader has received, and how long the oldest of it waits for its commit."""
        received, now = self.received.read() if self.received else None, self.clock()
        if received is not None:
            self._backlog.note(now, received.changes, self._changes)
        return received, self._backlog.waiting(now)

    @property
    def quiet(self) -> bool:
        return self.clock() - self._applied_at >= _QUIET_SECONDS

    def report_if_due(self) -> None:
        pause = _QUIET_REPORT_SECONDS if self.quiet else _REPORT_SECONDS
        if self.clock() - self._reported_at >= pause:
            self.report(everything=False)

    def report(self, *, everything: bool) -> None:
        """Tables with a commit or another phase since, or all of them; the reader's position and
        the lag always.

        The reader's position is read first: a table that stops meanwhile does so beyond it.
        """
        reader = self.applier.reader
        received, waiting = self.observe()
        timestamp, lag = self._lag(received)
        phases = {t.name: self._phase(t) for t in self.tables if not t.handed_over}
        changed = [t for t in self.tables if t.name in phases and (everything or self._is_new(t, phases[t.name]))]
        self._reported = {**self._reported, **{t.name: self._key(t, phases[t.name]) for t in changed}}
        self.reporter.report(
            epoch=self.applier.epoch,
            tables=[self._entry(t, phases[t.name]) for t in changed],
            position=position_entry(reader, timestamp),
            lag_seconds=lag,
            flow=flow(received, self.clock(), waiting, self.applier.committed).to_dict(),
            done={"commits": self.applier.commits, "rows": self.applier.rows}
            | total_counts(t.target.status.counts for t in self.tables),
            maintenance=Maintenance.total(t.target.status.maintenance for t in self.tables).to_dict(),
            appeared=self._appeared,
        )
        self._reported_at = self.clock()

    def _phase(self, table: StreamTable) -> TablePhase:
        if table.error is not None:
            return TablePhase.FAILED
        if self.kind is RunKind.CATCH_UP:
            return TablePhase.CATCHING_UP  # it does not stream here
        return TablePhase.STREAMING if self.applier.consistent(table) else TablePhase.CATCHING_UP

    def _is_new(self, table: StreamTable, phase: TablePhase) -> bool:
        return self._reported.get(table.name) != self._key(table, phase)

    def _key(self, table: StreamTable, phase: TablePhase) -> str:
        confirmed = table.change is not None and not table.change.unconfirmed
        state, status = table.state, table.target.status
        reasons = f"{status.fallback} {status.uncompacted} {table.unreadable}"
        return f"{phase} {state.commit_number} {state.written} {confirmed} {reasons}"

    def _entry(self, table: StreamTable, phase: TablePhase) -> TableReport:
        position = position_to_dict(self.applier.position(table))
        if table.error is not None:
            entry = failed_entry(table.name, table.error, table.state, position=position)
        else:
            status = table.target.status
            parts = TableParts(position=position, rewriting=status.fallback, uncompacted=status.uncompacted)
            entry = table_entry(table.name, phase, table.state, **parts)
        if table.change is not None:  # confirmed since the last commit, or found not to be readable
            entry["schema"] = schema_part(table.change, table.unreadable)
        return entry

    def _lag(self, received: Received | None) -> tuple[float | None, float | None]:
        """All commits up to the first (unix seconds) have been applied; and the seconds behind the
        source. None: not known yet."""
        idle, wall = idle_since(received, self.clock(), self._changes), self.wall()
        timestamp = self._committed if idle is None else wall - idle
        age = None if timestamp is None else wall - timestamp
        return timestamp, lag_seconds(age, idle, self.heartbeat_seconds)
