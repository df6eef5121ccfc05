"""The stream application: follows the log and applies it to every table of the run.

It starts at the meet of the targets' positions (R5), with a fresh checkpoint in scratch space: what
a target already has is skipped. It ends when it is asked to drain (then idle tables get their
position stamped), when no table flows any more, when a catch-up run has reached its goal, or with
the error of the reader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pymysql.connections import Connection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.position import LogOffset, Position, meet_all
from cdcsync_core.report import TableReport
from cdcsync_core.run import RunKind, TableAssignment, TablePhase
from cdcsync_core.spec import CdcSync, replica_ids
from cdcsync_core.state import Identity
from cdcsync_core.table import TableId
from cdcsync_mysql.connection import connect
from cdcsync_mysql.history import verify_resumable
from cdcsync_mysql.server import log_retention_seconds
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.crash_tail import TailReader
from cdcsync_spark.binlog.received import Received, ReceivedFile
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.run.progress import failed_entry, position_entry, table_entry
from cdcsync_spark.sinks.base import Closed, Maintenance, refuse_other_identity
from cdcsync_spark.stream.applier import Applier, StreamTable
from cdcsync_spark.stream.crash_repair import Repair, SourceRepair
from cdcsync_spark.stream.data_flow import Backlog, flow, idle_since, lag_seconds
from cdcsync_spark.stream.source import FORMAT, BinlogSource, save_settings

_REPORT_SECONDS = 2.0
#: Spark gives the process of a source ten seconds to start and to say so, and no setting changes
#: that
_QUERY_STARTS = 5
_NOT_CONNECTED = "Python worker failed to connect back"
#: how old an idle table's last commit may become at most; a quarter of the log's retention if that
#: is less
_IDLE_COMMIT_SECONDS = 6 * 3600.0


def run_stream(context: RunContext) -> None:
    """Opens the targets and follows the log. Errors of single tables are in `context.failed`;
    raises CdcError for the run."""
    with connect(context.source) as connection:
        tables = [t for t in (_open(context, connection, a) for a in context.config.tables) if t]
        retention = log_retention_seconds(connection)
    if not tables:
        return
    epoch = max([context.config.epoch, *(t.state.epoch + 1 for t in tables)])
    idle_commit_seconds = min(_IDLE_COMMIT_SECONDS, retention / 4) if retention else _IDLE_COMMIT_SECONDS
    threading.Thread(target=_warm, args=(tables,), daemon=True).start()
    try:
        with context.starting.result() as spark:
            StreamRun(context, spark, tables, epoch, idle_commit_seconds, repair=_repair(context)).run()
    finally:
        _end_warming(tables)


def _repair(context: RunContext) -> SourceRepair:
    decoder = context.config.decoder
    tail = TailReader(context.source, context.facts.lineage, Path(context.config.scratch_dir), decoder)
    return SourceRepair(
        context.source, context.facts.lineage, tail, context.resource.spec.snapshot.max_split_seconds, decoder
    )


def _warm(tables: list[StreamTable]) -> None:
    """While Spark starts. A table's first commit waits for its own index only."""
    for table in tables:
        table.target.warm()


def _end_warming(tables: list[StreamTable]) -> None:
    """Else the process would live until the last index is built, and its successor wait for it."""
    for table in tables:
        table.target.close()


def _open(context: RunContext, connection: Connection, assignment: TableAssignment) -> StreamTable | None:
    """None for a table that is refused, or whose snapshot is not complete."""
    name = str(assignment.table.id)
    target = context.sink.target(assignment.table.id).writer(Path(context.config.scratch_dir))
    try:
        state = target.last_commit()
        if state is None or state.position is None:
            context.reporter.report(tables=[table_entry(name, TablePhase.SNAPSHOTTING, state)])
            return None
        refuse_other_identity(state, replace(state, identity=Identity(context.sync, state.identity.lineage, name)))
        verify_resumable(connection, context.facts, state.identity.lineage, state.position)
    except PermanentError as e:
        context.refuse(name, e)
        return None
    return StreamTable(name, target, state)


