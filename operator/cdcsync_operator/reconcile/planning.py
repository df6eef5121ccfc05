"""The chunk plan of a snapshot run, written shard by shard while the driver already reads.

Why it is right: the first shard of a table is written as soon as there is a second's worth of
splits, so that reading begins early; shards appear whole or not at all, and only ever grow in
number. A plan is a hint (the target's commit is the truth): where it cannot be made or breaks off,
a last shard without splits says so, and the driver plans the rest of the table itself and reports,
under that table's name, what stands in the way. So a table that cannot be planned holds back no
other; only shards that cannot be written end a run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.positions.chunk import Bound, Intervals, Split
from cdcsync_core.quoting import quoted
from cdcsync_core.runs.run import PlanShard, TableAssignment, TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.tables.capture import Capture
from cdcsync_operator.reconcile.files import write_whole

MAX_SPLITS = 1000
#: of a shard's bounds as text, so that long keys make more shards and none is too large for what
#: keeps it
_MAX_TEXT = 300_000
_FLUSH_SECONDS = 1.0
_MAX_FAILURES = 5
#: a frontier that no target has, so that the driver plans by itself
_NOWHERE: list[Any] = ["the plan could not be made"]
#: types whose keys may have numbers of 64 bits without a sign
_NUMBERED = frozenset({"bigint", "bit", "set"})

#: the splits of a table from a frontier on, in key order
Splits: TypeAlias = Callable[[Capture, Bound], Iterator[Split]]


@dataclass(frozen=True)
class TablePlan:
    """Table number `index` of a run, to be planned from `frontier` (None: from the beginning)."""

    index: int
    table: Capture
    frontier: Bound


class PlanSink(Protocol):
    """Where a plan's shards go, whole and in order; either call may raise OSError or CdcError."""

    def write(self, table_index: int, shard: PlanShard) -> None: ...

    def finish(self) -> None:
        """The plan has no more shards."""


@dataclass(frozen=True)
class PlanFolder:
    """Shards as files, as a driver reads them. They are not synced: a plan ends with its run."""

    folder: Path

    def write(self, table_index: int, shard: PlanShard) -> None:
        write_whole(self.folder / PlanShard.filename(table_index, shard.number), shard.to_json())

    def finish(self) -> None:
        """Each table's last shard says so."""


class Planner(threading.Thread):
    """Writes the shards of one run into `sink`. `planning` connects, and plans one table after the
    other until a call of it has failed."""

    def __init__(
        self,
        name: str,
        sink: PlanSink,
        tables: tuple[TablePlan, ...],
        planning: Callable[[], AbstractContextManager[Splits]],
    ) -> None:
        super().__init__(name=f"planner {name}", daemon=True)
        self._sink, self._tables, self._planning = sink, tables, planning
        self._stopping = threading.Event()
        #: by table: the number of its next shard, and where that begins
        self._next: dict[int, tuple[int, Bound]] = {}
        #: in a row
        self._failures = 0
        self.error: CdcError | None = None

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self._plan_all()
            if not self._stopping.is_set():
                self._sink.finish()
        except CdcError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 (a driver would wait for the rest forever)
            if not self._stopping.is_set():  # else the run's folder is gone already
                self.error = fail(
                    Reason.INTERNAL_ERROR, f"the chunk plan failed: {type(error).__name__}: {quoted(str(error))}"
                )

    def _plan_all(self) -> None:
        """A lost connection is made again; the plan goes on where it stood."""
        waiting = deque(self._tables)
        while waiting and not self._stopping.is_set():
            try:
                with self._planning() as splits:
                    self._plan_connected(waiting, splits)
            except CdcError as error:
                if not self._tries_again(error):
                    self._leave(waiting.popleft())

    def _plan_connected(self, waiting: deque[TablePlan], splits: Splits) -> None:
        """Takes the tables off that are planned."""
        while waiting:
            try:
                self._plan(waiting[0], splits)
            except CdcError as error:
                if error.reason is not Reason.TABLE_BUSY:
                    raise
                self._leave(waiting[0])  # it would hold back those behind it
            if self._stopping.is_set():
                return
            waiting.popleft()

    def _plan(self, table: TablePlan, splits: Splits) -> None:
        number, at = self._next.get(table.index, (0, table.frontier))
        for shard in self._shards(table, at, number, splits):
            self._write(table, shard)

    def _tries_again(self, error: CdcError) -> bool:
        """After a pause."""
        if not isinstance(error, TransientError):
            return False
        self._failures += 1
        return self._failures <= _MAX_FAILURES and not self._stopping.wait(self._failures)

    def _shards(self, table: TablePlan, start: Bound, number: int, planned: Splits) -> Iterator[PlanShard]:
        frontier, splits, since, text = start, list[Split](), time.monotonic(), 0
        for split in planned(table.table, start):
            if self._stopping.is_set():
                return
            splits.append(split)
            text += 2 * sum(len(str(value)) for value in split.end or ())
            late = time.monotonic() - since > _FLUSH_SECONDS
            if split.end is None or late or len(splits) == MAX_SPLITS or text > _MAX_TEXT:
                yield _shard(table, number, frontier, splits)
                frontier, splits, since, text, number = split.end, [], time.monotonic(), 0, number + 1

    def _write(self, table: TablePlan, shard: PlanShard) -> None:
        self._sink.write(table.index, shard)
        end = shard.splits[-1].end if shard.splits else None
        self._next[table.index] = (shard.number + 1, end)
        self._failures = 0

    def _leave(self, table: TablePlan) -> None:
        """Ends a plan that breaks off."""
        if self._stopping.is_set():
            return
        number, at = self._next.get(table.index, (0, None))
        frontier = _listed(at) if number else _NOWHERE
        self._write(table, PlanShard(str(table.table.id), number, frontier, (), last=True))


def _shard(table: TablePlan, number: int, frontier: Bound, splits: list[Split]) -> PlanShard:
    return PlanShard(str(table.table.id), number, _listed(frontier), tuple(splits), last=splits[-1].end is None)


def _listed(bound: Bound) -> list[Any] | None:
    return None if bound is None else list(bound)


def table_plans(status: Status, tables: Sequence[TableAssignment]) -> tuple[TablePlan, ...]:
    """What is to be planned of a run's tables: each from where its finished part ends, as far as
    the status knows."""
    recorded = {t.name: t for t in status.table_status}
    return tuple(TablePlan(i, t.table, _frontier(recorded.get(str(t.table.id)), t)) for i, t in enumerate(tables))


def _frontier(entry: TableStatus | None, assignment: TableAssignment) -> Bound:
    """The plan of a resnapshot begins at the table's first key."""
    if entry is None or entry.phase is not TablePhase.SNAPSHOTTING or entry.generation != assignment.generation:
        return None
    finished = Intervals(tuple(part.parsed() for part in entry.finished))
    return None if finished.complete else _numbered(finished.frontier, assignment.table)


def _numbered(bound: Bound, table: Capture) -> Bound:
    """Large numbers are digits in a status."""
    if bound is None:
        return None
    columns = zip(table.key_columns, bound, strict=True)
    return tuple(int(value) if column.type.base in _NUMBERED else value for column, value in columns)
