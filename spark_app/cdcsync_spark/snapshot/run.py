"""The snapshot application: waves of splits between watermarks, each published by one commit per
table.

Why it is right. LOW is taken before a wave's first task and HIGH after its last (R1): all that LOW
covers is visible to every SELECT of the wave, all that is visible HIGH covers. A wave's commit
carries the finished intervals, the meet of all LOWs and the furthest HIGH in the same transaction
as its files (R4); what the target says is finished is not reread, whatever `status` or the plan
say. Files of a wave that was not committed are orphans that no reader sees.

A table that fails for good is left out, wherever that is: in planning, reading, staging, committing
or publishing; the others go on. A failure that is transient, or concerns no table alone, ends the
run: at most one wave is lost. Where it is not known what an error concerns, its table is tried
alone; what meets such an error again waits until the others are read, and is tried a last time if
any commit was made since it met the first. A table that is locked, or whose statements take too
long, is not waited for alone: all such are tried a last time together, and once one was met, each
is waited for a second only, so that many hold the others up for little longer than one. What meets
either then is left out; the controller tries it again (R5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from cdcsync_core.errors import CdcError, PermanentError, Reason, TableBusyError, TransientError, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import Position, Watermark, meet_all
from cdcsync_core.runs.run import TableAssignment
from cdcsync_core.state import TableState
from cdcsync_mysql.sessions.failures import is_unexplained, may_be_of_table, of_table
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.sinks.contract.changes import Append, Build, Commit
from cdcsync_spark.sinks.contract.checks import Superseded
from cdcsync_spark.snapshot import start
from cdcsync_spark.snapshot.executors import ExecutorWatch, executors_of, session_of
from cdcsync_spark.snapshot.host_to_read import choose_host_to_read
from cdcsync_spark.snapshot.plan_reader import PlanFeed
from cdcsync_spark.snapshot.progress import SnapshotReports
from cdcsync_spark.snapshot.source import LiveSource, SnapshotSource
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.snapshot.table import SnapshotTable, open_table
from cdcsync_spark.snapshot.throttle import Throttle
from cdcsync_spark.snapshot.wave_job import Counts, SplitResult, SplitTask, run_wave

#: of the one SELECT that reads a table without a key
_WHOLE_TABLE_SECONDS = 86_400
#: what the source refuses to the run, whichever table meets it first
_OF_THE_RUN = frozenset(
    {
        Reason.AUTHENTICATION_FAILED,
        Reason.BINLOG_DISABLED,
        Reason.BINLOG_FORMAT_NOT_ROW,
        Reason.ROW_IMAGE_NOT_FULL,
        Reason.ROW_METADATA_NOT_FULL,
        Reason.SNAPSHOT_HOST_UNFIT,
    }
)


@dataclass(frozen=True)
class WaveSplit:
    """One split of a wave and the number of its table in the run."""

    table: int
    split: Split


ReadWave = Callable[[SparkSession, Sequence[SplitTask], Callable[[Counts], None]], list[SplitResult]]


def run_snapshot(context: RunContext, source: SnapshotSource | None = None, read_wave: ReadWave = run_wave) -> None:
    """Opens the targets, reads what they do not have, publishes it. Errors of single tables are in
    `context.failed`. The source is the context's, unless another one is given."""
    if source is None:
        choose_host_to_read(context)
    source = source or LiveSource(context.source, context.facts, context.snapshot_host)
    tables = [t for t in (_open(context, source, i, a) for i, a in enumerate(context.config.tables)) if t]
    epoch = max([context.config.epoch, *(t.state.epoch + 1 for t in tables)])
    progress = SnapshotReports(tables, context.reporter, bounds=context.resource.spec.snapshot)
    progress.begin(epoch)
    _begin(context, tables, epoch, progress)
    if any(not t.state.snapshot_complete and t.name not in context.failed for t in tables):
        with session_of(context.starting, context.config) as spark:
            executors = executors_of(spark, context.config, context.stopping)
            throttle = _throttle(context, source, progress)
            SnapshotRun(context, source, read_wave, spark, executors, tables, epoch, progress, throttle).run()
    if not context.stopping.is_set():
        for table in tables:
            _publish(context, source, table, epoch, progress)
        progress.finished()


