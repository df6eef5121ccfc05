"""The snapshot's waves against targets in memory: what is committed when, after a crash, a lost
log, a failed table.

The source is one in memory, whose watermarks count upwards; a wave's job is a function from tasks
to results.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError, UnlistedError, fail
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset, Position
from cdcsync_core.resource.snapshot_spec import MaxLoad, SnapshotSpec
from cdcsync_core.resource.spec import Tables
from cdcsync_core.runs.run import Decoder, PlanShard, TableAssignment
from cdcsync_core.state import Identity, SinkWrite, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.run.progress import Reporter
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Append, Change, Commit, Replace
from cdcsync_spark.sinks.contract.checks import check_successor
from cdcsync_spark.snapshot.run import run_snapshot
from cdcsync_spark.snapshot.source import Verify
from cdcsync_spark.snapshot.wave_job import SplitResult, SplitTask
from support.memory_target import MemorySink, MemoryTarget

LINEAGE = Lineage.of("mariadb:1")


def definition(name: str) -> Capture:
    return Capture(SourceTable(TableId("shop", name), (Column("id", SourceType.parse("int"), False),)), ("id",))


def plan(count: int) -> tuple[Split, ...]:
    bounds = [None, *((n * 10,) for n in range(1, count)), None]
    return tuple(Split(a, b) for a, b in pairwise(bounds))


def at(offset: int) -> LogOffset:
    return LogOffset("binlog.000001", offset)


@dataclass
class MemorySource:
    """A `SnapshotSource`, and the job of a wave. `place` is the end of the binlog; `lost` are
    offsets that it has no more; `loads` are the next answers of `excess`.

    `unplanned` are tables whose plan breaks off after its shards, with what the driver's own plan
    of them raises; of others it ends with the last of `whole` splits.
    """

    place: int = 100
    lineage: Lineage = LINEAGE
    waves: list[list[SplitTask]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lost: set[int] = field(default_factory=set)
    errors: dict[tuple[str, Split], CdcError] = field(default_factory=dict)
    unplanned: dict[str, CdcError] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    before_commit: Callable[[], None] = lambda: None
    loads: list[str] = field(default_factory=list)

    def low(self) -> Position:
        return FilePosition(self._next())

    def high(self, lineage: Lineage, low: Position, since: Position | None = None) -> LogOffset:
        self._verify(lineage, low)
        return self._next()

    def behind(self, low: Position) -> str:
        return ""

    def replica_for(self, table: Capture) -> None:
        return None

    def excess(self, most: MaxLoad, tables: Sequence[Capture]) -> str:
        return self.loads.pop(0) if self.loads else ""

    @contextmanager
    def history(self) -> Iterator[Verify]:
        yield self._verify

    def splits(self, table: Capture, chunk_size: int, frontier: Bound) -> Iterator[Split]:
        if table.id.name in self.unplanned:
            raise self.unplanned[table.id.name]
        splits = plan(self.whole[table.id.name])
        yield from splits[[s.start for s in splits].index(frontier) :]

    def read_wave(self, _: Any, tasks: Sequence[SplitTask], progress: Callable[[Any], None]) -> list[SplitResult]:
        self.waves.append(list(tasks))
        progress({t.table: (1, 10) for t in tasks})
        self.before_commit()
        return [self._result(t) for t in tasks]

    def _next(self) -> LogOffset:
        self.place += 100
        return at(self.place)

    def _verify(self, lineage: Lineage, position: Position | None) -> None:
        if self.lineage != lineage or (isinstance(position, FilePosition) and position.at.offset in self.lost):
            raise fail(Reason.POSITION_LOST, f"the binlog is {self.lineage}, or it lacks {position}")

    def _result(self, task: SplitTask) -> SplitResult:
        error = self.errors.get((task.reader.table.id.name, task.reader.split))
        if error is not None:
            return SplitResult(error=error, rows=10, size=1 << 15)
        first = 10 * next(self.numbers)
        rows = [{"id": n} for n in range(first, first + 10)]
        staged = task.target.stage(task.reader.table, self._batches(task.reader.table, rows), task.name)
        return SplitResult(staged, rows=10, nulled=1, size=1 << 15)

    @staticmethod
    def _batches(table: Capture, rows: list[dict[str, int]]) -> list[pa.RecordBatch]:
        return pa.Table.from_pylist(rows, captured_schema(table)).to_batches()

    def read(self) -> list[tuple[str, Split]]:
        return [(t.reader.table.id.name, t.reader.split) for wave in self.waves for t in wave]


@dataclass
class SnapshotRuns:
    folder: Path
    source: MemorySource
    sink: MemorySink = field(default_factory=MemorySink)
    epoch: int = 1
    lineage: Lineage = LINEAGE
    bounds: dict[str, Any] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)
    wait: Callable[[float], None] | None = None

    def run(
        self,
        tables: dict[str, int],
        *,
        nonces: dict[str, int] | None = None,
        generations: dict[str, int] | None = None,
        parallelism: int = 2,
    ) -> RunContext:
        """One run over tables with that many splits each; the planner's shards continue what the
        targets have."""
        plans = self.folder / f"plan-{self.epoch}"
        plans.mkdir()
        asked, least = nonces or {}, generations or nonces or {}
        assignments = tuple(TableAssignment(definition(n), asked.get(n, 0), least.get(n, 0)) for n in tables)
        for index, (name, count) in enumerate(tables.items()):
            self._write_plan(plans, index, name, count, least.get(name, 0))
        self.source.whole |= tables
        context = self._context(assignments, plans, parallelism)
        self.epoch += 1
        run_snapshot(context, self.source, self.source.read_wave)
        return context

    def _write_plan(self, plans: Path, index: int, name: str, count: int, generation: int) -> None:
        found = self.sink.target(definition(name).id).state
        if found and generation > found.generation:
            found = self.sink.target(definition(name).id, generation=generation).state
        frontier = found.finished.frontier if found and not found.snapshot_complete else None
        left = plan(count)[[s.start for s in plan(count)].index(frontier) :]
        left = left[:-1] if name in self.source.unplanned else left
        shard = PlanShard(f"shop.{name}", 0, None if frontier is None else list(frontier), left, last=True)
        (plans / PlanShard.filename(index, 0)).write_text(shard.to_json())

    def _context(self, assignments: tuple[TableAssignment, ...], plans: Path, parallelism: int) -> RunContext:
        starting: Future[Any] = Future()
        starting.set_result(nullcontext())
        context = SimpleNamespace(
            config=SimpleNamespace(
                id=f"run-{self.epoch}",
                epoch=self.epoch,
                plan_dir=str(plans),
                tables=assignments,
                decoder=Decoder.VECTORIZED,
                spark={},
            ),
            resource=SimpleNamespace(
                spec=SimpleNamespace(
                    tables=Tables(include=(".*",)),
                    snapshot=SnapshotSpec.model_validate({"chunkSize": 10, "parallelism": parallelism} | self.bounds),
                )
            ),
            source=None,
            facts=SimpleNamespace(lineage=self.lineage),
            sink=self.sink,
            sync="default/shop",
            reporter=Reporter("run", -1),
            stopping=threading.Event(),
            failed={},
            starting=starting,
            wait=self.wait or self.waited.append,
        )
        context.refuse = lambda table, error: context.failed.__setitem__(table, error)
        return cast(RunContext, context)

    def target(self, name: str, generation: int = 0) -> MemoryTarget:
        return self.sink.target(definition(name).id, generation=generation)


@pytest.fixture
def runs(tmp_path: Path) -> SnapshotRuns:
    return SnapshotRuns(tmp_path, MemorySource())


def test_all_splits_are_read_once_and_committed_wave_by_wave(runs: SnapshotRuns) -> None:
    """Rules R1 and R4: each wave between its own LOW and HIGH; the commit carries them with the
    files."""
    runs.run({"orders": 6})
    assert runs.source.read() == [("orders", s) for s in plan(6)]
    target = runs.target("orders")
    assert [len(w) for w in runs.source.waves] == [4, 2]
    assert [(c.state.low, c.state.high) for c in target.log] == [
        (FilePosition(at(200)), at(300)),
        (FilePosition(at(200)), at(500)),
    ]
    assert target.state is not None
    assert target.state.position == FilePosition(at(200))
    assert (target.state.splits, target.state.rows, target.state.nulled_dates, len(target.parts)) == (6, 60, 6, 6)


def test_a_bound_on_rows_makes_waves_small_and_their_time_as_long_as_their_rows_take(runs: SnapshotRuns) -> None:
    """A wave of twenty rows has a fifth of a second; the waits are between waves, after their
    commits."""
    runs.bounds = {"maxRowsPerSecond": 100}
    runs.run({"orders": 4})
    assert [len(w) for w in runs.source.waves] == [2, 2]
    assert len(runs.target("orders").log) == 2
    assert runs.waited
    assert all(0 < seconds <= 0.2 for seconds in runs.waited)


def test_a_wave_that_failed_has_the_time_of_its_rows_too(runs: SnapshotRuns) -> None:
    """Twenty rows of a table that is refused, then those of the next."""
    runs.bounds = {"maxRowsPerSecond": 100}
    for split in plan(4):
        runs.source.errors["a", split] = fail(Reason.TYPE_UNSUPPORTED, "a value")
    runs.run({"a": 2, "b": 2})
    assert len(runs.source.waves) == 2
    assert runs.waited
    assert all(0 < seconds <= 0.2 for seconds in runs.waited)


def test_a_bound_on_bytes_makes_waves_small_once_their_size_is_known(runs: SnapshotRuns) -> None:
    """A split has 32 KiB."""
    runs.bounds = {"maxBytesPerSecond": "64Ki"}
    runs.run({"orders": 6})
    assert [len(w) for w in runs.source.waves] == [1, 2, 2, 1]
    assert runs.waited
    assert all(0 < seconds <= 1 for seconds in runs.waited)


def test_a_load_that_is_too_high_holds_the_next_wave(runs: SnapshotRuns) -> None:
    """Asked before each wave, of one split for each reader."""
    runs.bounds = {"maxLoad": {"threadsRunning": 5}}
    runs.source.loads = ["", "Threads_running is 9", "Threads_running is 8", ""]
    commits: list[int] = []
    runs.wait = lambda _: commits.append(len(runs.target("orders").log))
    runs.run({"orders": 4})
    assert [len(w) for w in runs.source.waves] == [2, 2]
    assert commits == [1, 1]


def test_a_wave_may_hold_the_end_of_one_table_and_the_beginning_of_the_next(runs: SnapshotRuns) -> None:
    runs.run({"orders": 3, "items": 2})
    assert [[t.reader.table.id.name for t in w] for w in runs.source.waves] == [
        ["orders", "orders", "orders", "items"],
        ["items"],
    ]
    for name in ("orders", "items"):
        state = runs.target(name).state
        assert state is not None
        assert state.snapshot_complete


def test_after_a_crash_only_the_last_wave_is_read_again(runs: SnapshotRuns) -> None:
    """Rule R4, and the promise: resume, not restart."""
    runs.target("orders").lose_next = None

    def crash() -> None:
        if len(runs.source.waves) == 2:
            raise TransientError(Reason.DRIVER_LOST, "killed")

    runs.source.before_commit = crash
    with pytest.raises(TransientError):
        runs.run({"orders": 10})
    assert len(runs.target("orders").parts) == 4
    runs.source.before_commit = lambda: None
    runs.source.waves.clear()
    runs.run({"orders": 10})
    assert runs.source.read() == [("orders", s) for s in plan(10)[4:]]
    assert len(runs.target("orders").parts) == 10


def test_a_finished_table_is_not_read_again(runs: SnapshotRuns) -> None:
    runs.run({"orders": 3})
    commits = len(runs.target("orders").log)
    runs.source.waves.clear()
    runs.run({"orders": 3})
    assert runs.source.waves == []
    assert len(runs.target("orders").log) == commits


def test_a_wave_that_another_run_committed_meanwhile_is_not_committed_again(runs: SnapshotRuns) -> None:
    """Rule R8: the decision is made on the state that the target has then."""
    target = runs.target("orders")

    def other(found: MemoryTarget) -> None:
        assert found.state
        found.state = found.state.after_wave(list(plan(3)), FilePosition(at(50)), at(60), rows=30, nulled_dates=0)

    def arm() -> None:
        target.lose_next = other

    runs.source.before_commit = arm
    runs.run({"orders": 3})
    assert target.log == []
    assert target.parts == ()
    assert target.state is not None
    assert target.state.snapshot_complete


def test_what_another_program_writes_beside_a_snapshot_is_noted(runs: SnapshotRuns) -> None:
    """Rule R4: the next wave's commit keeps the note; the content of a resnapshot has none."""
    target, write = runs.target("orders"), SinkWrite(3, "DuckDB")

    def other(found: MemoryTarget) -> None:
        assert found.state
        found.state = replace(found.state, written=write)

    def arm() -> None:
        target.lose_next = target.lose_next or other

    runs.source.before_commit = arm
    runs.run({"orders": 10})
    assert target.state is not None
    assert (target.state.snapshot_complete, target.state.written) == (True, write)
    runs.source.before_commit = lambda: None
    target.lose_next = None
    runs.run({"orders": 3}, nonces={"orders": 1})
    assert target.state is not None
    assert (target.state.resnapshot_nonce, target.state.written) == (1, None)


