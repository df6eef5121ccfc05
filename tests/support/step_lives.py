"""A table's whole life without processes: its snapshot in waves, the stream, resnapshots that
follow by themselves, in front of a source that changes at named moments, and deaths at failpoints.

Real are the snapshot's run and its tables, the applier, the states and the Delta tables; played are
the source (`altered_source`), a wave's job (a split reads its keys and compares the definition at
one moment, as its transaction does), and of the controller the decision what to run next. Every
failpoint that the program passes is a moment; the source's own are LOW, the splits and HIGH.

A death raises `Died` where the failpoint is passed: what the process knew is gone, and what it
wrote is there. Whenever the table says that it is consistent, it must equal the source as of its
position, its columns included: `check`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import observed
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, Place, Position
from cdcsync_core.resource.snapshot_spec import MaxLoad, SnapshotSpec
from cdcsync_core.resource.spec import Tables
from cdcsync_core.runs.run import Decoder, PlanShard, TableAssignment
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.run.progress import Reporter
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.snapshot.run import run_snapshot
from cdcsync_spark.snapshot.source import Verify
from cdcsync_spark.snapshot.wave_job import SplitResult, SplitTask
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.altered_source import BINLOG, FIRST, NAME, POLICY, AlteredSource, Row, at
from support.deaths import Died
from support.memory_target import MemorySink

SYNC = "default/t"
LINEAGE = Lineage.of(BINLOG)
KEYS = range(1, 17)
#: four splits, two of them a wave
_SPLITS = tuple(Split(a, b) for a, b in pairwise([None, (5,), (9,), (13,), None]))
_PARALLELISM = 1
#: few deaths, and a resnapshot for each statement at most
_MOST_LIVES = 20
#: moments at which some row changes, so that splits differ from each other and from the stream
_WRITTEN = frozenset({"planned", "LOW", "split-read", "HIGH", "before-publish"})

#: a moment and which passing of it
Moment = tuple[str, int]
Action = Callable[[AlteredSource], None]


@dataclass
class SteppedLife:
    """`script` changes the source at moments, each once; `deaths` end the process there.

    `memory`: into a sink in memory, which is faster and has no failpoints of its own. `again`: all
    that is in the life of a table that was copied before and is resnapshotted; the
    moments begin with that.
    """

    folder: Path
    script: Mapping[Moment, Action]
    deaths: Collection[Moment] = ()
    memory: bool = False
    again: bool = False
    source: AlteredSource = field(
        default_factory=lambda: AlteredSource(contents=[{k: {"v": k, "w": -k} for k in KEYS if k % 3}])
    )
    #: what the controller has decided; None of it is in the lake
    generation: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    #: the moments, in order, each with whether a statement was being applied
    trace: list[tuple[Moment, bool]] = field(default_factory=list)
    died: list[Moment] = field(default_factory=list)
    resnapshots: int = 0

    def __post_init__(self) -> None:
        self._epoch = 0
        self._armed, self._stepping = not self.again, False
        self._memory = MemorySink(sync=SYNC)
        self._ran = set[Moment]()

    # -- moments

    def passes(self, name: str) -> None:
        if not self._armed:
            return
        self.passed[name] += 1
        moment = (name, self.passed[name])
        self.trace.append((moment, self._stepping))
        if name in _WRITTEN:
            self.write()
        if moment in self.script and moment not in self._ran:
            self._ran.add(moment)
            self.script[moment](self.source)
            self.write()
        if moment in self.deaths and moment not in self.died:
            self.died.append(moment)
            raise Died

    def write(self) -> None:
        """Some key has another row, or none."""
        number = len(self.source.done)
        key, names = number * 5 % 16 + 1, [c.name for c in self.source.captures[-1].columns if c.name != "id"]
        row: Row | None = None if number % 5 == 4 else {name: 1000 + number + i for i, name in enumerate(names)}
        self.source.write(key, row)

    # -- the program

    def run(self) -> None:
        """Until the table has caught up with a source at rest."""
        with observed(self.passes):
            if self.again:
                self._run_to_end()
                self._armed = True
                self.generation += 1
            self._run_to_end()
            for moment in self.script.keys() - self._ran:  # a death has spared it this moment
                self._ran.add(moment)
                self.script[moment](self.source)
                self._run_to_end()
        self.check_end()

    def _run_to_end(self) -> None:
        for _ in range(_MOST_LIVES):
            self._epoch += 1
            try:
                ended = self._run_once()
            except Died:
                ended = False
            self.check()
            if ended:
                return
        raise AssertionError(f"no end in {_MOST_LIVES} lives")

    def _run_once(self) -> bool:
        """One controller's decision and its driver; whether there is nothing left to be done."""
        sink, self._stepping = self._sink(), False
        state = sink.target(FIRST.id).last_commit()
        snapshot = state is None or not state.snapshot_complete or state.generation < self.generation
        if snapshot:
            error = self._snapshot(sink)
        else:
            assert state is not None
            error = self._stream(sink, state)
        if error is not None:
            assert error.reason is Reason.SCHEMA_CHANGE_REFUSED, error
            self.generation += 1
            self.resnapshots += 1
        return error is None and not snapshot

    # -- the snapshot

    def _snapshot(self, sink: Sink) -> CdcError | None:
        context, played = self._context(sink), _Snapshot(self)
        self.passes("planned")
        run_snapshot(context, played, played.read_wave)
        return context.failed.get(NAME)

    def _context(self, sink: Sink) -> RunContext:
        plans = self.folder / f"plan-{self._epoch}"
        plans.mkdir()
        shard = PlanShard(NAME, 0, None, _SPLITS, last=True)
        (plans / PlanShard.filename(0, 0)).write_text(shard.to_json())
        starting: Future[Any] = Future()
        starting.set_result(nullcontext())
        context = SimpleNamespace(
            config=SimpleNamespace(
                id=f"run-{self._epoch}",
                epoch=self._epoch,
                plan_dir=str(plans),
                tables=(TableAssignment(self.source.captures[-1], 0, self.generation),),
                decoder=Decoder.VECTORIZED,
                spark={},
            ),
            resource=SimpleNamespace(
                spec=SimpleNamespace(
                    tables=Tables(include=(".*",)),
                    snapshot=SnapshotSpec.model_validate({"chunkSize": 2, "parallelism": _PARALLELISM}),
                )
            ),
            source=None,
            facts=SimpleNamespace(lineage=LINEAGE),
            sink=sink,
            sync=SYNC,
            reporter=Reporter("run", -1),
            stopping=threading.Event(),
            failed={},
            starting=starting,
            wait=lambda _: None,
        )
        context.refuse = lambda table, error: context.failed.__setitem__(table, error)
        return cast(RunContext, context)

    # -- the stream

    def _stream(self, sink: Sink, state: TableState) -> CdcError | None:
        """From LOW, as a reader begins for another table's sake: what the table has is skipped."""
        assert isinstance(state.position, FilePosition)
        scratch = self.folder / f"scratch-{self._epoch}"
        scratch.mkdir()
        table = StreamTable(NAME, sink.target(FIRST.id).writer(scratch), state, 0.0, policy=POLICY)
        assert isinstance(state.low, FilePosition)
        number = state.low.at.offset - 100
        applier = Applier({NAME: table}, max(self._epoch, state.epoch + 1), FilePosition(at(number)), lambda: 0.0)
        while number < len(self.source.done) and table.flowing:
            self._stepping = isinstance(self.source.done[number], Statement)
            self.passes("batch-read")
            applier.apply(self.source.batch(number, scratch))
            if self._stepping:
                self.check()
            number, self._stepping = number + 1, False
        return table.error

    # -- the verdict

    def _sink(self) -> Sink:
        """Nothing of it is known but what is in the lake."""
        return self._memory if self.memory else DeltaSink(open_store(str(self.folder / "lake")), SYNC)

    def check(self) -> None:
        target = self._sink().target(FIRST.id)
        state = target.last_commit()
        if state is None or not state.consistent:
            return
        assert isinstance(state.position, FilePosition)
        number = state.position.at.offset - 100
        found = target.open_snapshot().scan().read_all()
        assert found.column_names == [c.name for c in self.source.captures[number].columns], number
        rows = {row.pop("id"): row for row in found.to_pylist()}
        assert rows == self.source.contents[number], number
        assert found.num_rows == len(rows), "a key twice"

    def check_end(self) -> None:
        state = self._sink().target(FIRST.id).last_commit()
        assert state is not None
        assert state.consistent
        assert state.position == FilePosition(at(len(self.source.done)))