@dataclass
class StreamRun:
    """One run over `tables`, which have a position. `idle_commit_seconds` is how old an idle
    table's last commit may become.

    `clock` counts seconds and measures all pauses, because `wall` (unix seconds) is set right at
    times: that one is only told.
    """

    context: RunContext
    spark: SparkSession
    tables: list[StreamTable]
    epoch: int
    idle_commit_seconds: float
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    repair: Repair | None = None

    def __post_init__(self) -> None:
        self._start = meet_all([_position(t) for t in self.tables])
        self._applier = Applier({t.name: t for t in self.tables}, self.epoch, self._start, self.clock, self.repair)
        self._error: BaseException | None = None
        self._applying = threading.Lock()
        self._closing = False
        self._starts = 0
        self._last: BinlogBatch | None = None
        self._committed: float | None = None
        self._changes = 0
        self._backlog = Backlog()
        self._received: ReceivedFile | None = None
        self._appeared = 0
        self._reported_at = float("-inf")
        self._reported: dict[str, str] = {}

    def run(self) -> None:
        """Errors of the tables that stopped are in the context's; raises CdcError for the run as a
        whole."""
        self._report(everything=True)
        query = self._start_query()
        try:
            while not self._finished(query):
                if self._never_began(query):
                    query = self._start_query()
                self.context.stopping.wait(0.2)
                self._observe()
                self._report_if_due()
        finally:
            self._close(query)
        if self._error is not None:
            raise self._error
        if not self.context.stopping.is_set() and query.exception() is not None:
            raise fail(Reason.INTERNAL_ERROR, f"Spark ended the stream: {str(query.exception())[:500]}")
        self._applier.checkpoint_idle(older_than=float("inf"))
        self._report(everything=True)
        self.context.failed |= {t.name: t.error for t in self.tables if t.error}

    def _never_began(self, query: StreamingQuery) -> bool:
        """Whether the query ended because the machine was too busy to start its source, so that
        nothing was read."""
        may_begin = self._last is None and self._starts < _QUERY_STARTS
        return may_begin and not query.isActive and _NOT_CONNECTED in str(query.exception())

    def _close(self, query: StreamingQuery) -> None:
        """Lets the batch at hand end: Spark would interrupt it in the middle. One that waits for an
        index is given up."""
        _end_warming(self.tables)
        with self._applying:
            self._closing = True
        query.stop()

    # -- the query

    def _start_query(self) -> StreamingQuery:
        self._starts += 1
        scratch = Path(self.context.config.scratch_dir)
        folder = scratch / "log"
        folder.mkdir(exist_ok=True)
        self._received = ReceivedFile(scratch / "received")
        save_settings(self._settings(folder), scratch / "reader.pickle")
        self.spark.dataSource.register(BinlogSource)
        rows = self.spark.readStream.format(FORMAT).option("settings", str(scratch / "reader.pickle")).load()
        return (
            rows.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(scratch / f"checkpoint-{self._starts}"))
            .trigger(processingTime="0 seconds")  # the reader keeps the interval
            .start()
        )

    def _settings(self, folder: Path) -> ReaderSettings:
        read = self.context.resource.spec.tables.as_read
        definitions = {t.state.table.id: read(t.state.table) for t in self.tables}
        positions: dict[TableId, Position] = {t.state.table.id: _position(t) for t in self.tables}
        replica_id, *spare_ids = replica_ids_of(self.context.resource, self.context.config.kind)
        return ReaderSettings(
            source=self.context.source,
            lineage=self.context.facts.lineage,
            replica_id=replica_id,
            spare_ids=tuple(spare_ids),
            tables=definitions,
            start=self._start,
            ahead=positions,
            heartbeat_seconds=self.context.resource.spec.source.heartbeat_interval,
            max_batch_bytes=self.context.resource.spec.stream.max_batch_bytes,
            folder=folder,
            decoder=self.context.config.decoder,
            interval_seconds=self.context.resource.spec.stream.interval,
            befores=False,
            received=folder.parent / "received",
            patterns=self.context.resource.spec.tables if self.context.config.kind is RunKind.STREAM else None,
        )

    def _on_batch(self, rows: DataFrame, _: int) -> None:
        """Called by Spark in its stream thread; an error is kept as it is, for Spark would make a
        text of it."""
        with self._applying:
            if self._closing:
                return  # the batch is read again by the next run
            begun = self.clock()
            try:
                batches = [BinlogBatch.from_json(row["batch"]) for row in rows.collect()]
                for batch in batches:
                    self._apply(batch)
                behind = any(batch.full for batch in batches)
                self._applier.maintain(until=begun if behind else begun + self.context.resource.spec.stream.interval)
            except Closed:
                return  # the rest of the batch is read again by the next run
            except BaseException as e:
                self._error = self._error or e
                raise

    def _apply(self, batch: BinlogBatch) -> None:
        if batch.fatal is not None:
            raise batch.fatal
        gate("batch-read")
        self._applier.apply(batch)
        gate("batch-applied")
        self._applier.checkpoint_idle(older_than=self.clock() - self.idle_commit_seconds)
        self._appeared += batch.appeared
        # in this order: what a report takes for applied has its time already
        self._last, self._committed = batch, self._committed if batch.timestamp is None else batch.timestamp
        self._changes = batch.changes
        _remove_files(batch)

    # -- when it ends

    def _finished(self, query: StreamingQuery) -> bool:
        if self.context.stopping.is_set() or self._error is not None:
            return True
        if not query.isActive:
            return not self._never_began(query)
        if not any(t.flowing for t in self.tables):
            return True
        return self.context.config.kind is RunKind.CATCH_UP and self._reached_goal()

    def _reached_goal(self) -> bool:
        goal = LogOffset.parse(self.context.config.stop_at)
        return all(
            self._applier.consistent(t) and self._applier.position(t).has_reached(goal)
            for t in self.tables
            if t.flowing
        )

    # -- reports

    def _report_if_due(self) -> None:
        if self.clock() - self._reported_at >= _REPORT_SECONDS:
            self._report(everything=False)

    def _report(self, *, everything: bool) -> None:
        """Tables with a commit or another phase since, or all of them; the reader's position and
        the lag always.

        What the reader passed, an idle table has (`Status.covered_positions`), which needs no
        entry. So the reader is read first: a table that stops meanwhile does so beyond that
        position.
        """
        reader = self._applier.reader
        received, waiting = self._observe()
        timestamp, lag = self._lag(received)
        phases = {t.name: self._phase(t) for t in self.tables if not t.handed_over}
        changed = [t for t in self.tables if t.name in phases and (everything or self._is_changed(t, phases[t.name]))]
        self._reported = {**self._reported, **{t.name: self._key(t, phases[t.name]) for t in changed}}
        self.context.reporter.report(
            epoch=self.epoch,
            tables=[self._entry(t, phases[t.name]) for t in changed],
            position=position_entry(reader, timestamp),
            lag_seconds=lag,
            flow=flow(received, self.clock(), waiting, self._applier.committed).to_dict(),
            done={"commits": self._applier.commits, "rows": self._applier.rows},
            maintenance=Maintenance.total(t.target.maintenance for t in self.tables).to_dict(),
            appeared=self._appeared,
        )
        self._reported_at = self.clock()

    def _phase(self, table: StreamTable) -> TablePhase:
        if table.error is not None:
            return TablePhase.FAILED
        if self.context.config.kind is RunKind.CATCH_UP:
            return TablePhase.CATCHING_UP  # it will not flow here
        return TablePhase.STREAMING if self._applier.consistent(table) else TablePhase.CATCHING_UP

    def _is_changed(self, table: StreamTable, phase: TablePhase) -> bool:
        return self._reported.get(table.name) != self._key(table, phase)

    def _key(self, table: StreamTable, phase: TablePhase) -> str:
        return f"{phase} {table.state.commit_number} {table.target.fallback}"

    def _entry(self, table: StreamTable, phase: TablePhase) -> TableReport:
        position = self._applier.position(table).to_dict()
        if table.error is not None:
            return failed_entry(table.name, table.error, table.state, position=position)
        return table_entry(table.name, phase, table.state, position=position, rewriting=table.target.fallback)

    def _observe(self) -> tuple[Received | None, float]:
        """What the reader has received, and how long the oldest of it waits for its commit."""
        received, now = self._received.read() if self._received else None, self.clock()
        if received is not None:
            self._backlog.note(now, received.changes, self._changes)
        return received, self._backlog.waiting(now)

    def _lag(self, received: Received | None) -> tuple[float | None, float | None]:
        """What was committed up to the first has been applied, in unix seconds; and the seconds
        behind the source. None: not known yet."""
        idle, wall = idle_since(received, self.clock(), self._changes), self.wall()
        timestamp = self._committed if idle is None else wall - idle
        age = None if timestamp is None else wall - timestamp
        return timestamp, lag_seconds(age, idle, self.context.resource.spec.source.heartbeat_interval)


def _position(table: StreamTable) -> Position:
    assert table.state.position is not None
    return table.state.position


def replica_ids_of(resource: CdcSync, kind: RunKind) -> tuple[int, ...]:
    """The same for successive runs, so that the server ends a zombie's dump. A second reader has
    ids of its own, which do not follow from `spec.source.serverId`: syncs may be numbered one after
    the other."""
    metadata = resource.metadata
    if kind is RunKind.CATCH_UP:
        return replica_ids(metadata.namespace, f"{metadata.name}/catch-up")
    return replica_ids(metadata.namespace, metadata.name, resource.spec.source.server_id)


def _remove_files(batch: BinlogBatch) -> None:
    for path in (batch.transactions, *(t.file for t in batch.tables)):
        if path:
            Path(path).unlink(missing_ok=True)
