"""Reads the log in the background: one dump connection, whole transactions, a batch ahead of who
applies them.

The thread fills a batch; when it is full it decodes it and waits until it is taken, which is at
once: whoever is behind does not wait for the next interval. Else who asks gets what is whole when
the interval is over. A lost connection is made again from the last whole transaction, for a bounded
time: the rows of the transaction that was being read come again.

Why it is right: everything that both threads touch is touched under one lock, which is held for the
events that arrived together. Batches are taken in the order of the log, because nothing is read
between the sealing of a full batch and its hand-over. What was whole before an error is handed over
before the error, and after an error nothing is: what a failed batch held would be missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError, fail
from cdcsync_core.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.quoting import quoted
from cdcsync_core.run import Decoder
from cdcsync_core.spec import Tables
from cdcsync_core.table import Table, TableId
from cdcsync_mysql.connection import Source, connect
from cdcsync_mysql.history import verify_resumable
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.watermark import high
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.batch_file import BatchWriter
from cdcsync_spark.binlog.client import BinlogClient, DumpNotBegun, DumpTakenOver, dump_begin
from cdcsync_spark.binlog.dml_check import DmlCheck
from cdcsync_spark.binlog.memory import bound_unpacked_events
from cdcsync_spark.binlog.new_tables import NewTables
from cdcsync_spark.binlog.open_transaction import OpenTransaction
from cdcsync_spark.binlog.received import Received, ReceivedFile
from cdcsync_spark.binlog.replica_ids import ReplicaIds
from cdcsync_spark.binlog.spool import Spool
from cdcsync_spark.binlog.transactions import PrepareNeeded, ReachNeeded, TransactionAssembler
from cdcsync_spark.binlog.xa_search import Stopped, XaSearch
from cdcsync_spark.wire.binlog.facts import FileLeft
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.sql.dml import Dml
from cdcsync_spark.wire.sql.text import Statement

_log = structlog.get_logger()
#: how long a lost source is tried again before the run ends
_RECONNECT_SECONDS = 60.0
#: a lock is not fair: a thread with a backlog would take it again before who asks for a batch wakes
#: up
_YIELD_SECONDS = 0.001
#: a full batch stays in memory with the transaction that comes after it, if that is small
_SPARE_PART = 8
#: an event begins with its timestamp (4 bytes) and its type
_KIND = 4
_ROTATE = 4
_FORMAT_DESCRIPTION = 15


@dataclass(frozen=True)
class ReaderSettings:
    """What to read, and how.

    `ahead` holds the positions of tables that are further than `start`; a batch is full when it
    takes `max_batch_bytes` of memory (`TransactionAssembler.size`); `interval_seconds` is the time
    from one batch to the next where none is full before. Without `befores` those before images are
    left out that a fold by key does without. `spare_ids` are taken where a dump with `replica_id`
    does not begin within `begin_seconds` (see `binlog.replica_ids`; the reader sets that).
    `received` is where it is noted what has come (see `received`); None: nowhere. With `patterns`
    batches count what appears in the binlog of other tables that match them.
    """

    source: Source
    log: str
    replica_id: int
    tables: Mapping[TableId, Table]
    start: Position
    ahead: Mapping[TableId, Position]
    heartbeat_seconds: float
    max_batch_bytes: int
    folder: Path
    decoder: Decoder = Decoder.VECTORIZED
    interval_seconds: float = 0.0
    befores: bool = True
    spare_ids: tuple[int, ...] = ()
    begin_seconds: float | None = None
    received: Path | None = None
    patterns: Tables | None = None


@dataclass(frozen=True)
class Dump:
    """One connection to the log, proved and about to send: raw events, and the parser that knows
    where they begin. `end` is where the log ended before: a heartbeat from there or beyond is from
    its end."""

    client: BinlogClient
    parser: EventParser
    end: LogOffset | None = None


#: settings, where to go on, whose rows are wanted; raises CdcError
OpenDump = Callable[[ReaderSettings, Position, Callable[[TableId], bool]], AbstractContextManager[Dump]]
#: a change in statement format and where its transaction ends; why it may reach a captured table,
#: empty where it cannot
FindFault = Callable[[Dml, LogOffset], str]
#: an xid, where its XA COMMIT ends, whose rows are wanted, where they are kept; None where no
#: binlog file has its PREPARE
FindPrepared = Callable[[str, LogOffset, Callable[[TableId], bool], Spool], OpenTransaction | None]


@contextmanager
def open_dump(settings: ReaderSettings, start: Position, wanted: Callable[[TableId], bool]) -> Iterator[Dump]:
    bound_unpacked_events()
    with connect(settings.source) as connection:
        facts = read_facts(connection)
        verify_resumable(connection, facts, settings.log, start)
        end = high(connection, facts)
        file = start.at.file if start.at else _oldest_file(settings.ahead.values())
        mark = start.gtid_pos if isinstance(start, FilePosition) else ""
        client = BinlogClient(
            connection,
            flavor=facts.flavor,
            start=start,
            replica_id=settings.replica_id,
            heartbeat_seconds=settings.heartbeat_seconds,
            begin_seconds=settings.begin_seconds if facts.flavor == "mariadb" else None,
        )
        parser = EventParser(facts.flavor, file=file, mark=mark, known=_sent_again(start), wanted=wanted)
        yield Dump(client, parser, end)


def _oldest_file(positions: Iterable[Position]) -> str:
    """Where the tables of a reader without a place of its own stand: a dump by GTIDs that begins
    behind it skipped the ends of files."""
    places = [p.at or (p.anchor.at if isinstance(p, GtidPosition) and p.anchor else None) for p in positions]
    known = [place for place in places if place]
    return min(known, key=lambda place: place.number).file if known else ""


def _sent_again(start: Position) -> LogOffset | None:
    """The place up to which the dump brings what is known."""
    return start.at if isinstance(start, FilePosition) and dump_begin(start.at) != start.at else None


class BinlogReader:
    """`start()` once, then `take()` as often as wanted, `stop()` at the end."""

    def __init__(
        self,
        settings: ReaderSettings,
        open_dump: OpenDump = open_dump,
        find_prepared: FindPrepared | None = None,
        find_fault: FindFault | None = None,
    ) -> None:
        self._settings = settings
        self._open_dump = open_dump
        self._ids = ReplicaIds((settings.replica_id, *settings.spare_ids))
        search = XaSearch(settings.source, settings.log, self._has_ended)
        self._find_prepared = find_prepared or search.prepared
        check = DmlCheck(settings.source, settings.log, tuple(settings.tables), search.since)
        self._find_fault = find_fault or check.fault
        spool = Spool(str(settings.folder), settings.max_batch_bytes + settings.max_batch_bytes // _SPARE_PART)
        self._assembly = TransactionAssembler(settings.tables, settings.start, settings.ahead, spool)
        self._writer = BatchWriter(settings.folder, settings.tables, settings.decoder, settings.befores)
        self._new = NewTables(settings.tables, settings.patterns)
        self._changed = threading.Condition()
        self._due = 0.0
        self._early = threading.Event()
        self._full: BinlogBatch | None = None
        self._fatal: CdcError | None = None
        self._state_unknown = False
        self._asked = False
        self._stopping = False
        self._client: BinlogClient | None = None
        #: when the source last said where the log stands, outside of a transaction
        self._heard = float("-inf")
        self._received = Received(listens=time.monotonic())
        self._shared = ReceivedFile(settings.received) if settings.received else None
        self._thread = threading.Thread(target=self._run, name="log-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and its connection, also while it waits for the server."""
        with self._changed:
            self._stopping = True
            self._early.set()
            client = self._client
            self._changed.notify_all()
        if client is not None:
            client.close()

    def next_batch(self) -> BinlogBatch | None:
        """The next batch: once it is full, or what is whole when the interval since the last call
        is over; None where the log has not moved. A batch with `fatal` is the last one.
        """
        self._early.wait(max(0.0, self._due - time.monotonic()))
        self._due = time.monotonic() + self._settings.interval_seconds
        self._asked = True
        with self._changed:
            self._asked = False
            if self._full is not None:
                batch, self._full = self._full, None
                if not self._has_ended():
                    self._early.clear()
                self._changed.notify_all()
                return replace(batch, full=True)
            if self._assembly.moved and not self._state_unknown:
                return self._sealed()
            return None if self._fatal is None else self._last(self._fatal)

    def _sealed(self) -> BinlogBatch:
        """All that is whole. If it cannot be written it is lost to this reader, which ends."""
        try:
            changes = self._assembly.changes
            batch = self._writer.write(self._assembly.seal())
            return replace(batch, changes=changes, appeared=self._new.take_count())
        except CdcError as e:
            self._fatal = e
        except Exception as e:  # noqa: BLE001 (whatever it was, the batch is lost, and nothing may come after it)
            self._fatal = _unexpected(e)
        return self._last(self._fatal)

    def _last(self, error: CdcError) -> BinlogBatch:
        at = self._assembly.position
        return BinlogBatch(at, at, None, "", (), error)

    # -- the thread

    def _run(self) -> None:
        self._note(listens=time.monotonic())
        try:
            self._follow_with_retry()
        except CdcError as e:
            self._end(e, state_unknown=False)
        except Exception as e:  # noqa: BLE001 (a thread that died silently would look like a silent source)
            self._end(_unexpected(e), state_unknown=True)

    def _end(self, error: CdcError, *, state_unknown: bool) -> None:
        """`state_unknown`: an error that nobody foresaw, so nobody knows what is whole."""
        with self._changed:
            self._fatal = self._fatal or error
            self._state_unknown = state_unknown
            self._early.set()

    def _has_ended(self) -> bool:
        return self._stopping or self._fatal is not None

    def _follow_with_retry(self) -> None:
        """A source that is lost again and again, and neither moves nor stays, is given up.

        It stays while it says where the log stands. Silence, or the middle of a transaction that
        never comes to its end, is no stay, however long it takes; neither is the rotation with
        which each connection begins. Two that take the log from each other move on both with every
        connection, which is no stay of either.
        """
        failing_since: float | None = None
        while not self._has_ended():
            before, began = self._assembly.position, time.monotonic()
            try:
                self._follow_with_prepared()
            except TransientError as e:
                now = time.monotonic()
                if isinstance(e, DumpNotBegun):
                    self._take_next_id(e)
                stayed = self._heard - began > _RECONNECT_SECONDS
                moved = self._assembly.position != before and not isinstance(e, DumpTakenOver)
                if failing_since is None or stayed or moved:
                    failing_since = now
                if now - failing_since > _RECONNECT_SECONDS:
                    raise
            self._pause(1.0)

    def _take_next_id(self, error: DumpNotBegun) -> None:
        self._ids = self._ids.after()
        _log.warning("the next replica id is taken", error=error.message, replica_id=self._ids.current)

    def _follow_with_prepared(self) -> None:
        """The dump is left for a search: a server that cannot send gives it up after a while."""
        needed: PrepareNeeded | ReachNeeded | None = None
        while not self._has_ended():
            if needed is not None:
                self._search(needed)
            try:
                self._follow()
            except (PrepareNeeded, ReachNeeded) as e:
                needed = e
            else:
                return

    def _search(self, needed: PrepareNeeded | ReachNeeded) -> None:
        """The reader does not listen meanwhile, so the source is not silent."""
        self._note(blocked=True)
        if isinstance(needed, PrepareNeeded):
            self._learn(needed)
        else:
            self._learn_reach(needed)
        self._note(heard=time.monotonic(), blocked=False)

    def _learn(self, needed: PrepareNeeded) -> None:
        spool = Spool(str(self._settings.folder), self._settings.max_batch_bytes // _SPARE_PART)
        why = "is in no binlog file of the server"
        found: OpenTransaction | None = None
        try:
            found = self._find_prepared(needed.xid, needed.end, self._assembly.wanted, spool)
        except Stopped:
            return
        except PermanentError as e:
            why = f"cannot be read: {e.found}"
        with self._changed:
            self._assembly.learn(needed.xid, why if found is None else found)

    def _learn_reach(self, needed: ReachNeeded) -> None:
        try:
            fault = self._find_fault(needed.dml, needed.end)
        except Stopped:
            return
        except PermanentError as e:
            fault = e.found
        with self._changed:
            self._assembly.learn_reach(needed.dml, fault)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(self._has_ended, seconds)

    def _follow(self) -> None:
        with self._changed:
            self._assembly.abandon()
            position = self._assembly.position
        ids = self._ids
        settings = replace(self._settings, replica_id=ids.current, begin_seconds=ids.begin_seconds)
        with self._open_dump(settings, position, self._wanted) as dump:
            with self._changed:
                self._client = dump.client
            try:
                self._consume(dump)
            finally:
                with self._changed:
                    self._client = None

    def _consume(self, dump: Dump) -> None:
        if self._has_ended():
            return
        for arrived in dump.client.arrivals():
            if self._asked:
                time.sleep(_YIELD_SECONDS)
            with self._changed:
                if self._has_ended():
                    return
                steps = self._assembly.steps
                for event in arrived:
                    self._feed(dump.parser, event)
                    if event[_KIND] == _ROTATE and self._has_ended():
                        return
                    if self._assembly.size >= self._settings.max_batch_bytes and self._assembly.moved:
                        self._hand_over()
                        if self._has_ended():
                            return
                if self._assembly.steps != steps:
                    self._heard = time.monotonic()
                self._note_arrival(dump)

    def _feed(self, parser: EventParser, event: memoryview) -> None:
        if event[_KIND] == _FORMAT_DESCRIPTION:
            self._assembly.begin_file(int.from_bytes(event[:_KIND], "little"))
        for fact in parser.feed(event):
            if type(fact) is FileLeft and self._assembly.moved:
                self._hand_over()  # a batch ends where a file does that a crash may have ended
            self._assembly.feed(fact)
            if type(fact) is Statement:
                self._new.read(fact)

    def _wanted(self, table: TableId) -> bool:
        return self._assembly.wanted(table) or self._new.met(table)

    def _hand_over(self) -> None:
        """Decodes the full batch, then waits until the one before it is taken."""
        self._note(heard=time.monotonic(), end=None, changes=self._assembly.changes)
        batch = self._sealed()
        while self._full is not None and not self._stopping:
            self._note(blocked=True)
            self._changed.wait(1.0)
        self._note(heard=time.monotonic(), blocked=False)  # it listens again
        self._full = batch
        self._early.set()

    def _note_arrival(self, dump: Dump) -> None:
        """A heartbeat from before the end of the log comes while the server skips what it need not
        send."""
        now, at = time.monotonic(), self._assembly.at
        ended = self._assembly.waits and (dump.end is None or (at is not None and at.covers(dump.end)))
        self._note(heard=now, end=now if ended else None, changes=self._assembly.changes)

    def _note(self, **parts: Any) -> None:
        if self._shared is not None:
            self._received = replace(self._received, **parts)
            self._shared.write(self._received)


def _unexpected(error: Exception) -> CdcError:
    return fail(Reason.INTERNAL_ERROR, f"the log reader failed: {type(error).__name__}: {quoted(str(error))}")
