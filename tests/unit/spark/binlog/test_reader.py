"""The reading thread: batches in order and without gaps, lost connections, ends, and never a silent
death.

The dump is a script: each connection yields its events one by one when the test lets it, and then
breaks, waits or ends.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, DecodeError, PermanentError, Reason, TransientError, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset, Position
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.plain_transactions import TRANSACTION_BYTES
from cdcsync_spark.binlog.assembly.spool import EVENT_BYTES, Spool
from cdcsync_spark.binlog.batch import BinlogBatch, read_transactions
from cdcsync_spark.binlog.dump.client import DumpTakenOver
from cdcsync_spark.binlog.dump.dump import Dump
from cdcsync_spark.binlog.dump.packets import Arrived
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings, Reconnect
from cdcsync_spark.wire.binlog.facts import (
    Fact,
    Incident,
    MappedColumn,
    Operation,
    Progress,
    RowsEvent,
    TableMap,
    XaEnd,
)
from support.both_paths import arrived
from support.facts import Pen, at

ORDERS = TableId("shop", "orders")
DEFINITION = Capture(SourceTable(ORDERS, (Column("id", SourceType.parse("int"), False),)), ("id",))
#: MYSQL_TYPE_LONG
MAP = TableMap(1, ORDERS, (MappedColumn(3, 0, False, "id", False),))
#: a transaction of one row in memory, and a batch that is full at the 5th row since the last one
SMALL = 100 + EVENT_BYTES + TRANSACTION_BYTES
FIVE = 5 * SMALL - TRANSACTION_BYTES
LOST = fail(Reason.SOURCE_UNREACHABLE, "the connection of the dump broke")
SECONDS = 120.0
#: for which a lost source is tried again, on the script's clock
WINDOW = 60.0


def insert(key: int) -> RowsEvent:
    """One row: no NULL, 4 bytes little endian."""
    return RowsEvent(ORDERS, MAP, Operation.WRITE, b"\0" + key.to_bytes(4, "little"), 100)


@dataclass
class ScriptClock:
    """Seconds that pass when the script says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class ScriptedConnection:
    """What one connection sends: facts, each as one event after a `pause` on the clock, then `end`
    (raised), or silence until it is closed."""

    events: list[list[Fact]]
    end: Exception | None = None
    pause: float = 0.0
    refused: Mapping[TableId, CdcError] = field(default_factory=dict)


@dataclass
class Script:
    """Stands for the server; `opened` are the positions asked for, `allowed` lets events
    through."""

    connections: list[ScriptedConnection]
    opened: list[Position] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    seen: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    clock: ScriptClock = field(default_factory=ScriptClock)

    @contextmanager
    def open(self, _: ReaderSettings, start: Position, __: Callable[[TableId], bool]) -> Iterator[Dump]:
        self.opened.append(start)
        if not self.connections:
            self.clock.now += 1
            raise LOST
        connection = self.connections.pop(0)
        yield cast(Dump, _FakeDump(_FakeClient(self, connection), _FakeParser(connection), connection.refused))

    def wait_for(self, events: int) -> None:
        """Until that many more events were consumed."""
        for _ in range(events):
            assert self.seen.acquire(timeout=SECONDS)


@dataclass
class _FakeClient:
    script: Script
    connection: ScriptedConnection

    def arrivals(self) -> Iterator[Arrived]:
        for number in range(len(self.connection.events)):
            if self.script.closed.is_set():
                return
            self.script.clock.now += self.connection.pause
            yield arrived([bytes([0, 0, 0, 0, 2]) + number.to_bytes(8, "little")])
            self.script.seen.release()
        if self.connection.end is not None:
            self.script.clock.now += self.connection.pause
            raise self.connection.end
        self.script.closed.wait(SECONDS)

    def close(self) -> None:
        self.script.closed.set()


@dataclass
class _FakeParser:
    connection: ScriptedConnection

    def feed(self, event: memoryview) -> Iterator[Fact]:
        yield from self.connection.events[int.from_bytes(event[5:], "little")]


