"""What every sink promises, and the values by which the Spark applications use it.

Rule R4: the target's commit is the truth, and every commit carries the whole state of its table. So
a sink has one way to change anything: `commit(epoch, build)`. It opens the table fresh, reads the
newest own state there, asks `build`, a pure function, what to publish on top of *that* state, and
publishes change and new state together, or nothing (rule R8: compare-and-set). After a lost race
`build` is asked again with the state that won, and answers None if its work is already in. Thus a
replay after any crash is a no-op, because the decision is always made on what the target really
holds.

What is published is a value, a `Change`; a sink has a table from the kinds of change to what it
does for each, and names them in its `Capabilities`. Rows of a snapshot are staged first, by Spark
tasks on other machines: what comes of it, a `StagedPart`, is opaque to all but the sink that made
it. A resnapshot (rule R5) fills a staged copy, a target of the same kind, which is published by one
`Replace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.capture import Capture
from cdcsync_core.errors import RUN_AGAIN, CdcError, PermanentError, Reason, fail
from cdcsync_core.position import Position
from cdcsync_core.remedies import resnapshot
from cdcsync_core.schema_change import Origin
from cdcsync_core.source_table import TableId
from cdcsync_core.state import Identity, TableState
from cdcsync_spark.sinks.events import Events


@dataclass(frozen=True)
class StagedPart:
    """Rows that are written and invisible until a commit names them.

    `kind` is the sink's that wrote them and reads `body`, a text of its own; `rows` are how many.
    """

    kind: str
    rows: int
    body: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StagedPart:
        return cls(data["kind"], data["rows"], data["body"])


Staged = tuple[StagedPart, ...]


@dataclass(frozen=True)
class Append:
    """A wave: rows whose keys the table does not have yet."""

    staged: Staged


@dataclass(frozen=True)
class Upsert:
    """A folded batch: `upserts` with the target's columns, `deletes` with those of its key; a key
    once in both together, never NULL."""

    upserts: pa.Table
    deletes: pa.Table

    @property
    def empty(self) -> bool:
        return self.upserts.num_rows + self.deletes.num_rows == 0


@dataclass(frozen=True)
class Replace:
    """The whole content, of the new state's schema: what was there before goes in the same commit.

    It may come from another binlog: nothing is left that was read from the previous one.
    """

    staged: Staged


@dataclass(frozen=True)
class AdvancePosition:
    """The state alone: an idle table's position, the claim of a new run."""


@dataclass(frozen=True)
class Emit:
    """A batch for a sink that keeps events: every image in the order of the binlog. Only for a
    target whose state is published; before, the target takes the changes of a keyed one and
    publishes its content as of the first consistent state by itself."""

    events: Events


@dataclass(frozen=True)
class Evolve:
    """The rows that are there get the new state's schema; `origins` says for each of its columns,
    in their order, where the values come from, in the names of the found state's schema. Rows come
    and go by other changes only. Of a target that has published events it is asked only where their
    rows stay as they are.

    A sink for which this would take more than its limits raises `PermanentError(SchemaChanged)`
    before it has changed anything.
    """

    origins: tuple[Origin, ...]


@dataclass(frozen=True)
class Empty:
    """All rows go; the schema stays."""


Change = Append | Upsert | Emit | Replace | Evolve | Empty | AdvancePosition


def rows_of(change: Change) -> int:
    """The rows that a batch changes or emits."""
    if isinstance(change, Upsert):
        return int(change.upserts.num_rows + change.deletes.num_rows)
    return change.events.num_rows if isinstance(change, Emit) else 0


@dataclass(frozen=True)
class Capabilities:
    """What a sink's targets can do: the kinds of change that they commit. One that has `Emit` takes
    events, the others are keyed."""

    changes: frozenset[type[Change]]


@dataclass(frozen=True)
class Commit:
    """What is published in one transaction. `state.commit_number` is the found state's plus one,
    `state.epoch` the writer's."""

    state: TableState
    change: Change


#: A pure decision on the state found in the target; None: nothing to do. Called again after a lost
#: race.
Build = Callable[[TableState], Commit | None]


class TargetSnapshot(Protocol):
    """One fixed version of a target and the state that it carries."""

    @property
    def state(self) -> TableState: ...

    @property
    def schema(self) -> pa.Schema: ...

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """The rows in batches, in no order, with bounded memory; `columns` None: all, in the
        schema's order. `key_filter` is over key columns only."""
        ...


