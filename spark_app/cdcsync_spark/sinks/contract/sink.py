"""A sink and its targets, as the driver and the Spark tasks use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.changes import Build, Change, Staged
from cdcsync_spark.sinks.contract.snapshot import Readable
from cdcsync_spark.sinks.contract.writer import Outcome, Writer


@dataclass(frozen=True)
class Capabilities:
    """What a sink's targets can do: the kinds of change that they commit, where one that has `Emit`
    takes events and the others are keyed; whether several of them are committed `together`, in one
    transaction."""

    changes: frozenset[type[Change]]
    together: bool = False


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
        """All live rows of a staged copy, for the `Replace` of its table.

        Raises `SinkConflict` where there is no copy of ours: no rows are a copy, too.
        """
        ...

    def commit(self, epoch: int, build: Build) -> TableState:
        """One commit, and one step of maintenance, by a writer of its own."""
        ...

    def writer(self, scratch: Path) -> Writer:
        """For a process that commits often; `scratch` is a folder on its local disk."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A target whose commits count more than rows; see `WriterStatus.counts`."""

    @property
    def counts(self) -> Mapping[str, int]: ...


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

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        """`Writer.commit` of several tables, in one transaction where `capabilities.together`, else
        one after the other (`commit_each`): an outcome for each, in their order; an error that is
        permanent, or `TableBusy`, is its table's alone."""
        ...

    def discard(self, table: TableId, generation: int) -> None:
        """Removes a staged copy; what a `Replace` has published of it stays. Nothing there is no
        error."""
        ...