@dataclass
class _FakeDump:
    client: Any
    parser: Any
    refused: Any
    prove_end: Any = None
    end: Any = None
    process: Any = None
    state: Any = None


@pytest.fixture
def settings(tmp_path: Path) -> ReaderSettings:
    return ReaderSettings(
        source=Source("127.0.0.1", 1, tmp_path / "none", tmp_path / "none"),
        lineage=Lineage.of("mariadb:1"),
        replica_id=7,
        tables={ORDERS: DEFINITION},
        start=FilePosition(at(100)),
        ahead={},
        heartbeat_seconds=1.0,
        max_batch_bytes=1 << 20,
        folder=tmp_path,
        reconnect=Reconnect(WINDOW, pause_seconds=0),
    )


@pytest.fixture
def started() -> Iterator[Callable[[ReaderSettings, Script], BinlogReader]]:
    """Starts readers and ends their threads after the test."""
    readers: list[tuple[BinlogReader, Script]] = []

    def start(settings: ReaderSettings, script: Script) -> BinlogReader:
        reader = BinlogReader(settings, script.open, clock=script.clock)
        readers.append((reader, script))
        reader.start()
        return reader

    yield start
    for reader, script in readers:
        reader.stop()
        script.closed.set()
        reader._thread.join(SECONDS)
        assert not reader._thread.is_alive()


Start = Callable[[ReaderSettings, Script], BinlogReader]


def take(reader: BinlogReader) -> BinlogBatch:
    """The next batch; the reader's thread is on its way with it."""
    for _ in range(int(SECONDS * 100)):
        batch = reader.next_batch()
        if batch is not None:
            return batch
        threading.Event().wait(0.01)
    raise AssertionError("no batch came")


def everything(reader: BinlogReader, until: int) -> tuple[list[int], list[BinlogBatch]]:
    """Keys of all batches until the reader stands at offset `until`; checks that batches join."""
    keys: list[int] = []
    batches: list[BinlogBatch] = []
    while not batches or batches[-1].end.at != at(until):
        batch = take(reader)
        if batch.fatal is not None:
            raise batch.fatal
        assert not batches or batch.start == batches[-1].end
        batches.append(batch)
        keys += keys_of(batch)
    return keys, batches


def keys_of(batch: BinlogBatch) -> list[int]:
    keys: list[int] = []
    for part in batch.tables:
        if part.file:
            with pa.memory_map(part.file) as source:
                rows = pa.ipc.open_file(source).read_all()
                keys += rows["id"].to_pylist()
                assert max(rows["_cdc_transaction"].to_pylist()) < len(read_transactions(batch.transactions).ids)
    return keys


def transactions(pen: Pen, keys: range) -> list[list[Fact]]:
    """One event per fact."""
    return [[fact] for key in keys for fact in pen.transaction(insert(key))]


def test_a_log_comes_whole_and_in_order(settings: ReaderSettings, started: Start) -> None:
    script = Script([ScriptedConnection(transactions(Pen(), range(50)))])
    keys, batches = everything(started(settings, script), 100 + 50 * 100)
    assert keys == list(range(50))
    assert batches[0].start == settings.start


def test_full_batches_wait_their_turn(settings: ReaderSettings, started: Start) -> None:
    """The thread is a batch ahead, never more; nothing is overtaken."""
    script = Script([ScriptedConnection(transactions(Pen(), range(60)))])
    reader = started(replace(settings, max_batch_bytes=FIVE), script)
    keys, batches = everything(reader, 100 + 60 * 100)
    assert keys == list(range(60))
    assert len(batches) >= 10


def test_the_thread_stops_reading_while_nobody_takes(settings: ReaderSettings, started: Start) -> None:
    """Memory and disk are bounded: two full batches, and not one event more."""
    script = Script([ScriptedConnection(transactions(Pen(), range(60)))])
    reader = started(replace(settings, max_batch_bytes=FIVE), script)
    # a batch is full at the 5th row since the last one, which is the 14th event, then the 29th:
    # that one does not return
    script.wait_for(28)
    assert not script.seen.acquire(timeout=0.3)
    keys, _ = everything(reader, 100 + 60 * 100)
    assert keys == list(range(60))