def test_a_run_that_lost_its_place_to_another_ends(runs: SnapshotRuns) -> None:
    """Then nothing that it read may be published: the other one's splits may overlap."""
    target = runs.target("orders")

    def other(found: MemoryTarget) -> None:
        assert found.state
        found.state = found.state.after_wave(list(plan(10)[:2]), FilePosition(at(50)), at(60), rows=20, nulled_dates=0)

    def arm() -> None:
        target.lose_next = target.lose_next or other

    runs.source.before_commit = arm
    with pytest.raises(TransientError, match="another run"):
        runs.run({"orders": 10})
    assert target.parts == ()


def test_a_superseded_run_ends(runs: SnapshotRuns) -> None:
    """Rule R8: a higher epoch in the table."""
    target = runs.target("orders")

    def other(found: MemoryTarget) -> None:
        assert found.state
        found.state = replace(found.state, epoch=9)

    def arm() -> None:
        target.lose_next = other

    runs.source.before_commit = arm
    with pytest.raises(PermanentError, match="superseded"):
        runs.run({"orders": 3})


def test_a_new_run_goes_beyond_every_epoch_in_its_targets(runs: SnapshotRuns) -> None:
    """Epochs begin at 1 again where the status was deleted."""
    runs.epoch = 7
    runs.run({"orders": 2})
    runs.epoch = 1
    runs.run({"orders": 2, "items": 2})
    orders, items = runs.target("orders").state, runs.target("items").state
    assert orders is not None
    assert items is not None
    assert items.epoch > orders.epoch > 1


