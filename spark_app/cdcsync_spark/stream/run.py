"""The stream application: follows the binlog and applies it to every table of the run.

It starts at the meet of the targets' positions (R5), with a fresh checkpoint in scratch space: what
a target already has is skipped. It ends when it is asked to drain (then the positions of idle
tables are committed), when no table flows any more, when it has reached its goal and the catalog
has been asked about changed definitions, or with the error of the reader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pymysql.connections import Connection

from cdcsync_core.errors import PermanentError, TableBusyError
from cdcsync_core.gates import gate
from cdcsync_core.positions.failover import MovedPosition
from cdcsync_core.positions.position import LogOffset, Place, Position, meet_all
from cdcsync_core.resource.spec import CdcSync, replica_ids
from cdcsync_core.runs.run import LOG_END, RunKind, TableAssignment, TablePhase
from cdcsync_core.state import Identity, TableState
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.readiness.proof import SourceSession, may_lead_on, open_session
from cdcsync_mysql.readiness.retention import kept_binlog
from cdcsync_mysql.reading.catalog import with_recomputed
from cdcsync_mysql.server import log_retention_seconds
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.dump.reader_health import ReceivedFile
from cdcsync_spark.binlog.schema.steps import unconfirmed_tables, unproved_tables
from cdcsync_spark.binlog.search.crash_tail import TailReader
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.delivery.events import takes_events
from cdcsync_spark.engine.base import OpenEngine, StreamEngine
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.run.progress import table_entry
from cdcsync_spark.sinks.contract.checks import refuse_other_identity
from cdcsync_spark.sinks.contract.writer import CommitAll, Warming, Writer, commit_each
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.crash_repair import Repair, SourceRepair
from cdcsync_spark.stream.apply.stream_table import StreamTable, target_gone
from cdcsync_spark.stream.batch_loop import BatchLoop
from cdcsync_spark.stream.binlog_watch import AskKept, BinlogWatch
from cdcsync_spark.stream.confirmation import RECHECK_SECONDS, Ask, DefinitionConfirmation, ask_catalog
from cdcsync_spark.stream.failover import Failover
from cdcsync_spark.stream.host_choice import choose_host
from cdcsync_spark.stream.policies import policy_of
from cdcsync_spark.stream.reports import StreamReports
from cdcsync_spark.stream.target_watch import TargetWatch

#: how old an idle table's last commit may become at most; a quarter of the binlog's retention if
#: that is less
_IDLE_COMMIT_SECONDS = 6 * 3600.0
#: how long the reader waits for a binlog that does not move: each answer of it may cost the engine
#: something, a wait costs nothing, and a drain does not wait for it
_IDLE_SECONDS = 60.0
#: seconds between two checks of the batches and the lag; where the stream is quiet
_PAUSE, _QUIET_PAUSE = 0.2, 2.0
#: seconds after which no more tables are seen to before the next report
_TURN_SECONDS = 5.0


def run_stream(context: RunContext, open_engine: OpenEngine) -> None:
    """Opens the targets and follows the binlog by an engine. Errors of single tables are in
    `context.failed`; raises CdcError for the run."""
    if context.others is not None:
        choose_host(context)
    with open_session(context.source) as session:
        session.refuse_hidden_changes()
        ids = frozenset(a.table.id for a in context.config.tables)
        failover = Failover(context.source, session, ids, context.config.epoch)
        opened = [t for t in (_open(context, session, failover, a) for a in context.config.tables) if t]
        tables = [t for t in (_proved(context, session, failover, o) for o in opened) if t]
        connection = session.proved(context.facts.lineage)
        _complete_definitions(connection, tables)
        retention = log_retention_seconds(connection)
        goal = _goal(context, connection)
    if tables:
        follow(context, tables, retention, open_engine, goal)


def follow(
    context: RunContext,
    tables: list[StreamTable],
    retention: float | None,
    open_engine: OpenEngine,
    goal: LogOffset | None = None,
) -> None:
    """`tables` are open; `retention` is the binlog's, in seconds; `goal` as in `StreamRun`."""
    epoch = max([context.config.epoch, *(t.state.epoch + 1 for t in tables)])
    idle_commit_seconds = _idle_commit_seconds(retention)
    threading.Thread(target=_warm, args=(tables,), daemon=True).start()
    try:
        with open_engine() as engine:
            settings = reader_settings(context, tables)
            received = ReceivedFile(settings.received) if settings.received else None
            run = StreamRun(
                context,
                tables,
                epoch,
                engine,
                idle_commit_seconds,
                repair=_repair(context),
                received=received,
                events=takes_events(context.sink.capabilities),
                ask=partial(ask_catalog, context.source, context.facts.lineage),
                commit_all=context.sink.commit_all,
                together=context.sink.capabilities.together,
                goal=goal,
                ask_kept=partial(kept_binlog, context.source, context.facts.lineage),
            )
            run.run(settings)
    finally:
        _end_warming(tables)