def test_who_is_behind_does_not_wait_for_the_interval(settings: ReaderSettings, started: Start) -> None:
    """However long it is: full batches come one after the other, and who waits is let go when the
    reader is stopped."""
    script = Script([ScriptedConnection(transactions(Pen(), range(60)))])
    reader = started(replace(settings, max_batch_bytes=FIVE, interval_seconds=3600.0), script)
    reader.next_batch()
    batches = [reader.next_batch() for _ in range(3)]
    assert all(batch is not None and batch.full for batch in batches)
    threading.Timer(0.05, reader.stop).start()
    while reader.next_batch() is not None:
        pass


def test_what_is_not_full_waits_for_the_interval(settings: ReaderSettings, started: Start) -> None:
    script = Script([ScriptedConnection(transactions(Pen(), range(3)))])
    reader = started(replace(settings, interval_seconds=0.2), script)
    begun = time.monotonic()
    reader.next_batch()
    batch = reader.next_batch()
    assert time.monotonic() - begun >= 0.2
    assert batch is None or not batch.full


def test_nothing_new_is_no_batch(settings: ReaderSettings, started: Start) -> None:
    script = Script([ScriptedConnection([[Pen().begin()], [insert(1)]])])
    reader = started(settings, script)
    script.wait_for(2)
    assert reader.next_batch() is None


def test_a_heartbeat_is_a_batch_without_rows(settings: ReaderSettings, started: Start) -> None:
    """So an idle source shows that it lives."""
    script = Script([ScriptedConnection([[Progress(at(100), 5.0)]])])
    batch = take(started(settings, script))
    assert (batch.start, batch.end, batch.timestamp, batch.tables) == (settings.start, settings.start, 5.0, ())


def test_a_lost_connection_goes_on_after_the_last_whole_transaction(settings: ReaderSettings, started: Start) -> None:
    """The rows of the transaction that was being read come again, once."""
    pen = Pen()
    first = [*transactions(pen, range(3)), [pen.begin()], [insert(3)]]
    second = transactions(pen, range(3, 6))
    script = Script([ScriptedConnection(first, LOST), ScriptedConnection(second)])
    reader = started(settings, script)
    keys, _ = everything(reader, 100 + 6 * 100)
    assert keys == list(range(6))
    assert script.opened == [settings.start, FilePosition(at(400))]


def test_a_source_that_stays_away_ends_the_run_in_time(settings: ReaderSettings, started: Start) -> None:
    batch = take(started(settings, Script([])))
    assert isinstance(batch.fatal, TransientError)
    assert batch.fatal.reason is Reason.SOURCE_UNREACHABLE


@pytest.mark.parametrize(
    "sent",
    [
        [],  # until the client has waited for three heartbeats
        [[Pen().begin()], [insert(1)], [insert(2)]],  # a transaction whose end never comes
    ],
)
def test_a_source_that_only_fails_slowly_is_given_up_too(
    settings: ReaderSettings, started: Start, sent: list[list[Fact]]
) -> None:
    """However much longer than the window each attempt takes: nothing of it is progress."""
    script = Script([ScriptedConnection(sent, LOST, pause=1.5 * WINDOW) for _ in range(40)])
    reader = started(settings, script)
    reader._thread.join(SECONDS)
    assert reader._fatal is LOST
    assert len(script.opened) < 10


def test_the_rotation_with_which_each_connection_begins_is_no_progress(
    settings: ReaderSettings, started: Start
) -> None:
    """It comes at once, and then nothing."""
    begun = [[Progress(at(100))], [Pen().begin()], [insert(1)]]
    script = Script([ScriptedConnection(begun, LOST, pause=WINDOW / 4) for _ in range(40)])
    reader = started(settings, script)
    reader._thread.join(SECONDS)
    assert reader._fatal is LOST
    assert len(script.opened) < 10