def _throttle(context: RunContext, source: SnapshotSource, progress: SnapshotReports) -> Throttle:
    spec = context.resource.spec.snapshot
    return Throttle(spec, lambda tables: source.excess(spec.max_load, tables), progress.throttled, context.wait)


def _begin(context: RunContext, tables: list[SnapshotTable], epoch: int, progress: SnapshotReports) -> None:
    """Begins the tables that are not to be read; those that cannot begin take no part any more."""
    beginning = start.to_begin(tables)
    if not beginning:
        return
    refused = start.begin(context.source, context.facts, context.resource.spec.start, beginning, epoch)
    for table, error in refused:
        _refuse(context, progress, table, error)
    progress.committed([number for number, table in enumerate(tables) if table in beginning])


def _publish(
    context: RunContext, source: SnapshotSource, table: SnapshotTable, epoch: int, progress: SnapshotReports
) -> None:
    """Content that the binlog no longer leads on from must not replace what flows (R6)."""
    if table.published or not table.state.snapshot_complete:
        return
    try:
        with source.history() as verify:
            verify(table.state.identity.lineage, table.state.low)
        table.publish(epoch)
    except (PermanentError, TableBusyError) as e:
        _refuse(context, progress, table, e)


def _refuse(context: RunContext, progress: SnapshotReports, table: SnapshotTable, error: CdcError) -> None:
    """The table takes no part in this run any more; raises `error` where it concerns more than this
    table."""
    if _ends_the_run(error):
        raise error
    context.failed[table.name] = error
    progress.failed(table, error)


def _ends_the_run(error: CdcError) -> bool:
    """What is transient, what a newer run did, and what the source refuses to all."""
    if error.reason is Reason.TABLE_BUSY:
        return False
    if isinstance(error, Superseded) or not isinstance(error, PermanentError):
        return True
    return error.reason in _OF_THE_RUN or (error.reason is Reason.LOG_INCOMPLETE and not error.table)


def _open(context: RunContext, source: SnapshotSource, index: int, assignment: TableAssignment) -> SnapshotTable | None:
    """None for a table that is refused."""
    folder, chunk_size = Path(context.config.plan_dir), context.resource.spec.snapshot.rows_a_split
    feed = PlanFeed(source.splits, folder, index, assignment.table, chunk_size, context.wait)
    try:
        return open_table(
            assignment,
            context.sink,
            context.sync,
            context.facts.lineage,
            context.config.epoch,
            feed,
            early=context.resource.spec.snapshot.delivery == "early",
        )
    except (PermanentError, TableBusyError) as e:
        context.refuse(str(assignment.table.id), e)
        return None