def test_a_table_that_fails_for_good_leaves_the_others_alone(runs: SnapshotRuns) -> None:
    runs.source.errors[("orders", plan(6)[1])] = fail(Reason.SCHEMA_CHANGE_REFUSED, "the definition changed")
    context = runs.run({"orders": 6, "items": 2})
    assert set(context.failed) == {"shop.orders"}
    assert runs.target("orders").parts == ()
    state = runs.target("items").state
    assert state is not None
    assert state.snapshot_complete
    assert len([1 for name, _ in runs.source.read() if name == "orders"]) == 4


@pytest.mark.parametrize("splits", [1, 2, 4, 5, 6, 7])
def test_a_table_whose_plan_breaks_off_leaves_the_others_alone(runs: SnapshotRuns, splits: int) -> None:
    """Wherever in a wave that is: what else the wave holds is read, and so are the tables after
    it."""
    runs.source.unplanned["orders"] = fail(Reason.TYPE_UNSUPPORTED, "a zero date in the key", table="shop.orders")
    context = runs.run({"notes": 3, "orders": splits, "items": 2})
    assert {t: e.reason for t, e in context.failed.items()} == {"shop.orders": Reason.TYPE_UNSUPPORTED}
    for name, count in (("notes", 3), ("items", 2)):
        state = runs.target(name).state
        assert state is not None
        assert (state.snapshot_complete, state.splits) == (True, count)
    assert all(wave for wave in runs.source.waves)


