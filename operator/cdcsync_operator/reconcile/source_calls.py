"""The source's calls in the form that controllers want them: the only file of the operator that
asks `cdcsync_mysql` (on a cluster within the bounds of `cluster.source`).

Each call makes its own connection and reads the credentials again, so a rotated password works at
the next call.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.spec import CdcSync, replica_id
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_lake.check import SinkCheck
from cdcsync_mysql.checks import refused
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.readiness import retention
from cdcsync_mysql.readiness.expected_failover import ExpectedFailover, expected_failovers
from cdcsync_mysql.readiness.preflight import Preflight, preflight
from cdcsync_mysql.reading.catalog import refuse_unlike
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions.connection import Source, connect, source_from_spec
from cdcsync_mysql.sessions.question import Question, out_of_time
from cdcsync_mysql.sessions.source import snapshot_host_of
from cdcsync_operator.decision.observed import ObservedTable, PreflightResult
from cdcsync_operator.decision.tables.shared_targets import meeting_tables
from cdcsync_operator.reconcile.planning import Splits
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls
from cdcsync_operator.reconcile.sink_calls import check_sink


def check_source(
    resource: CdcSync,
    secrets: Path,
    unread: Collection[str] | None = None,
    readers: int = 0,
    question: Question | None = None,
) -> Preflight:
    """The whole preflight; `unread` names the tables whose snapshot is still to be made, None for
    all; `readers`: see `preflight`."""
    spec, metadata = resource.spec, resource.metadata
    server_id = spec.source.server_id or replica_id(metadata.namespace, metadata.name)
    source = _source(resource, secrets, question)
    return preflight(source, spec, replica_id=server_id, unread=unread, readers=readers)


def log_in(resource: CdcSync, secrets: Path, question: Question) -> None:
    """Opens a connection and closes it; raises CdcError."""
    connect(_source(resource, secrets, question)).close()


def not_reached(error: CdcError) -> Preflight:
    """The preflight of a source that refuses every login."""
    return Preflight(None, (refused("connection", error),))


def preflight_in_time(
    resource: CdcSync, secrets: Path, unread: Collection[str] | None, question: Question, seconds: float
) -> Preflight:
    """A preflight for a snapshot with executors, which may be fewer than the spec's parallelism.
    Raises SourceUnreachable where the source takes longer than `seconds`."""
    with question.within(seconds):
        preflight = check_source(resource, secrets, unread, resource.spec.splits_at_once(), question)
    if question.stopped:
        raise out_of_time()
    return preflight


def run_preflight(resource: CdcSync, secrets: Path, unread: Collection[str] | None = None) -> PreflightOutcome:
    """A preflight as the controller uses it."""
    preflight = check_source(resource, secrets, unread)
    return outcome(resource, preflight, check_sink(resource, secrets, captured(preflight)))


def failovers(resource: CdcSync, secrets: Path, preflight: Preflight) -> dict[TableId, ExpectedFailover]:
    """What a failover would mean to the tables that can be copied; raises CdcError."""
    source = source_from_spec(resource.spec.source, secrets)
    return expected_failovers(source, [t.table for t in preflight.tables if t.table is not None and t.error is None])


def captured(preflight: Preflight) -> list[TableId]:
    """The tables that can be copied."""
    return [t.id for t in preflight.tables if t.error is None]


def outcome(resource: CdcSync, preflight: Preflight, sink: SinkCheck) -> PreflightOutcome:
    """What was found of source and sink. What is wrong with a table's topic is that table's; which
    of two that meet in one is the newcomer, only the status knows (`shared_targets`)."""
    meeting = meeting_tables(resource.spec.sink, [str(t.id) for t in preflight.tables])
    faults = {e.table: e for e in sink.all_errors if e.table and e.table not in meeting}
    result = PreflightResult(
        resource.metadata.generation,
        time.time(),
        preflight.failures,
        tuple(
            ObservedTable(str(t.id), t.error or faults.get(str(t.id)), t.unlogged_cascades, t.rows)
            for t in preflight.tables
        ),
        preflight.warnings,
        preflight.facts.to_dict() if preflight.facts else {},
        tuple(e for e in sink.all_errors if not e.table),
        sink.unchecked,
    )
    return PreflightOutcome(result, {str(t.id): t.table for t in preflight.tables if t.table is not None})


def current(resource: CdcSync, secrets: Path, question: Question | None = None) -> LogOffset:
    """Where the source's binlog ends now."""
    with connect(_source(resource, secrets, question)) as connection:
        position = watermark.current(connection, read_facts(connection))
    assert position.at is not None
    return position.at


def kept_until(resource: CdcSync, secrets: Path, file: str, question: Question | None = None) -> float | None:
    """Until when the source keeps a file of its binlog, as `PreflightResult.retained` has it."""
    return retention.kept_until(_source(resource, secrets, question), file)


@contextmanager
def planning(resource: CdcSync, secrets: Path, question: Question | None = None) -> Iterator[Splits]:
    """The chunk plans of tables, one after the other on one connection to the server on which rows
    are read. Any plan has each row once, so a replica's is as good as the source's."""
    source = _source(resource, secrets, question)
    replica = snapshot_host_of(resource.spec.source, source)
    with connect(replica or source) as connection:
        locks = LockBudget()

        def splits(table: Capture, frontier: Bound) -> Iterator[Split]:
            if replica is not None:
                refuse_unlike(connection, table)
            with locks.asking(connection, table.id):
                yield from plan(connection, table, resource.spec.snapshot.rows_a_split, frontier)

        yield splits


def _source(resource: CdcSync, secrets: Path, question: Question | None) -> Source:
    return replace(source_from_spec(resource.spec.source, secrets), question=question)


CALLS = SourceCalls(preflight=run_preflight, current=current, planning=planning, kept_until=kept_until)