@dataclass
class SnapshotRun:
    """Reads what the open `tables` do not have, wave by wave, in the name of run epoch `epoch`."""

    context: RunContext
    source: SnapshotSource
    read_wave: ReadWave
    spark: SparkSession
    executors: ExecutorWatch
    tables: list[SnapshotTable]
    epoch: int
    progress: SnapshotReports
    throttle: Throttle
    #: tables that met an error of which it is not known what it concerns -> the commits of the run
    #: before that
    _suspected: dict[str, int] = field(default_factory=dict)
    #: those that wait, with what they met last; those that were tried a last time
    _unexplained: dict[str, CdcError] = field(default_factory=dict)
    _tried_last: set[str] = field(default_factory=set)
    #: a table was locked: no further one holds the others up for as long
    _met_lock: bool = False

    def run(self) -> None:
        """Ends when every table is complete, failed for good, or the run was asked to stop; raises
        TransientError."""
        self._read(range(len(self.tables)))
        self._try_locked()
        while not self.context.stopping.is_set() and (number := self._next_to_try_last()) is not None:
            self._try_last(number)
        if not self.context.stopping.is_set():
            self._leave_out_unexplained()

    def _try_locked(self) -> None:
        locked = {name for name, e in self._unexplained.items() if not is_unexplained(e)}
        self._try_last(*(n for n, t in enumerate(self.tables) if t.name in locked and self._got_on_since(t)))

    def _try_last(self, *numbers: int) -> None:
        for number in numbers:
            self._tried_last.add(self.tables[number].name)
            del self._unexplained[self.tables[number].name]
        self._read(numbers)

    def _read(self, numbers: Iterable[int]) -> None:
        for wave in self._waves(numbers):
            for alone in self._run_wave(wave):
                self._run_wave(alone)
            if self.context.stopping.is_set():
                return

    def _next_to_try_last(self) -> int | None:
        """A table that waits although the run got on since it met its first error."""
        waiting = (n for n, t in enumerate(self.tables) if t.name in self._unexplained.keys() - self._tried_last)
        return next((n for n in waiting if self._got_on_since(self.tables[n])), None)

    def _got_on_since(self, table: SnapshotTable) -> bool:
        return self._suspected[table.name] < self.progress.commits

    def _leave_out_unexplained(self) -> None:
        for table in self.tables:
            error = self._unexplained.pop(table.name, None)
            if error is not None:
                self._refuse(table, [of_table(error, table.assignment.table.id)])

    def _waves(self, numbers: Iterable[int]) -> Iterator[list[WaveSplit]]:
        """Splits of these tables one after the other; a wave may hold the end of one and the
        beginning of the next."""
        wave: list[WaveSplit] = []
        for number in numbers:
            table = self.tables[number]
            for split in self._unread_splits(table):
                if not self._goes_on(table):
                    break
                wave.append(WaveSplit(number, split))
                if len(wave) >= self.throttle.splits_a_wave:
                    yield wave
                    wave = []
            wave = self._without_failed(wave)
        if wave:
            yield wave

    def _unread_splits(self, table: SnapshotTable) -> Iterator[Split]:
        """They end where the table cannot be planned any further."""
        try:
            yield from table.unread_splits()
        except PermanentError as e:
            self._refuse(table, [e])
        except TransientError as e:
            if not may_be_of_table(e):
                raise
            self._suspected.setdefault(table.name, self.progress.commits)
            self._unexplained[table.name] = e

    def _goes_on(self, table: SnapshotTable) -> bool:
        return table.name not in self.context.failed and table.name not in self._unexplained

    def _without_failed(self, wave: list[WaveSplit]) -> list[WaveSplit]:
        return [w for w in wave if self._goes_on(self.tables[w.table])]

    def _run_wave(self, wave: list[WaveSplit]) -> list[list[WaveSplit]]:
        """The tables' parts of it that are to be tried alone."""
        self.throttle.before_wave([self.tables[number].state.capture for number in {w.table for w in wave}])
        wave, again = self._resumable(wave), list[list[WaveSplit]]()
        if not wave:
            return again
        tables, commits = {w.table: self.tables[w.table] for w in wave}, self.progress.commits
        low = self.source.low()
        gate("low-taken")
        self.throttle.wait_while(lambda: self.source.behind(low))
        with self.executors.reading():
            results = self.read_wave(self.spark, self._tasks(wave, low), self._running)
        self.throttle.after_wave(sum(r.rows for r in results), [r.size for r in results])
        high = self.source.high(self.context.facts.lineage, low, self._since(wave, low))
        gate("wave-read")
        self._met_lock |= any(r.error is not None and r.error.reason is Reason.TABLE_BUSY for r in results)
        for number, table in tables.items():
            of_table = [(w.split, r) for w, r in zip(wave, results, strict=True) if w.table == number]
            if self._is_to_be_tried_alone(table, [r for _, r in of_table], commits):
                again.append([w for w in wave if w.table == number])
                continue
            self._commit(table, of_table, low, high)
            gate("wave-committed")
        self.progress.committed(tables)
        return again

    def _since(self, wave: list[WaveSplit], low: Position) -> Position | None:
        """The earliest LOW of the tables that end with this wave; None where none does."""
        ending = [self.tables[w.table].state for w in wave if w.split.end is None]
        return meet_all([low, *(state.low for state in ending if state.low)]) if ending else None

    def _is_to_be_tried_alone(self, table: SnapshotTable, read: Sequence[SplitResult], commits: int) -> bool:
        """Nothing of the wave is committed for a table that met what is unexplained; `commits` are
        those before the wave."""
        errors = [r.error for r in read if r.error]
        if not errors or not all(may_be_of_table(e) for e in errors):
            return False
        is_new = table.name not in self._suspected
        self._suspected.setdefault(table.name, commits)
        if is_new and any(map(is_unexplained, errors)):
            return True
        self._unexplained[table.name] = errors[0]
        return False

    def _running(self, counts: Counts) -> None:
        self.progress.running(counts)
        self.executors.check()

    def _resumable(self, wave: list[WaveSplit]) -> list[WaveSplit]:
        """Leaves out the tables whose earlier LOW the binlog does not reach any more: the wave
        would be read in vain (R6)."""
        with self.source.history() as verify:
            for table in [self.tables[number] for number in sorted({w.table for w in wave})]:
                try:
                    verify(table.state.identity.lineage, table.state.low)
                except PermanentError as e:
                    self._refuse(table, [e])
        return self._without_failed(wave)

    def _tasks(self, wave: list[WaveSplit], low: Position) -> list[SplitTask]:
        most = self.context.resource.spec.snapshot.max_split_seconds
        tasks = []
        for number, item in enumerate(wave):
            table = self.tables[item.table]
            reader = SplitReader(
                self.context.source,
                self.context.facts.lineage,
                self.context.resource.spec.tables.as_read(table.state.capture),
                item.split,
                low,
                most if table.state.capture.chunk_key else _WHOLE_TABLE_SECONDS,
                self.context.config.decoder,
                briefly=self._met_lock,
                replica=self.source.replica_for(table.state.capture),
            )
            tasks.append(SplitTask(item.table, reader, table.target, f"{self.context.config.id}-{number}"))
        return tasks

    def _commit(
        self, table: SnapshotTable, read: list[tuple[Split, SplitResult]], low: Position, high: Watermark
    ) -> None:
        errors = [result.error for _, result in read if result.error]
        if errors and table.name not in self._unexplained:
            self._refuse(table, errors)
        if errors:
            return
        low, high = _marks(read, low, high)
        after = table.state.after_wave(
            [split for split, _ in read],
            low,
            high,
            rows=sum(r.rows for _, r in read),
            nulled_dates=sum(r.nulled for _, r in read),
        )
        change = Append(tuple(part for _, result in read for part in result.staged))
        gate("wave-staged")
        build = _wave_commit(table.state, replace(after, epoch=self.epoch), change)
        try:
            table.state = table.target.commit(self.epoch, build)
        except (PermanentError, TableBusyError) as e:
            self._refuse(table, [e])
            return
        self.progress.commits += 1
        self._suspected.pop(table.name, None)
        self._tried_last.discard(table.name)

    def _refuse(self, table: SnapshotTable, errors: list[CdcError]) -> None:
        """One of them that ends the run goes before what is the table's own."""
        error = next(filter(_ends_the_run, errors), errors[0])
        _refuse(self.context, self.progress, table, error)


def _marks(read: list[tuple[Split, SplitResult]], low: Position, high: Watermark) -> tuple[Position, Watermark]:
    """The marks of the wave; for a table that was read in one exact view, the position of that: it
    is consistent from there on."""
    position = read[0][1].position
    return (low, high) if position is None else (position, position.reached)


def _wave_commit(before: TableState, after: TableState, change: Append) -> Build:
    """The decision on the state that the target has when the wave is to be published."""

    def build(state: TableState) -> Commit | None:
        if state.finished == after.finished:
            return None
        if state.finished != before.finished:
            raise fail(
                Reason.INTERNAL_ERROR,
                "another run committed a wave meanwhile",
                needed="the finished intervals that this wave continues",
                remedy="none: the next run goes on from the target's state",
                table=before.identity.table,
            )
        return Commit(replace(after, commit_number=state.commit_number + 1, written=state.written), change)

    return build