@pytest.mark.parametrize("reason", [Reason.SOURCE_UNREACHABLE, Reason.AUTHENTICATION_FAILED])
def test_a_plan_that_fails_of_the_whole_source_ends_the_run(runs: SnapshotRuns, reason: Reason) -> None:
    """No table is to blame for a source that does not answer, or for a login that is refused."""
    runs.source.unplanned["orders"] = fail(reason, "away")
    with pytest.raises(CdcError, match="away"):
        runs.run({"orders": 3, "items": 2})


def test_a_store_that_refuses_one_table_stops_that_one_only(runs: SnapshotRuns) -> None:
    """Whatever the reason is, but that a newer run has the sync."""
    runs.target("orders").fail_next = PermanentError(Reason.PRIVILEGE_MISSING, "the folder is read-only")
    context = runs.run({"orders": 6, "items": 2})
    assert {t: e.reason for t, e in context.failed.items()} == {"shop.orders": Reason.PRIVILEGE_MISSING}
    items = runs.target("items").state
    assert items is not None
    assert items.snapshot_complete


def test_a_split_that_may_succeed_next_time_ends_the_run(runs: SnapshotRuns) -> None:
    runs.source.errors[("orders", plan(2)[1])] = fail(Reason.SOURCE_UNREACHABLE, "gone")
    with pytest.raises(TransientError):
        runs.run({"orders": 2})
    assert runs.target("orders").parts == ()


_UNKNOWN = UnlistedError(Reason.INTERNAL_ERROR, 'reading shop.b: "never seen" (9999)')