def _idle_commit_seconds(retention: float | None) -> float:
    return min(_IDLE_COMMIT_SECONDS, retention / 4) if retention else _IDLE_COMMIT_SECONDS


def _goal(context: RunContext, connection: Connection) -> LogOffset | None:
    """Where the run ends by itself: a place in the binlog that it follows. One in another server's
    has no order here, so the run ends at the end that its own binlog has now; the stream that the
    tables join proves that the other one leads on from there."""
    stop_at, binlog = context.config.stop_at, context.facts.log
    if not stop_at:
        return None
    goal = None if stop_at == LOG_END else Place.parse(stop_at, binlog)
    if goal is not None and goal.binlog == binlog:
        return goal
    return watermark.current(connection, context.facts).at


def reader_settings(context: RunContext, tables: list[StreamTable]) -> ReaderSettings:
    """The settings of the reader of `tables`, in the run's scratch folder."""
    spec, scratch = context.resource.spec, Path(context.config.scratch_dir)
    replica_id, *spare_ids = replica_ids_of(context.resource, context.config.kind)
    return ReaderSettings(
        source=context.source,
        lineage=context.facts.lineage,
        replica_id=replica_id,
        spare_ids=tuple(spare_ids),
        tables={t.state.capture.id: spec.tables.as_read(t.state.capture) for t in tables},
        start=_start(tables),
        ahead={t.state.capture.id: _position(t) for t in tables},
        heartbeat_seconds=spec.source.heartbeat_interval,
        max_batch_bytes=spec.stream.max_batch_bytes,
        folder=scratch / "log",
        decoder=context.config.decoder,
        interval_seconds=spec.stream.interval,
        idle_seconds=_IDLE_SECONDS,
        befores=takes_events(context.sink.capabilities),
        received=scratch / "received",
        patterns=spec.tables.selection if context.config.kind is RunKind.STREAM else None,
        policies={t.state.capture.id: replace(t.policy, replacing=spec.tables.replaces_invalid) for t in tables},
        unproved=unproved_tables(t.state for t in tables),
        unconfirmed=unconfirmed_tables(t.state for t in tables),
        hold_back=True,
        others=context.others,
        unlogged=frozenset(t.state.capture.id for t in tables if spec.tables.override(t.name).accept_unlogged_cascades),
    )


def _repair(context: RunContext) -> SourceRepair:
    decoder = context.config.decoder
    tail = TailReader(context.source, context.facts.lineage, Path(context.config.scratch_dir), decoder)
    return SourceRepair(
        context.source, context.facts.lineage, tail, context.resource.spec.snapshot.max_split_seconds, decoder
    )


def _warm(tables: list[StreamTable]) -> None:
    """While Spark starts. A table's first commit waits for its own index only."""
    for table in tables:
        if isinstance(table.target, Warming):
            table.target.warm()


def _end_warming(tables: list[StreamTable]) -> None:
    """Else the process would live until the last index is built, while its successor waits for
    it."""
    for table in tables:
        table.target.close()


@dataclass(frozen=True)
class _Opened:
    """A table whose snapshot is complete; `moved` is where it goes on if it is on another
    server."""

    name: str
    target: Writer
    state: TableState
    moved: MovedPosition | None