def test_a_log_that_somebody_else_takes_again_and_again_is_given_up(settings: ReaderSettings, started: Start) -> None:
    """Two syncs with one replica id: each connection brings a transaction,  and it would never
    be reported."""
    pen, taken = Pen(), DumpTakenOver(Reason.SOURCE_UNREACHABLE, "another replica with the same id took over")
    script = Script([ScriptedConnection(transactions(pen, range(n, n + 1)), taken, WINDOW / 3.9) for n in range(40)])
    reader = started(settings, script)
    reader._thread.join(SECONDS)
    assert reader._fatal is taken
    assert keys_of(take(reader)) == [0, 1], "what each of both read is right"


def test_a_successor_that_takes_over_from_a_zombie_once_is_forgiven(settings: ReaderSettings, started: Start) -> None:
    taken = DumpTakenOver(Reason.SOURCE_UNREACHABLE, "another replica with the same id took over")
    alive = [ScriptedConnection([[Progress(at(100))]] * 5, taken, pause=WINDOW / 3) for _ in range(2)]
    script = Script([*alive, ScriptedConnection(transactions(Pen(), range(2)))])
    keys, _ = everything(started(settings, script), 100 + 2 * 100)
    assert keys == [0, 1]


def test_a_source_that_stayed_is_tried_again_when_it_is_lost(settings: ReaderSettings, started: Start) -> None:
    """An idle log does not move; its heartbeats say that it is there."""
    alive = [ScriptedConnection([[Progress(at(100))]] * 5, LOST, pause=WINDOW / 3) for _ in range(2)]
    script = Script([*alive, ScriptedConnection(transactions(Pen(), range(2)))])
    keys, _ = everything(started(settings, script), 100 + 2 * 100)
    assert keys == [0, 1]


def test_a_table_whose_changes_the_server_hides_since_its_restart_stops_alone(
    settings: ReaderSettings, started: Start
) -> None:
    """Rule R10: where the reader stands, before anything is taken from the new connection."""
    hidden, pen = fail(Reason.CASCADES_NOT_LOGGED, "ON DELETE CASCADE", table=str(ORDERS)), Pen()
    before, after = transactions(pen, range(2)), transactions(pen, range(2, 4))
    script = Script([ScriptedConnection(before, LOST), ScriptedConnection(after, refused={ORDERS: hidden})])
    keys, batches = everything(started(settings, script), 100 + 4 * 100)
    assert keys == [0, 1]
    stops = [part for batch in batches for part in batch.tables if part.stop]
    assert [(part.stop, part.upto) for part in stops] == [(hidden, FilePosition(at(300)))]


def test_what_was_whole_comes_before_the_error(settings: ReaderSettings, started: Start) -> None:
    """Rule R9: tables keep everything before what stopped them."""
    pen = Pen()
    script = Script(
        [ScriptedConnection([*transactions(pen, range(3)), [pen.begin()], [insert(3)], [Incident("incident 1")]])]
    )
    reader = started(settings, script)
    script.wait_for(11)
    reader._thread.join(SECONDS)
    batch = take(reader)
    assert keys_of(batch) == [0, 1, 2]
    assert batch.end == FilePosition(at(400))
    last = take(reader)
    assert last.fatal is not None
    assert last.fatal.reason is Reason.LOG_INCOMPLETE
    assert take(reader).fatal is not None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DecodeError("an event of 3 bytes"), Reason.TYPE_UNSUPPORTED),
        (fail(Reason.POSITION_LOST, "the file is gone"), Reason.POSITION_LOST),
        (ZeroDivisionError("a bug"), Reason.INTERNAL_ERROR),
    ],
)
def test_an_error_that_no_new_connection_cures_ends_the_run(
    settings: ReaderSettings, started: Start, error: Exception, reason: Reason
) -> None:
    """A thread that died silently would pass for a source where nothing happens."""
    script = Script([ScriptedConnection([], error)])
    batch = take(started(settings, script))
    assert batch.fatal is not None
    assert batch.fatal.reason is reason
    assert len(script.opened) == 1