def test_an_error_that_is_not_known_is_tried_for_its_table_alone(runs: SnapshotRuns) -> None:
    """It comes again, so it is the table's, with the server's words; the others are read. The table
    stops for no longer than the error lasts."""
    runs.source.errors[("b", plan(3)[1])] = _UNKNOWN
    context = runs.run({"a": 3, "b": 3, "c": 3})
    assert {n: (e.reason, "9999" in e.found) for n, e in context.failed.items()} == {
        "shop.b": (Reason.TABLE_BUSY, True)
    }
    alone = [wave for wave in runs.source.waves if {t.reader.table.id.name for t in wave} == {"b"}]
    assert alone, "its part of the wave was tried by itself"
    for name in ("a", "c"):
        state = runs.target(name).last_commit()
        assert state is not None
        assert state.snapshot_complete
    runs.source.errors.clear()
    assert runs.run({"a": 3, "b": 3, "c": 3}).failed == {}
    assert _complete(runs, "b")


def test_an_error_that_is_not_known_and_passes_costs_nothing(runs: SnapshotRuns) -> None:
    runs.source.errors[("b", plan(2)[0])] = _UNKNOWN

    def cure() -> None:
        if len(runs.source.waves) > 1:
            runs.source.errors.clear()

    runs.source.before_commit = cure
    context = runs.run({"a": 2, "b": 2})
    assert context.failed == {}
    state = runs.target("b").last_commit()
    assert state is not None
    assert state.snapshot_complete


def _complete(runs: SnapshotRuns, *names: str) -> bool:
    states = [runs.target(name).last_commit() for name in names]
    return all(state is not None and state.snapshot_complete for state in states)


@pytest.mark.parametrize("waves", [2, 3, 4])
def test_an_error_that_is_not_known_and_lasts_for_some_waves_stops_no_table(runs: SnapshotRuns, waves: int) -> None:
    """A server without room for temporary files: whatever is read meanwhile meets it, alone, too.
    What was read before says nothing of it."""

    def trouble() -> None:
        lasts = 1 < len(runs.source.waves) <= 1 + waves
        runs.source.errors = {(n, s): _UNKNOWN for n in ("b", "c") for s in plan(2)} if lasts else {}

    runs.source.before_commit = trouble
    context = runs.run({"a": 4, "b": 2, "c": 2, "d": 4})
    assert context.failed == {}
    assert _complete(runs, "a", "b", "c", "d")


@pytest.mark.parametrize("tables", [{"b": 2}, {"b": 2, "c": 2}, {"a": 4, "b": 2, "c": 2}])
def test_an_error_that_is_not_known_and_lasts_to_the_end_stops_no_table_for_good(
    runs: SnapshotRuns, tables: dict[str, int]
) -> None:
    """Also where no other table can show whose it is."""
    runs.source.errors |= {(n, s): _UNKNOWN for n in ("b", "c") for s in plan(2)}
    for _ in range(2):
        failed = runs.run(tables).failed
        assert {n: e.reason for n, e in failed.items()} == {f"shop.{n}": Reason.TABLE_BUSY for n in tables if n != "a"}
    runs.source.errors.clear()
    assert runs.run(tables).failed == {}
    assert _complete(runs, *tables)


_BUSY = fail(Reason.TABLE_BUSY, 'reading shop.b: "Lock wait timeout exceeded" (1205)')


@pytest.mark.parametrize("tables", [{"b": 3}, {"a": 3, "b": 3, "c": 3}])
def test_a_table_that_is_locked_is_left_out_and_the_others_are_read(runs: SnapshotRuns, tables: dict[str, int]) -> None:
    runs.source.errors[("b", plan(3)[1])] = _BUSY
    context = runs.run(tables)
    assert {n: (e.reason, e.table) for n, e in context.failed.items()} == {"shop.b": (Reason.TABLE_BUSY, "shop.b")}
    read = [[(t.reader.table.id.name, t.reader.split) for t in wave] for wave in runs.source.waves]
    met = next(n for n, splits in enumerate(read) if ("b", plan(3)[1]) in splits)
    waits = [{t.reader.briefly for t in wave} for wave in runs.source.waves]
    assert waits == [{False}] * (met + 1) + [{True}] * (len(waits) - met - 1), "only the first one is waited for"
    assert _complete(runs, *(tables.keys() - {"b"}))
    runs.source.errors.clear()
    assert runs.run(tables).failed == {}
    assert _complete(runs, *tables)


def test_tables_that_are_locked_when_they_are_planned_are_left_out(runs: SnapshotRuns) -> None:
    runs.source.unplanned |= {"b": _BUSY, "c": _BUSY}
    context = runs.run({"b": 6, "c": 6, "d": 2})
    assert {n: e.reason for n, e in context.failed.items()} == dict.fromkeys(("shop.b", "shop.c"), Reason.TABLE_BUSY)
    assert _complete(runs, "d")