@runtime_checkable
class Stretched(Protocol):
    """A `TargetSnapshot` that was read while the target was written: each key has a row that it had
    between the state's position and `until`."""

    @property
    def until(self) -> Position | None: ...


@dataclass(frozen=True)
class Step:
    """One step of maintenance: its name, the bytes of data and deletion vectors that it wrote, the
    files that it removed."""

    name: str
    bytes_written: int = 0
    files_removed: int = 0


@dataclass(frozen=True)
class Maintenance:
    """What a table's maintenance has cost this process: steps, the seconds in them, bytes of data
    and deletion vectors, removed files."""

    steps: int = 0
    seconds: float = 0.0
    bytes_written: int = 0
    files_removed: int = 0

    def after(self, step: Step, seconds: float) -> Maintenance:
        return Maintenance(
            self.steps + 1,
            round(self.seconds + seconds, 6),
            self.bytes_written + step.bytes_written,
            self.files_removed + step.files_removed,
        )

    @classmethod
    def total(cls, costs: Iterable[Maintenance]) -> Maintenance:
        parts = [(c.steps, c.seconds, c.bytes_written, c.files_removed) for c in costs]
        steps, seconds, written, removed = (sum(column) for column in zip((0, 0.0, 0, 0), *parts, strict=True))
        return cls(int(steps), round(seconds, 6), int(written), int(removed))

    def to_dict(self) -> dict[str, float]:
        """As a report carries it."""
        return {
            "steps": self.steps,
            "seconds": self.seconds,
            "bytes": self.bytes_written,
            "filesRemoved": self.files_removed,
        }


class Closed(Exception):
    """The writer was closed while it prepared a commit."""


class Busy(Exception):
    """Another thread uses the writer."""


@dataclass(frozen=True)
class WriterStatus:
    """What reports carry of a writer: why the last MERGE cost more than its batch, as a phrase
    (empty where it did not), and what maintenance has cost so far. `max_idle_seconds` is how old
    the last commit may become before the target might forget it. `records` are those that brokers
    have acknowledged, None where a target is no topic."""

    fallback: str = ""
    max_idle_seconds: float = math.inf
    maintenance: Maintenance = Maintenance()
    records: int | None = None


class Writer(Protocol):
    """A target as one process writes it again and again; what it learns of the table it keeps
    between commits."""

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        """See `TableTarget.last_commit`. Raises Busy where it is not to `wait` for another thread,
        such as one in `warm`."""
        ...

    def commit(self, epoch: int, build: Build) -> TableState:
        """Publishes what `build` decides; the state that the target has then (see `Build`).

        Raises `SinkConflict` where a higher epoch has taken over, `SinkUnreachable` where a retry
        may help.
        """
        ...

    def has_news(self) -> bool:
        """Whether the target has a commit that this writer has not seen, or lacks one that it has
        seen, which a later question may find: cheap, and may be asked in another thread. False
        where the target cannot be asked."""
        ...

    def maintain(self) -> str:
        """One bounded step of maintenance, if one is due: its name; empty where none is. Never
        fails."""
        ...

    def warm(self) -> None:
        """Makes ready what the first MERGE of a large table would wait for; may be called in
        another thread. Never fails."""
        ...

    def close(self) -> None:
        """Gives up what is being made ready, in any thread, and returns at once. A MERGE that needs
        it raises Closed."""
        ...

    @property
    def status(self) -> WriterStatus: ...


class TableTarget(Protocol):
    """One table's place in a sink. Picklable; used by the driver and inside Spark tasks."""

    def prepare(self, state: TableState) -> TableState:
        """The target's state; a target that is not there is created with `state` in its very first
        commit.

        Raises `SinkConflict` for a table there that is not this identity's.
        """
        ...

    def last_commit(self) -> TableState | None:
        """The state of the rows that are there, with what other programs did to them: the newest
        own one, or where they were taken back the one that they had (rule R4). None: no table
        there."""
        ...

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        """Writes rows of `arrow_schema(table)` with bounded memory; the parts are unique to the
        attempt, no rows no part."""
        ...

    def staged(self) -> Staged:
        """All live rows of a staged copy, for the `Replace` of its table."""
        ...

    def commit(self, epoch: int, build: Build) -> TableState:
        """One commit, and one step of maintenance, by a writer of its own."""
        ...

    def writer(self, scratch: Path) -> Writer:
        """For a process that commits often; `scratch` is a folder on its local disk."""
        ...


