"""The kinds of runs: one row of `RUNS` has all that depends on a kind.

Theory of operation. A sync has at most one run of each kind. A *snapshot* run reads the tables that
are not read yet; the *stream* run applies the binlog to all tables that have a position. The stream
waits for the first snapshot, but tables that were consistent before never wait for others: a table
that is added or resnapshotted gets a snapshot run of its own while the stream goes on, then a
*catch-up* run (a second reader from the table's position to where the stream was), and then the
stream is drained and started again with the table in it (rule R5). A *verify* run compares tables
beside all of these, and moves none of them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdcsync_core.runs.run import LOG_END, RunKind, TablePhase
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.decision.needs import Generations, Need, asked
from cdcsync_operator.decision.observed import ObservedRun, RunState
from cdcsync_operator.decision.runs.due_times import catches_up, is_due
from cdcsync_operator.decision.runs.verification import tables_to_verify
from cdcsync_operator.decision.runs.windows import is_read_from_source, may_begin
from cdcsync_operator.decision.situation import Situation
from cdcsync_operator.decision.tables.resnapshots import waiting_for_definition


@dataclass(frozen=True)
class WantedRun:
    """A run that should exist: `id` is that of the one which is to go on, empty for a new one."""

    kind: RunKind
    tables: Generations
    stop_at: str = ""
    id: str = ""


@dataclass(frozen=True)
class RunRule:
    """A kind of run.

    `serves` is the need of the tables that it is for, and they are in phase `during` while it works
    and in phase `after` when it has done its work; `begins`: they enter `during` when it starts.
    `unread_fields` are the fields of the spec that its application does not read. `required`: the
    tables of a new run and where it is to stop; no tables where none should exist. `gives_way`: why
    a live one, although as the spec asks for it, should end; empty where it should not. `finished`:
    whether one that ended by itself has done its work on a table. `resumes`: it is started again
    after it was drained, although another run's failure has a pause. `by_splits`: it gets
    a chunk plan, and may read with executors where runs are
    pods.
    """

    serves: Need
    during: TablePhase
    after: TablePhase
    unread_fields: tuple[str, ...]
    required: Callable[[Situation], tuple[Generations, str]]
    finished: Callable[[ObservedRun, TableStatus], bool]
    gives_way: Callable[[Situation, ObservedRun], str] = lambda _, __: ""
    begins: bool = False
    resumes: bool = True
    by_splits: bool = False


def is_complete(s: Situation, run: ObservedRun) -> bool:
    """Whether a run that ended has done all that such a run can do."""
    names, finished = run.names, RUNS[run.kind].finished
    tables = [t for t in s.assigned if t.name in names]
    return all(t.failed or is_superseded(s, run, t) or finished(run, t) for t in tables)


def is_superseded(s: Situation, run: ObservedRun, table: TableStatus) -> bool:
    """Whether another content than the run's is asked for by now: the table is another run's to
    make."""
    return asked(s.spec, table) > run.generations.get(table.name, -1)


def unfinished(s: Situation, run: ObservedRun) -> list[TableStatus]:
    """The tables for which the run was at work: of a snapshot those to be read, of the others those
    that are read."""
    unread = {name for name, _ in s.needs.unread}
    tables = [t for t in s.assigned if t.name in run.names and not t.failed]
    if RUNS[run.kind].serves is not Need.SNAPSHOT:
        return [t for t in tables if t.name not in unread]
    return [t for t in tables if t.name in unread and not has_read(run, t) and not is_superseded(s, run, t)]


def executors(s: Situation, run: WantedRun) -> int:
    """How many a new run asks for, by the source's estimate of the rows that it is to read."""
    if not RUNS[run.kind].by_splits or s.preflight is None:
        return 0
    names = {name for name, generation in run.tables if is_read_from_source(s, name, generation)}
    return s.spec.snapshot_executors(sum(t.rows for t in s.preflight.tables if t.name in names))


# ---- snapshot


def _snapshot(s: Situation) -> tuple[Generations, str]:
    """Not of a table whose definition is still to be read, and in its windows only."""
    waiting = waiting_for_definition(s)
    unread = tuple((name, generation) for name, generation in s.needs.unread if name not in waiting)
    return may_begin(s, unread), ""