@dataclass
class _Snapshot:
    """What a snapshot asks of the source, and a wave's job."""

    life: SteppedLife

    @property
    def source(self) -> AlteredSource:
        return self.life.source

    def low(self) -> Position:
        self.life.passes("before LOW")
        low = FilePosition(at(len(self.source.done)))
        self.life.passes("LOW")
        return low

    def high(self, lineage: Lineage, low: Position, since: Position | None = None) -> Place:
        self.life.passes("before HIGH")
        high = at(len(self.source.done))
        self.life.passes("HIGH")
        return high

    def behind(self, low: Position) -> str:
        return ""

    def replica_for(self, table: Capture) -> None:
        return None

    def excess(self, most: MaxLoad, tables: Sequence[Capture]) -> str:
        return ""

    @contextmanager
    def history(self) -> Iterator[Verify]:
        yield lambda *_: None

    def splits(self, table: Capture, chunk_size: int, frontier: Bound) -> Iterator[Split]:
        yield from _SPLITS[[s.start for s in _SPLITS].index(frontier) :]

    def read_wave(self, _: Any, tasks: Sequence[SplitTask], progress: Callable[[Any], None]) -> list[SplitResult]:
        results = []
        for task in tasks:
            results.append(self._read(task))
            self.life.passes("split-read")
        return results

    def _read(self, task: SplitTask) -> SplitResult:
        """The definition is compared in the SELECT's transaction, whose lock lets no DDL in."""
        capture = task.reader.table
        if not capture.reads_as(self.source.captures[-1]):
            changed = fail(Reason.SCHEMA_CHANGE_REFUSED, "the definition changed while it was read", table=NAME)
            return SplitResult(error=changed)
        rows = [{"id": k, **row} for k, row in self.source.contents[-1].items() if _within(task.reader.split, k)]
        batches = pa.Table.from_pylist(rows, captured_schema(capture)).to_batches()
        return SplitResult(task.target.stage(capture, batches, task.name), rows=len(rows))


def _within(split: Split, key: int) -> bool:
    (start, end) = (int(bound[0]) if bound else None for bound in (split.start, split.end))
    return (start is None or start <= key) and (end is None or key < end)