def _open(
    context: RunContext, session: SourceSession, failover: Failover, assignment: TableAssignment
) -> _Opened | None:
    """None for a table that is refused, or whose snapshot is not complete. One whose target is gone
    is refused, as while a run has it: a volume that is not mounted looks like an empty lake."""
    name = str(assignment.table.id)
    target = context.sink.target(assignment.table.id).writer(Path(context.config.scratch_dir))
    try:
        state = target.last_commit()
        if state is None and assignment.copied:
            raise target_gone(name)
        if state is None or state.position is None:
            context.reporter.report(tables=[table_entry(name, TablePhase.SNAPSHOTTING, state)])
            return None
        refuse_other_identity(state, replace(state, identity=Identity(context.sync, state.identity.lineage, name)))
        return _Opened(name, target, state, failover.judge(state) if _is_elsewhere(session, state) else None)
    except (PermanentError, TableBusyError) as e:
        context.refuse(name, e)
        return None


def _proved(context: RunContext, session: SourceSession, failover: Failover, opened: _Opened) -> StreamTable | None:
    """None for a table that is refused."""
    name, target, state = opened.name, opened.target, opened.state
    try:
        if opened.moved is not None:
            state = failover.move(target, state, opened.moved)
        session.proved(state.identity.lineage, state.position)
    except (PermanentError, TableBusyError) as e:
        context.refuse(name, e)
        return None
    policy = policy_of(context.resource.spec, name, context.sink.capabilities)
    return StreamTable(name, target, state, policy=policy, unchecked=state.undescribed)


def _is_elsewhere(session: SourceSession, state: TableState) -> bool:
    """Whether the table is on another server, from which this one may be proved to lead on."""
    lineage = state.identity.lineage
    return not lineage.accepts(session.facts.log) and may_lead_on(session.facts, lineage)


def _complete_definitions(connection: Connection, tables: list[StreamTable]) -> None:
    """Reads what an older release did not record of tables with generated columns. Without it, each
    statement that may rebuild such a table leads to a resnapshot."""
    locks = LockBudget()
    for table in tables:
        capture = table.state.capture
        if capture.source.generated and capture.source.recomputed is None:
            with suppress(PermanentError, TableBusyError), locks.asking(connection, capture.id):
                table.state = replace(table.state, capture=with_recomputed(connection, capture))