def _is_outside_windows(s: Situation, run: ObservedRun) -> str:
    """Not before it has reported which tables it reads, because it asks their targets first."""
    if s.spec.snapshot.closed_until(s.now) is None:
        return ""
    reported = [t for t in unfinished(s, run) if t.phase is not TablePhase.PENDING]
    reads = any(is_read_from_source(s, t.name, run.generations[t.name]) for t in reported)
    return "the window of spec.snapshot.windows is over" if reads else ""


def has_read(run: ObservedRun, table: TableStatus) -> bool:
    return table.positioned and table.generation >= run.generations[table.name]


# ---- stream


def _stream(s: Situation) -> tuple[Generations, str]:
    """Not while a catch-up lives, which it would overtake; with a schedule only when it is due."""
    catch_up = s.named(RunKind.CATCH_UP)
    alone = catch_up is None or not catch_up.live
    stop_at = "" if s.spec.stream.schedule is None else LOG_END
    return (s.needs.streamable if alone and s.may_stream and is_due(s) else ()), stop_at


def _streamed(run: ObservedRun, table: TableStatus) -> bool:
    """A stream ends by itself when it has caught up, or this holds for all its tables."""
    return catches_up(run) or not table.positioned or table.generation > run.generations[table.name]


def _is_joined(s: Situation, stream: ObservedRun) -> str:
    """When a catch-up has brought tables to it."""
    catch_up = s.named(RunKind.CATCH_UP)
    joined = s.needs.behind and stream.state is RunState.RUNNING and catch_up is not None and not catch_up.live
    return "tables that were caught up with it join it" if joined else ""


# ---- catch-up


def _catch_up(s: Situation) -> tuple[Generations, str]:
    """Tables that have a position and are not in the stream, to where that is now."""
    stream, position = s.stream, s.status.position
    if stream is None or stream.state is not RunState.RUNNING or not position or not position.place:
        return (), ""
    return s.needs.behind, position.named_place


def _is_pointless(s: Situation, _: ObservedRun) -> str:
    return "" if s.stream else "no stream lives that it could catch up with"


_OF_THE_SNAPSHOT = (
    "snapshot.delivery",
    "snapshot.maxRowsPerSecond",
    "snapshot.maxBytesPerSecond",
    "snapshot.maxLoad",
    "source.snapshotHost",
)
_OF_THE_STREAM = ("stream", "source.serverId", "source.heartbeatInterval", "schemaChange")

RUNS: Mapping[RunKind, RunRule] = {
    RunKind.SNAPSHOT: RunRule(
        serves=Need.SNAPSHOT,
        during=TablePhase.SNAPSHOTTING,
        after=TablePhase.CATCHING_UP,
        unread_fields=(*_OF_THE_STREAM, "verify"),
        required=_snapshot,
        finished=has_read,
        gives_way=_is_outside_windows,
        begins=True,
        resumes=False,
        by_splits=True,
    ),
    RunKind.STREAM: RunRule(
        serves=Need.STREAM,
        during=TablePhase.CATCHING_UP,
        after=TablePhase.STREAMING,
        unread_fields=("snapshot", "source.snapshotHost", "executors", "start", "verify"),
        required=_stream,
        finished=_streamed,
        gives_way=_is_joined,
    ),
    RunKind.CATCH_UP: RunRule(
        serves=Need.CATCH_UP,
        during=TablePhase.CATCHING_UP,
        after=TablePhase.CATCHING_UP,
        unread_fields=("snapshot", "source.snapshotHost", "executors", "start", "verify"),
        required=_catch_up,
        finished=lambda _, __: True,
        gives_way=_is_pointless,
    ),
    RunKind.VERIFY: RunRule(
        serves=Need.NOTHING,
        during=TablePhase.STREAMING,
        after=TablePhase.STREAMING,
        unread_fields=(*_OF_THE_STREAM, *_OF_THE_SNAPSHOT, "executors", "start", "sparkConf"),
        required=tables_to_verify,
        finished=lambda _, __: True,
        resumes=False,
    ),
}