def test_after_an_unforeseen_error_nothing_is_handed_over(settings: ReaderSettings, started: Start) -> None:
    """It is not known then what is whole."""
    script = Script([ScriptedConnection(transactions(Pen(), range(3)), ZeroDivisionError("a bug"))])
    reader = started(settings, script)
    reader._thread.join(SECONDS)
    assert take(reader).fatal is not None


class _Failing:
    """A writer of batches that fails once, as on a full disk."""

    def __init__(self, writer: Any, error: Exception) -> None:
        self._writer = writer
        self._error: Exception | None = error

    def write(self, sealed: Any) -> BinlogBatch:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return cast(BinlogBatch, self._writer.write(sealed))


@pytest.mark.parametrize("max_batch_bytes", [FIVE, 1 << 20])
@pytest.mark.parametrize(
    "error", [PermanentError(Reason.TRANSACTION_TOO_LARGE, "the scratch disk is full"), ValueError("a bug")]
)
def test_after_a_batch_that_could_not_be_written_nothing_comes(
    settings: ReaderSettings, started: Start, error: Exception, max_batch_bytes: int
) -> None:
    """What it held would be missing, also if the disk has room again."""
    script = Script([ScriptedConnection(transactions(Pen(), range(60)))])
    reader = BinlogReader(replace(settings, max_batch_bytes=max_batch_bytes), script.open)
    reader._writer = cast(Any, _Failing(reader._writer, error))
    reader.start()
    for _ in range(3):
        batch = take(reader)
        assert batch.fatal is not None
        assert batch.tables == ()
    script.closed.set()
    reader.stop()
    reader._thread.join(SECONDS)
    assert not reader._thread.is_alive()


def test_stopping_ends_a_thread_that_waits_for_the_server(settings: ReaderSettings) -> None:
    script = Script([ScriptedConnection(transactions(Pen(), range(1)))])
    reader = BinlogReader(settings, script.open)
    reader.start()
    script.wait_for(3)
    reader.stop()
    reader._thread.join(SECONDS)
    assert script.closed.is_set()
    assert not reader._thread.is_alive()


def test_stopping_ends_a_thread_whose_batch_nobody_takes(settings: ReaderSettings) -> None:
    script = Script([ScriptedConnection(transactions(Pen(), range(60)))])
    reader = BinlogReader(replace(settings, max_batch_bytes=FIVE), script.open)
    reader.start()
    script.wait_for(28)
    reader.stop()
    reader._thread.join(SECONDS)
    assert not reader._thread.is_alive()


def test_stopping_ends_a_thread_that_waits_to_connect_again(settings: ReaderSettings) -> None:
    script = Script([])
    reader = BinlogReader(replace(settings, reconnect=Reconnect(WINDOW, pause_seconds=3600)), script.open)
    reader.start()
    reader.stop()
    reader._thread.join(SECONDS)
    assert not reader._thread.is_alive()


def test_a_thread_with_a_backlog_shuts_nobody_out(settings: ReaderSettings, started: Start) -> None:
    """No batch ever fills up where no rows of captured tables come; who asks gets the position all
    the same."""

    class Endless(list[list[Fact]]):
        def __len__(self) -> int:
            return 1 << 40

        def __getitem__(self, _: Any) -> list[Fact]:
            return [pen.begin(), pen.commit()]

    pen = Pen()
    script = Script([ScriptedConnection(Endless())])
    reader = started(settings, script)
    ends = [take(reader).end for _ in range(20)]
    assert len(set(ends)) == 20
    assert all(b.includes(a) for a, b in pairwise(ends))


