"""A source whose binlog a test writes, and what reads and follows it into a sink of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import observed
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition, LogOffset, Place, Position, TransactionId
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.sinks.contract.changes import Append, Commit, Replace
from cdcsync_spark.sinks.contract.sink import Sink, Target
from cdcsync_spark.sinks.delta.history.target import HistoryTarget
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistory
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.crash_repair import Piece, Repair
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.wire.binlog.facts import FileLeft
from contract.sinkcase import ORDERS, first_state, rows_of
from support.event_consumer import Event
from support.history import history_events, iceberg_history_events
from support.memory_target import MemoryTarget

FILE = "binlog.000001"
LOW, HIGH, END = 1000, 2000, 4000
NAME = str(ORDERS.id)
SPLITS = (Split(None, (20,)), Split((20,), None))
Image = tuple[ChangeKind, int, str]


def place(offset: int) -> FilePosition:
    return FilePosition(Place(FILE, offset, "mysql:uuid"))


@dataclass
class EventSource:
    """A table's history: `log` has each transaction by its end; `at` the table at every place."""

    rng: random.Random
    log: dict[int, list[Image]] = field(default_factory=dict)
    at: dict[int, dict[int, str]] = field(default_factory=lambda: {LOW - 1: {}})

    def __post_init__(self) -> None:
        rows = dict.fromkeys(range(0, 40, 2), "first")
        self.at = {LOW: dict(rows)}
        for end in range(LOW + 100, END + 1, 100):
            self.log[end] = [image for _ in range(self.rng.randint(0, 6)) for image in self._change(rows, end)]
            self.at[end] = dict(rows)

    def _change(self, rows: dict[int, str], end: int) -> list[Image]:
        key, value = self.rng.randrange(40), f"{end}-{self.rng.randrange(1000)}"
        if key not in rows:
            rows[key] = value
            return [(ChangeKind.INSERT, key, value)]
        before, free = rows.pop(key), [k for k in range(40) if k not in rows]
        if self.rng.random() < 0.3:
            return [(ChangeKind.DELETE, key, before)]
        # one in four updates changes the key
        new = key if self.rng.random() < 0.75 else self.rng.choice(free)
        rows[new] = value
        return [(ChangeKind.UPDATE_BEFORE, key, before), (ChangeKind.UPDATE_AFTER, new, value)]

    def snapshot(self) -> list[tuple[int, str]]:
        """Two splits, each read at a place of its own between LOW and HIGH."""
        first, second = (self.at[self.rng.randrange(LOW, HIGH + 1, 100)] for _ in range(2))
        return [(k, v) for k, v in first.items() if k < 20] + [(k, v) for k, v in second.items() if k >= 20]

    def batch(self, start: int, end: int, folder: Path) -> BinlogBatch:
        ends = [e for e in self.log if start < e <= end and self.log[e]]
        images = [(kind, n, key, value) for n, e in enumerate(ends) for kind, key, value in self.log[e]]
        path = str(folder / f"{start}-{end}-{self.rng.random()}")
        write_transactions(
            f"{path}.json",
            Transactions([TransactionId(Place(FILE, e, "mysql:uuid")) for e in ends], [1700000000.0 + e for e in ends]),
        )
        schema = changes_schema(captured_schema(ORDERS))
        columns = list(zip(*images, strict=True)) or [()] * len(schema)
        rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
        with pa.OSFile(f"{path}.arrow", "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(rows)
        part = TableBatch(NAME, f"{path}.arrow" if images else "", len(images), 0, place(end))
        return BinlogBatch(place(start), place(end), None, f"{path}.json", (part,) if images else ())


def published(target: Target) -> list[Event]:
    """What a consumer reads of the target, in order."""
    if isinstance(target, HistoryTarget):
        return history_events(target.path)
    if isinstance(target, IcebergHistory):
        return iceberg_history_events(target)
    assert isinstance(target, MemoryTarget)
    return target.events


#: maintenance at nearly every commit
SMALL = MaintenancePolicy(checkpoint_entries=7, gathered_files=3)


def read_snapshot(sink: Sink, rows: list[tuple[int, str]], nonce: int = 0, *, early: bool = False) -> None:
    """As the snapshot's run does, a resnapshot in a staged copy."""
    main = sink.target(ORDERS.id)
    found = main.last_commit()
    epoch = found.epoch + 1 if found else 1
    again = found is not None and nonce > found.resnapshot_nonce
    target = sink.target(ORDERS.id, generation=nonce) if again else main
    target.prepare(replace(first_state(epoch=epoch, nonce=nonce), early=early))
    for split in SPLITS:
        part = [r for r in rows if (r[0] < 20) == (split.start is None)]
        append = Append(target.stage(ORDERS, rows_of(ORDERS, part).to_batches(), "wave"))
        state = target.commit(epoch, partial(_wave, split=split, append=append, epoch=epoch))
    if again:
        staged = target.staged()
        main.commit(
            epoch,
            lambda found: Commit(replace(state, epoch=epoch, commit_number=found.commit_number + 1), Replace(staged)),
        )
        sink.discard(ORDERS.id, nonce)


def _wave(found: TableState, split: Split, append: Append, epoch: int) -> Commit:
    after = found.after_wave([split], place(LOW), Place(FILE, HIGH, "mysql:uuid"), len(append.staged), 0)
    return Commit(replace(after, epoch=epoch), append)


def applier(sink: Sink, folder: Path, repair: Repair | None = None, epoch: int = 0) -> Applier:
    """A stream's run that begins where the target is, of the next epoch where none is given."""
    writer = sink.target(ORDERS.id).writer(folder)
    state = writer.last_commit()
    assert state is not None
    assert state.position is not None
    tables = {NAME: StreamTable(NAME, writer, state)}
    return Applier(tables, epoch or state.epoch + 1, state.position, lambda: 0.0, repair, events=True)


def follow(sink: Sink, source: EventSource, folder: Path, *, end: int = END) -> Applier:
    """To `end` by batches of random size, by runs that end anywhere."""
    while True:
        run = applier(sink, folder)
        at = run.reader.at.offset  # type: ignore[union-attr]
        for _ in range(source.rng.randint(1, 6)):
            upto = min(end, at + 100 * source.rng.randint(1, 7))
            run.apply(source.batch(at, upto, folder))
            run.checkpoint_idle(older_than=source.rng.choice([float("-inf"), 1.0]))
            run.maintain(until=float("inf"))
            at = upto
            if at == end:
                run.checkpoint_idle(older_than=float("inf"))
                assert run.tables[NAME].error is None
                return run


def read_early(
    sink: Sink,
    rows: list[tuple[int, str]],
    shown: Callable[[Target], list[Event]] = published,
    splits: Sequence[Split] = SPLITS,
) -> TableState:
    """The splits that the target does not have, each as a wave; `shown` is what a consumer reads of
    the target."""
    target = sink.target(ORDERS.id)
    found = target.last_commit()
    epoch = found.epoch + 1 if found else 1
    state = target.prepare(replace(first_state(epoch=epoch, nonce=0), early=True))
    for split in splits[state.splits :]:
        part = [r for r in rows if (split.start or (r[0],)) <= (r[0],) and (split.end is None or (r[0],) < split.end)]
        append = Append(target.stage(ORDERS, rows_of(ORDERS, part).to_batches(), "wave"))
        state = target.commit(epoch, partial(_wave, split=split, append=append, epoch=epoch))
        assert {(e.row["id"], e.row["note"]) for e in shown(target)} >= set(part), "at once"
    return state


@dataclass
class Suspicious:
    """Suspects the source that crashed: one key of each table may have been lost."""

    def keys(self, left: FileLeft, tables: Mapping[TableId, Capture]) -> Mapping[TableId, pa.Table | CdcError]:
        return {i: pa.table({"id": pa.array([1], pa.int64())}) for i in tables}

    def passed(self, before: Position, place: LogOffset) -> Position:
        return FilePosition(place)

    def pieces(self, table: Capture, keys: pa.Table, passed: Position) -> Iterator[Piece]:
        raise AssertionError("rows that were delivered are not taken back")


def error_of_a_crash(sink: Sink, folder: Path) -> CdcError | None:
    """The table's error, when its source has crashed behind LOW."""
    run = applier(sink, folder, Suspicious())
    end = FilePosition(Place("binlog.000002", 300, "mysql:uuid"))
    run.apply(BinlogBatch(place(LOW), end, 1.0, "", (), left=FileLeft(FILE, "binlog.000002")))
    return run.tables[NAME].error


def apply_while_completed_by(before: Applier, run: Applier, source: EventSource, folder: Path) -> None:
    """`run` applies to the end; before its first commit `before` makes the copy consistent."""
    passed: list[str] = []

    def complete(name: str) -> None:
        passed.append(name)
        if name == "before-commit" and passed.count(name) == 1:
            before.apply(source.batch(LOW, HIGH, folder))
            before.checkpoint_idle(older_than=float("-inf"))

    with observed(complete):
        run.apply(source.batch(LOW, END, folder))
    run.checkpoint_idle(older_than=float("inf"))
    assert run.tables[NAME].error is None