def test_a_lock_that_goes_while_the_others_are_read_stops_no_table(runs: SnapshotRuns) -> None:
    runs.source.errors[("b", plan(3)[1])] = _BUSY

    def unlock() -> None:
        if len(runs.source.waves) > 2:
            runs.source.errors.clear()

    runs.source.before_commit = unlock
    assert runs.run({"b": 3, "a": 8}).failed == {}
    assert _complete(runs, "a", "b")


def test_errors_that_are_not_known_and_pass_each_time_are_not_counted_together(runs: SnapshotRuns) -> None:
    def trouble() -> None:
        lasts = len(runs.source.waves) in (1, 3, 5)
        runs.source.errors = {("b", s): _UNKNOWN for s in plan(12)} if lasts else {}

    runs.source.before_commit = trouble
    assert runs.run({"b": 12}).failed == {}
    assert (len(runs.source.waves), _complete(runs, "b")) == (6, True)


def test_a_plan_that_breaks_off_with_an_error_that_is_not_known_is_tried_again(runs: SnapshotRuns) -> None:
    """When the others are read; what it meets then is its own."""
    runs.source.unplanned |= {"b": _UNKNOWN, "c": _UNKNOWN}

    def cure() -> None:
        runs.source.unplanned.pop("b", None)

    runs.source.before_commit = cure
    context = runs.run({"b": 6, "c": 6, "d": 2})
    assert {n: e.reason for n, e in context.failed.items()} == {"shop.c": Reason.TABLE_BUSY}
    assert _complete(runs, "b", "d")


def test_an_error_of_our_own_is_no_tables(runs: SnapshotRuns) -> None:
    runs.source.errors[("b", plan(3)[1])] = fail(Reason.INTERNAL_ERROR, "a fault of ours")
    with pytest.raises(TransientError, match="ours"):
        runs.run({"a": 3, "b": 3, "c": 3})


def test_a_setting_that_hides_changes_ends_the_run_wherever_it_is_met(runs: SnapshotRuns) -> None:
    runs.source.errors[("b", plan(2)[0])] = fail(Reason.LOG_INCOMPLETE, "binlog_ignore_db: shop")
    with pytest.raises(PermanentError, match="binlog_ignore_db"):
        runs.run({"a": 2, "b": 2})


def test_a_table_whose_earlier_low_is_lost_fails_and_the_others_go_on(runs: SnapshotRuns) -> None:
    """Rule R6: the binlog since its LOW is gone, what it has can never be brought forward."""

    def crash() -> None:
        raise TransientError(Reason.DRIVER_LOST, "killed")

    runs.run({"items": 1})
    runs.source.before_commit = lambda: crash() if len(runs.source.waves) == 3 else None
    with pytest.raises(TransientError):
        runs.run({"orders": 10})
    state = runs.target("orders").state
    assert state is not None
    assert isinstance(state.low, FilePosition)
    runs.source.lost = {state.low.at.offset}
    runs.source.before_commit = lambda: None
    runs.source.waves.clear()
    context = runs.run({"orders": 10, "notes": 2})
    assert {t: e.reason for t, e in context.failed.items()} == {"shop.orders": Reason.POSITION_LOST}
    assert {name for name, _ in runs.source.read()} == {"notes"}
    notes = runs.target("notes").state
    assert notes is not None
    assert notes.snapshot_complete


def test_another_server_behind_the_same_name_is_noticed_before_a_wave(runs: SnapshotRuns) -> None:
    """Rule R6: every connection proves that it reaches the same log, with what it says itself."""
    runs.source.lineage = Lineage.of("mariadb:2")
    context = runs.run({"orders": 2})
    assert {t: e.reason for t, e in context.failed.items()} == {"shop.orders": Reason.POSITION_LOST}
    assert runs.source.waves == []


def test_another_server_behind_the_same_name_is_noticed_after_a_wave(runs: SnapshotRuns) -> None:
    """A HIGH of another log would make the table consistent too early."""

    def fail_over() -> None:
        runs.source.lineage = Lineage.of("mariadb:2")

    runs.source.before_commit = fail_over
    with pytest.raises(PermanentError):
        runs.run({"orders": 2})
    assert runs.target("orders").parts == ()