def test_taking_while_reading_loses_and_doubles_nothing(settings: ReaderSettings, started: Start) -> None:
    """A call in the middle of a transaction gets what is whole, and the rest later."""
    count = 400
    script = Script([ScriptedConnection(transactions(Pen(), range(count)))])
    reader = started(replace(settings, max_batch_bytes=6 * FIVE), script)
    taken: queue.Queue[BinlogBatch | None] = queue.Queue()

    def greedy() -> None:
        while not script.closed.wait(0.001):
            batch = reader.next_batch()
            if batch is not None:
                taken.put(batch)
                if batch.end.at == at(100 + count * 100):
                    break
        taken.put(None)

    taker = threading.Thread(target=greedy)
    taker.start()
    taker.join(600)
    batches = [b for b in iter(taken.get, None) if b is not None]
    assert [k for b in batches for k in keys_of(b)] == list(range(count))
    assert all(b.start == a.end for a, b in pairwise(batches))


# -- XA


def test_what_a_commit_needs_is_searched_for_while_no_dump_is_open(settings: ReaderSettings) -> None:
    """The server would give up a dump that it cannot send to; a batch can be taken meanwhile."""
    pen = Pen()
    before = transactions(pen, range(2))
    commit: list[list[Fact]] = [[fact] for fact in pen.transaction(XaEnd("X'61',X'',1", True))]
    script = Script([ScriptedConnection([*before, *commit]), ScriptedConnection(commit)])
    prepared = OpenTransaction()
    prepared.add(insert(7), Spool(str(settings.folder), 1000))
    asked: list[tuple[str, LogOffset]] = []
    batch_taken = threading.Event()

    def find(xid: str, end: LogOffset, wanted: Callable[[TableId], bool], _: Spool) -> OpenTransaction:
        assert keys_of(take(reader)) == [0, 1]
        batch_taken.set()
        assert wanted(ORDERS)
        asked.append((xid, end))
        return prepared

    reader = BinlogReader(settings, script.open, find)
    reader.start()
    try:
        assert batch_taken.wait(SECONDS)
        keys, _ = everything(reader, 400)
    finally:
        reader.stop()
    assert keys == [7]
    assert asked == [("X'61',X'',1", at(400))]
    assert script.opened == [FilePosition(at(100)), FilePosition(at(300))]


@pytest.mark.parametrize("lost", [None, fail(Reason.POSITION_LOST, "the file was purged")])
def test_a_prepare_that_cannot_be_found_stops_the_tables(settings: ReaderSettings, lost: CdcError | None) -> None:
    commit: list[list[Fact]] = [[fact] for fact in Pen().transaction(XaEnd("X'61',X'',1", True))]

    def find(*_: object) -> None:
        if lost is not None:
            raise lost

    reader = BinlogReader(settings, Script([ScriptedConnection(commit), ScriptedConnection(commit)]).open, find)
    reader.start()
    try:
        batch = take(reader)
    finally:
        reader.stop()
    [part] = batch.tables
    assert part.stop is not None
    assert part.stop.reason is Reason.XA_UNSUPPORTED
    assert (lost.found if lost else "no binlog file") in part.stop.found


def test_a_binlog_that_does_not_move_is_waited_for(settings: ReaderSettings, started: Start) -> None:
    """For `idle_seconds`; a stop ends the wait."""
    script = Script([ScriptedConnection([[Pen().begin()], [insert(1)]])])
    reader = started(replace(settings, interval_seconds=0.01, idle_seconds=5.0), script)
    script.wait_for(2)
    returned = threading.Event()

    def pass_seconds() -> None:
        while not returned.wait(0.05):
            script.clock.now += 1

    begun, passing = script.clock(), threading.Thread(target=pass_seconds)
    passing.start()
    assert reader.next_batch() is None
    returned.set()
    passing.join()
    assert script.clock() >= begun + 5


def test_a_stop_ends_the_wait_for_a_binlog_that_does_not_move(settings: ReaderSettings, started: Start) -> None:
    script = Script([ScriptedConnection([[Pen().begin()], [insert(1)]])])
    reader = started(replace(settings, interval_seconds=0.01, idle_seconds=3600.0), script)
    threading.Timer(0.05, reader.stop).start()
    assert reader.next_batch() is None
