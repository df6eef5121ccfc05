"""The writer of a target: commits, one step of maintenance at a time, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cdcsync_core.errors import CdcError, PermanentError, TableBusyError
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Build


@dataclass(frozen=True)
class MaintenanceStep:
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

    def after(self, step: MaintenanceStep, seconds: float) -> Maintenance:
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
    (empty where it did not), and what maintenance has cost so far. `uncompacted` is why it merges
    no files (empty where it does). `max_idle_seconds` is how old
    the last commit may become before the target might forget it. `counts` are what the commits had
    beside rows, by the names that reports have, such as `records` that brokers acknowledged."""

    fallback: str = ""
    max_idle_seconds: float = math.inf
    maintenance: Maintenance = Maintenance()
    counts: Mapping[str, int] = field(default_factory=dict)
    uncompacted: str = ""


class Writer(Protocol):
    """A target as one process writes it again and again; what it learns of the table it keeps
    between commits."""

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        """See `TableTarget.last_commit`. Raises Busy where it is not to `wait` for another
        thread."""
        ...

    def commit(self, epoch: int, build: Build) -> TableState:
        """Publishes what `build` decides; the state that the target has then (see `Build`).

        Raises `SinkConflict` where a higher epoch has taken over, `SinkUnreachable` where a retry
        may help, `TableBusy` where another session keeps this table alone.
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

    def close(self) -> None:
        """Gives up what is being made ready, in any thread, and returns at once. A commit that
        needs it raises Closed."""
        ...

    @property
    def status(self) -> WriterStatus: ...


@runtime_checkable
class Warming(Protocol):
    """A writer whose first commit may have to wait long, as for an index of a large table."""

    def warm(self) -> None:
        """Makes ready what it would wait for; may be called in another thread. Never fails."""
        ...


def total_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums of the counts, by every name that occurs."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


#: what became of a part of `commit_all`: the state that the target has, or why its table stops,
#: for good or until it is tried again (`TableBusyError`)
Outcome = TableState | CdcError
#: see `Sink.commit_all`
CommitAll = Callable[[int, Sequence[tuple[Writer, Build]]], Iterator[Outcome]]


def commit_each(epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
    """`Writer.commit` of each, with its outcome, for sinks whose tables have a transaction each."""
    for writer, build in parts:
        try:
            outcome: Outcome = writer.commit(epoch, build)
        except (PermanentError, TableBusyError) as error:
            outcome = error
        yield outcome