def test_a_run_that_is_asked_to_stop_ends_after_its_wave(runs: SnapshotRuns) -> None:
    contexts: list[RunContext] = []
    real = runs._context

    def remembered(*args: Any) -> RunContext:
        contexts.append(real(*args))
        return contexts[-1]

    runs._context = remembered  # type: ignore[method-assign]
    runs.source.before_commit = lambda: contexts[-1].stopping.set()
    runs.run({"orders": 10})
    assert len(runs.source.waves) == 1
    assert len(runs.target("orders").parts) == 4


# -- reading a table again


def test_a_table_that_is_read_again_is_replaced_in_one_commit(runs: SnapshotRuns) -> None:
    """Rule R5: until then its readers and the stream know nothing of it."""
    runs.run({"orders": 3})
    main, before = runs.target("orders"), runs.target("orders").parts
    seen: list[tuple[...]] = []
    runs.source.before_commit = lambda: seen.append(main.parts)
    runs.run({"orders": 6}, nonces={"orders": 1})
    assert set(seen) == {before}
    assert len(main.log[-1].change.staged) == 6  # type: ignore[union-attr]
    assert main.state is not None
    assert (main.state.resnapshot_nonce, main.state.position) == (1, FilePosition(at(400)))
    assert set(main.parts).isdisjoint(before)
    assert (definition("orders").id, 1) not in runs.sink.targets


def test_a_table_that_is_read_again_goes_on_after_a_crash_where_it_was(runs: SnapshotRuns) -> None:
    runs.run({"orders": 3})

    def crash() -> None:
        if len(runs.source.waves) == 2:
            raise TransientError(Reason.DRIVER_LOST, "killed")

    runs.source.waves.clear()
    runs.source.before_commit = crash
    with pytest.raises(TransientError):
        runs.run({"orders": 6}, nonces={"orders": 1})
    assert len(runs.target("orders", generation=1).parts) == 4
    runs.source.before_commit = lambda: None
    runs.source.waves.clear()
    runs.run({"orders": 6}, nonces={"orders": 1})
    assert runs.source.read() == [("orders", s) for s in plan(6)[4:]]
    assert len(runs.target("orders").parts) == 6


def test_a_resnapshot_without_a_request_makes_the_next_generation_and_keeps_the_nonce(runs: SnapshotRuns) -> None:
    runs.run({"orders": 2}, nonces={"orders": 3})
    runs.run({"orders": 4}, generations={"orders": 4})
    main = runs.target("orders")
    assert main.state is not None
    assert (main.state.generation, main.state.resnapshot_nonce, len(main.parts)) == (4, 3, 4)
    runs.source.waves.clear()
    runs.run({"orders": 4}, nonces={"orders": 3}, generations={"orders": 1})
    assert runs.source.read() == [], "what is there satisfies an older request"


def test_a_first_snapshot_that_is_not_complete_is_replaced_by_the_next_generation(runs: SnapshotRuns) -> None:
    split = plan(6)[5]
    runs.source.errors[("orders", split)] = PermanentError(Reason.SCHEMA_CHANGE_REFUSED, "changed")
    runs.run({"orders": 6})
    main, first = runs.target("orders"), runs.target("orders").parts
    assert main.state is not None
    assert (main.state.position, len(first)) == (None, 4)
    runs.source.errors.clear()
    runs.run({"orders": 6}, generations={"orders": 1})
    assert main.state.snapshot_complete
    assert (main.state.generation, len(main.parts)) == (1, 6)
    assert set(main.parts).isdisjoint(first)


def test_what_was_begun_before_the_user_asked_again_is_not_continued(runs: SnapshotRuns) -> None:
    """Its number is not used again either: the run that fills it may live."""
    runs.run({"orders": 2})
    runs.source.errors[("orders", plan(4)[3])] = PermanentError(Reason.SCHEMA_CHANGE_REFUSED, "changed")
    runs.run({"orders": 4}, nonces={"orders": 1}, generations={"orders": 6})
    runs.source.errors.clear()
    runs.source.waves.clear()
    runs.run({"orders": 4}, nonces={"orders": 2}, generations={"orders": 6})
    main = runs.target("orders")
    assert main.state is not None
    assert (main.state.generation, main.state.resnapshot_nonce, len(runs.source.read())) == (7, 2, 4)
    assert {g for _, g in runs.sink.targets} == {0}, "what was begun is removed"


def test_a_table_is_read_again_from_another_server(runs: SnapshotRuns) -> None:
    """Rule R6: then its content, its identity and its position are of the new log, and the next run
    goes on from there."""
    runs.run({"orders": 3})
    runs.lineage = runs.source.lineage = Lineage.of("mariadb:2")
    runs.run({"orders": 3}, nonces={"orders": 1})
    main = runs.target("orders")
    assert main.state is not None
    assert (main.state.identity.lineage, main.state.resnapshot_nonce) == (Lineage.of("mariadb:2"), 1)
    assert main.state.position == main.state.low
    assert len(main.parts) == 3
    assert runs.run({"orders": 3}, nonces={"orders": 1}).failed == {}