@dataclass
class StreamRun:
    """One run over `tables`, which have a position. `engine` gives its batches;
    `idle_commit_seconds` is how old an idle table's last commit may become; `clock` and `wall` as
    in `StreamReports`; `events`, `commit_all` and `together` as in `Applier`; `ask` reads tables'
    definitions from the source (None: they are not confirmed), `ask_kept` which binlog files it has
    (None: it is not asked); at `goal` it ends by itself (None: it does not)."""

    context: RunContext
    tables: list[StreamTable]
    epoch: int
    engine: StreamEngine
    idle_commit_seconds: float
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    repair: Repair | None = None
    received: ReceivedFile | None = None
    events: bool = False
    ask: Ask | None = None
    commit_all: CommitAll = commit_each
    together: bool = False
    goal: LogOffset | None = None
    ask_kept: AskKept | None = None

    def __post_init__(self) -> None:
        self._behind = False
        again = RECHECK_SECONDS if self.goal is None else 0.0
        self._confirmation = (
            DefinitionConfirmation(self.tables, self.ask, self.clock, recheck=again) if self.ask else None
        )
        self._watch = TargetWatch(self.tables, self.clock)
        self._binlog = BinlogWatch(self.ask_kept, self.clock) if self.ask_kept else None
        #: of the answer whose old files tables may still have to leave; 0: of none
        self._safe_from = 0
        self._idle_left = False
        tables = {t.name: t for t in self.tables}
        self.applier = Applier(
            tables,
            self.epoch,
            _start(self.tables),
            self.clock,
            self.repair,
            self.events,
            self.commit_all,
            self.together,
        )
        self.batches = BatchLoop(self.engine, self._apply)
        self.reports = StreamReports(
            self.context.reporter,
            self.context.config.kind,
            self.context.resource.spec.source.heartbeat_interval,
            self.tables,
            self.applier,
            self.received,
            self.clock,
            self.wall,
        )

    def run(self, settings: ReaderSettings) -> None:
        """Errors of the tables that stopped are in the context's; raises CdcError for the run as a
        whole."""
        self.reports.report(everything=True)
        self.batches.start(settings)
        try:
            while not self._finished():
                self.context.stopping.wait(_QUIET_PAUSE if self.reports.quiet else _PAUSE)
                self.batches.between_batches(self._settle)
                self.reports.observe()
                self.reports.report_if_due()
        finally:
            self.close()
            if self.applier.taken_back:  # what the status says of them is not true any more
                self.reports.report(everything=False)
        self._raise_failure()
        self.applier.checkpoint_idle(older_than=float("inf"))
        self.reports.report(everything=True)
        self.context.failed |= {t.name: t.error for t in self.tables if t.error}

    def close(self) -> None:
        """Lets the batch that is being applied end; one that waits for an index is given up."""
        _end_warming(self.tables)
        self.batches.close()

    def apply(self, batch: BinlogBatch) -> None:
        if batch.fatal is not None:
            raise batch.fatal
        gate("batch-read")
        self.applier.apply(batch)
        gate("batch-applied")
        self._commit_idle(self.clock() + _TURN_SECONDS)
        self.reports.note_applied(batch)
        _remove_files(batch)

    def _apply(self, batch: BinlogBatch) -> None:
        """In the time that is left of the interval, or in one step where the reader lags, tables
        are maintained."""
        begun, self._behind = self.clock(), batch.full
        self.apply(batch)
        self.applier.maintain(until=begun if batch.full else begun + self.context.resource.spec.stream.interval)
        self._settle()  # `run` does it only between two batches, and a busy stream has no pause

    def _settle(self) -> None:
        """Judges the catalog's answers, and notes what other programs did to the targets, and the
        server to its binlog. What takes longer than a turn goes on in the next one: between two of
        them `run` reports, and a stream that does not report for long counts as lost."""
        self._confirm()
        until = self.clock() + _TURN_SECONDS
        for table in self._watch.news():
            self.applier.note_others(table)
            if self.clock() >= until:
                return
        self._watch.begin()
        self._note_kept(until)
        if self._idle_left:
            self._commit_idle(until)

    def _commit_idle(self, until: float) -> None:
        """After a snapshot, many idle tables become consistent at once."""
        older_than = self.clock() - self.idle_commit_seconds
        self._idle_left = not self.applier.checkpoint_idle(older_than, until=until)

    def _note_kept(self, until: float) -> None:
        """Positions of idle tables are committed before their binlog files are purged."""
        if self._binlog is None:
            return
        if binlog := self._binlog.news():
            self.idle_commit_seconds = _idle_commit_seconds(binlog.seconds)
            self._safe_from = binlog.safe_from
        older_than = self.clock() - self.idle_commit_seconds
        if self._safe_from and self.applier.checkpoint_idle(older_than, self._safe_from, until):
            self._safe_from = 0
        self._binlog.begin()

    def _confirm(self) -> None:
        """A reader that lags would wait long for the end that the answer is of."""
        if self._confirmation is None:
            return
        self._confirmation.settle(self.applier.reader)
        if not self._behind:
            self._confirmation.begin()

    def _finished(self) -> bool:
        if self.context.stopping.is_set() or self.batches.ended:
            return True
        if not any(t.flowing for t in self.tables):
            return True
        return self.goal is not None and self._reached(self.goal) and not self._confirms()

    def _confirms(self) -> bool:
        """Whether an answer of the catalog is waited for: one whose HIGH is behind the goal would
        else never be judged."""
        return self._confirmation is not None and not self._behind and self._confirmation.due

    def _raise_failure(self) -> None:
        if self.batches.error is not None:
            raise self.batches.error
        if self.batches.failure is not None and not self.context.stopping.is_set():
            raise self.batches.failure

    def _reached(self, goal: LogOffset) -> bool:
        flowing = [t for t in self.tables if t.flowing]
        return all(self.applier.consistent(t) and self.applier.position(t).has_reached(goal) for t in flowing)


def _start(tables: list[StreamTable]) -> Position:
    return meet_all([_position(t) for t in tables])


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