#: what became of a part of `commit_all`: the state that the target has, or why its table stops
Outcome = TableState | PermanentError
#: see `Sink.commit_all`
CommitAll = Callable[[int, Sequence[tuple[Writer, Build]]], Iterator[Outcome]]


def commit_each(epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
    """`Writer.commit` of each, with its outcome, for sinks whose tables have a transaction each."""
    for writer, build in parts:
        try:
            outcome: Outcome = writer.commit(epoch, build)
        except PermanentError as error:
            outcome = error
        yield outcome


class Readable(Protocol):
    """A target whose rows can be read, as a verification does."""

    def open_snapshot(self) -> TargetSnapshot:
        """The newest version, fixed; later commits do not change what it reads."""
        ...


@runtime_checkable
class Sending(Protocol):
    """A target that is a topic: `records` are those that brokers have acknowledged to its
    commits."""

    @property
    def records(self) -> int: ...


class Target(TableTarget, Readable, Protocol):
    """What all sinks have today."""


class Sink(Protocol):
    """All targets of a sync. Picklable."""

    @property
    def capabilities(self) -> Capabilities: ...

    def target(self, table: TableId, *, generation: int = 0) -> Target:
        """A table's target, or (`generation` above 0) the staged copy of that generation, which a
        resnapshot fills."""
        ...

    @property
    def commit_all(self) -> CommitAll | None:
        """`Writer.commit` of several tables in one transaction: an outcome for each, in their
        order; an error that is permanent is its table's alone. None where each table has a
        transaction of its own."""
        ...

    def discard(self, table: TableId, generation: int) -> None:
        """Removes a staged copy; what a `Replace` has published of it stays. Nothing there is no
        error."""
        ...


class Superseded(PermanentError):
    """A newer run has the table, and so the sync."""


def refuse_superseded(found: TableState, epoch: int) -> None:
    """A higher epoch in the table ends the run (rule R8)."""
    if found.epoch > epoch:
        raise Superseded(
            Reason.SINK_CONFLICT,
            f"superseded by epoch {found.epoch}; this run has epoch {epoch}",
            needed="one run of a sync at a time",
            remedy=f"nothing to do where the other run goes on; else end it, {RUN_AGAIN}",
            table=found.identity.table,
        )


def refuse_other_identity(found: TableState, wanted: TableState) -> None:
    """A table is continued only by the same sync from the same log and the same source table."""
    differing = [
        f"{name} {mine!r}, needed {theirs!r}"
        for (name, mine), theirs in zip(
            found.identity.to_dict().items(), wanted.identity.to_dict().values(), strict=True
        )
        if mine != theirs
    ]
    if differing:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target table was written for another copy: {'; '.join(differing)}",
            needed="a target that this sync made from this source, or none",
            remedy=_continuation(found.identity, wanted.identity),
            table=wanted.identity.table,
        )


def _continuation(found: Identity, wanted: Identity) -> str:
    """What belongs to another sync is never to be removed for this one."""
    if found.sync != wanted.sync:
        return f"create this sync again with another sink path: the table is the sync {found.sync}'s"
    if found.table != wanted.table:
        return f"leave one out (tables.exclude): {found.table} and {wanted.table} have one folder in this store"
    return resnapshot(wanted.table)


def replaced_meanwhile(table: str) -> CdcError:
    """Of a target that was read while a resnapshot replaced it: it is another table."""
    return fail(
        Reason.INTERNAL_ERROR, "the table was resnapshotted while it was read", remedy="verify again", table=table
    )


def check_successor(found: TableState, commit: Commit, epoch: int) -> None:
    """What every commit must hold, whatever the caller computed; raises `InternalError`.

    The binlog is the same one unless the whole content is replaced: a table is resnapshotted after
    its server was replaced (rule R6).
    """
    new, due = commit.state, found.identity
    if isinstance(commit.change, Replace):
        due = replace(due, lineage=new.identity.lineage)
    wrong = [
        problem
        for problem, bad in (
            (f"identity {new.identity} after {found.identity}", new.identity != due),
            (f"state {new.commit_number} after {found.commit_number}", new.commit_number != found.commit_number + 1),
            (f"epoch {new.epoch} by a writer of epoch {epoch}", new.epoch != epoch),
        )
        if bad
    ]
    if wrong:
        raise fail(
            Reason.INTERNAL_ERROR,
            f"a commit that does not follow the target's state: {'; '.join(wrong)}",
            remedy="report this with the driver log",
            table=found.identity.table,
        )