def test_the_content_of_another_servers_log_is_not_continued(runs: SnapshotRuns) -> None:
    """Rule R6, and the remedy is the one that works. What is complete is left to the stream, which
    proves whether the server's binlog leads on from it."""

    def crash() -> None:
        raise TransientError(Reason.DRIVER_LOST, "killed")

    runs.run({"notes": 1})
    runs.source.before_commit = lambda: crash() if len(runs.source.waves) == 3 else None
    with pytest.raises(TransientError):
        runs.run({"orders": 10})
    runs.source.before_commit = lambda: None
    runs.source.waves.clear()
    complete = runs.target("notes").state
    runs.lineage = runs.source.lineage = Lineage.of("mariadb:2")
    context = runs.run({"orders": 10, "notes": 1})
    assert set(context.failed) == {"shop.orders"}
    assert runs.source.waves == []
    assert runs.target("notes").state == complete
    refused = context.failed["shop.orders"]
    assert refused.reason is Reason.POSITION_LOST
    assert "spec.resnapshot: [{table: shop.orders" in refused.remedy


@pytest.mark.parametrize(
    ("change", "identity", "follows"),
    [
        (Replace(()), {"lineage": Lineage.of("mariadb:2")}, True),
        (AdvancePosition(), {"lineage": Lineage.of("mariadb:2")}, False),
        (Append(()), {"lineage": Lineage.of("mariadb:2")}, False),
        (Replace(()), {"sync": "default/other"}, False),
        (Replace(()), {"table": "shop.items"}, False),
    ],
)
def test_only_a_table_that_is_replaced_whole_may_come_from_another_log(
    change: Change, identity: dict[str, Any], follows: bool
) -> None:
    """Rules R4 and R6."""
    capture, mine = definition("orders"), Identity("default/shop", LINEAGE, "shop.orders")
    found = TableState(mine, capture, TargetSchema.of(capture), epoch=4, commit_number=7)
    commit = Commit(replace(found, commit_number=8, identity=replace(found.identity, **identity)), change)
    with nullcontext() if follows else pytest.raises(TransientError, match="does not follow"):
        check_successor(found, commit, 4)


def test_who_publishes_takes_over_from_a_stream_with_a_higher_epoch(runs: SnapshotRuns) -> None:
    """The status was deleted, the stream goes on with the epoch after its target's."""
    runs.run({"orders": 2})
    main = runs.target("orders")
    assert main.state is not None
    main.state = replace(main.state, epoch=12)
    runs.run({"orders": 2}, nonces={"orders": 1})
    assert main.state is not None
    assert (main.state.resnapshot_nonce, main.state.epoch) == (1, 13)


def test_a_publication_that_fails_for_good_concerns_its_table_only(runs: SnapshotRuns) -> None:
    runs.run({"orders": 2, "items": 2})
    runs.target("orders").fail_next = PermanentError(Reason.SINK_CONFLICT, "another program's table")
    context = runs.run({"orders": 2, "items": 2}, nonces={"orders": 1, "items": 1})
    assert set(context.failed) == {"shop.orders"}
    items = runs.target("items").state
    assert items is not None
    assert items.resnapshot_nonce == 1


def test_a_wave_that_a_target_refuses_for_good_stops_its_table_only(runs: SnapshotRuns) -> None:
    """Another program partitioned the target, or made a column NOT NULL, between two waves."""
    runs.target("orders").fail_next = PermanentError(Reason.SINK_CONFLICT, "a column was made NOT NULL")
    context = runs.run({"orders": 6, "items": 2})
    assert set(context.failed) == {"shop.orders"}
    items = runs.target("items").state
    assert items is not None
    assert items.snapshot_complete


def test_a_target_of_another_copy_is_refused(runs: SnapshotRuns) -> None:
    """Rule R4: identity is namespace/name, log and table."""
    runs.run({"orders": 2})
    orders = runs.target("orders")
    assert orders.state is not None
    orders.state = replace(orders.state, identity=replace(orders.state.identity, sync="other/shop"))
    context = runs.run({"orders": 2, "items": 1})
    assert {t: e.reason for t, e in context.failed.items()} == {"shop.orders": Reason.SINK_CONFLICT}
    assert runs.target("items").state is not None
