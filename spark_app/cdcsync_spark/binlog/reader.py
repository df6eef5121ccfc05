"""Reads the binlog in the background: one dump connection, whole transactions, one batch ahead of
the consumer.

The thread fills a batch; when it is full it decodes it and waits until it is consumed. A consumer
that lags gets a full batch at once, without waiting for the next interval. Otherwise it gets, at
the end of the interval, the transactions that are complete. A lost connection is opened again after
the last complete transaction, for a bounded time: the rows of the transaction that was being read
are sent again.

Why it is right: all state that both threads share is accessed under one lock, which is held for the
events that arrived together. Batches are consumed in binlog order, because nothing is read between
the sealing of a full batch and its hand-over. What was complete before an error is handed over
before the error, and nothing is handed over after it: what a failed batch held would be missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError, fail
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.quoting import quoted
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.proof import SourceMoved
from cdcsync_spark.binlog.assembly.known_reach import Reach
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.plain_path import PlainPath
from cdcsync_spark.binlog.assembly.sealed import PrepareNeeded, ReachNeeded
from cdcsync_spark.binlog.assembly.spool import Spool
from cdcsync_spark.binlog.assembly.transactions import TransactionAssembler
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.batch_file import BatchWriter
from cdcsync_spark.binlog.dump.client import BinlogClient, DumpNotBegun, DumpTakenOver
from cdcsync_spark.binlog.dump.dump import Dump, OpenDump, open_dump
from cdcsync_spark.binlog.dump.packets import Arrived
from cdcsync_spark.binlog.dump.reader_health import Received, ReceivedFile
from cdcsync_spark.binlog.dump.replica_ids import ReplicaIds
from cdcsync_spark.binlog.dump.silence import Silence
from cdcsync_spark.binlog.hold_back import HoldBack
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.new_tables import NewTables
from cdcsync_spark.binlog.search.dml_check import DmlCheck
from cdcsync_spark.binlog.search.xa_search import Stopped, XaSearch
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.logs import get_logger
from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.binlog.event.header import KIND
from cdcsync_spark.wire.binlog.facts import Fact, FileLeft, TransactionEnd
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.sql.row_changes.dml import Dml
from cdcsync_spark.wire.sql.syntax.text import Statement

_log = get_logger()
#: a lock is not fair: a thread with a backlog would acquire it again before the consumer wakes up
_YIELD_SECONDS = 0.001
#: a full batch stays in memory with the transaction that comes after it, if that is small
_SPARE_PART = 8
_FORMAT_DESCRIPTION = EventType.FORMAT_DESCRIPTION.value
#: the facts that a batch may end with, or before
_ENDING = (TransactionEnd, FileLeft)


#: a change in statement format and where its transaction ends
FindReach = Callable[[Dml, LogOffset], Reach]
#: an xid, where its XA COMMIT ends, whose rows are wanted, where they are kept; None where no
#: binlog file has its PREPARE
FindPrepared = Callable[[str, LogOffset, Callable[[TableId], bool], Spool], OpenTransaction | None]


class BinlogReader:
    """`start()` once, then `next_batch()` as often as needed, `stop()` at the end. `clock` counts
    seconds and never goes back."""

    def __init__(
        self,
        settings: ReaderSettings,
        open_dump: OpenDump = open_dump,
        find_prepared: FindPrepared | None = None,
        find_reach: FindReach | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._open_dump = open_dump
        self._clock = clock
        self._ids = ReplicaIds((settings.replica_id, *settings.spare_ids))
        search = XaSearch(settings.source, settings.lineage, self._has_ended)
        self._find_prepared = find_prepared or search.prepared
        check = DmlCheck(settings.source, settings.lineage, tuple(settings.tables), search.since)
        self._find_reach = find_reach or check.reach
        spool = Spool(str(settings.folder), settings.max_batch_bytes + settings.max_batch_bytes // _SPARE_PART)
        definitions = Definitions(settings.tables, settings.policies, settings.unproved, settings.unconfirmed)
        self._assembler = TransactionAssembler(definitions, settings.start, settings.ahead, spool)
        self._writer = BatchWriter(settings.folder, definitions, settings.decoder, settings.befores)
        self._new = NewTables(settings.tables, settings.patterns)
        self._hold_back = HoldBack(settings.source, settings.lineage, settings.hold_back)
        self._changed = threading.Condition()
        self._due = 0.0
        self._early = threading.Event()
        self._full: BinlogBatch | None = None
        self._fatal: CdcError | None = None
        self._state_unknown = False
        self._asked = False
        self._stopping = False
        self._client: BinlogClient | None = None
        #: when the source last sent its position outside of a transaction
        self._last_progress = float("-inf")
        self._received = Received(since=clock())
        self._shared = ReceivedFile(settings.received) if settings.received else None
        self._thread = threading.Thread(target=self._run, name="binlog-reader", daemon=True)

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
        self._hold_back.close()

    def next_batch(self) -> BinlogBatch | None:
        """The next batch: a full one at once, or what is complete when an interval is over; None
        where the binlog has not moved for a while. A batch with `fatal` is the last one."""
        idle_until = self._clock() + self._settings.idle_seconds
        while (batch := self._next()) is None and self._clock() < idle_until and not self._has_ended():
            pass
        return batch

    def _next(self) -> BinlogBatch | None:
        """When the interval since the last call is over."""
        self._early.wait(max(0.0, self._due - self._clock()))
        self._due = self._clock() + self._settings.interval_seconds
        try:
            batch = self._hold_back.release(self._taken)
        except CdcError as e:
            self._end(e, state_unknown=False)
            return self._last(e)
        return self._last(self._fatal) if batch is None and self._fatal is not None else batch

    def _taken(self) -> BinlogBatch | None:
        self._asked = True
        with self._changed:
            self._asked = False
            if self._full is not None:
                batch, self._full = self._full, None
                if not self._has_ended():
                    self._early.clear()
                self._changed.notify_all()
                return replace(batch, full=True)
            if self._assembler.reached.moved and not self._state_unknown:
                return self._sealed()
            return None if self._fatal is None else self._last(self._fatal)

    def _sealed(self) -> BinlogBatch:
        """All complete transactions. If they cannot be written they are lost to this reader, which
        ends."""
        try:
            changes = self._assembler.rows.changes
            batch = self._writer.write(self._assembler.seal())
            return replace(batch, changes=changes, appeared=self._new.take_count())
        except CdcError as e:
            self._fatal = e
        except Exception as e:  # noqa: BLE001 (the batch is lost, and nothing may follow it)
            self._fatal = _unexpected(e)
        return self._last(self._fatal)

    def _last(self, error: CdcError) -> BinlogBatch:
        at = self._assembler.reached.position
        return BinlogBatch(at, at, None, "", (), error)

    # -- the thread

    def _run(self) -> None:
        self._note(since=self._clock())
        try:
            self._follow_with_retry()
        except CdcError as e:
            self._end(e, state_unknown=False)
        except Exception as e:  # noqa: BLE001 (a thread that ended silently would look like an idle source)
            self._end(_unexpected(e), state_unknown=True)

    def _end(self, error: CdcError, *, state_unknown: bool) -> None:
        """`state_unknown`: an unexpected error, after which it is not known what is complete."""
        with self._changed:
            self._fatal = self._fatal or error
            self._state_unknown = state_unknown
            self._early.set()

    def _has_ended(self) -> bool:
        return self._stopping or self._fatal is not None

    def _follow_with_retry(self) -> None:
        """Ends the run where the source is lost repeatedly, without progress in between.

        Progress is a new position, or a connection that lasted: the source sent positions for the
        whole window. Neither silence, nor the middle of a transaction that never ends, nor the
        rotation with which each connection begins is progress, however long it takes. Two syncs
        that take the dump from each other move on both with every connection, which is none either.
        """
        window = self._settings.reconnect.window_seconds
        failing_since: float | None = None
        while not self._has_ended():
            before, began = self._assembler.reached.position, self._clock()
            try:
                self._follow_with_prepared()
            except SourceMoved:
                raise  # no further attempt of this run can prove that the other server leads on
            except TransientError as e:
                now = self._clock()
                if isinstance(e, DumpNotBegun):
                    self._use_next_id(e)
                stayed = self._last_progress - began > window
                moved = self._assembler.reached.position != before and not isinstance(e, DumpTakenOver)
                if failing_since is None or stayed or moved:
                    failing_since = now
                if now - failing_since > window:
                    raise
            self._pause(self._settings.reconnect.pause_seconds)

    def _use_next_id(self, error: DumpNotBegun) -> None:
        self._ids = self._ids.after()
        _log.warning("the next replica id is used", error=error.message, replica_id=self._ids.current)

    def _follow_with_prepared(self) -> None:
        """The dump is closed for a search: a server that cannot send ends it after its timeout."""
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
        """The reader does not receive meanwhile, which must not count as silence of the source."""
        self._note(blocked=True)
        if isinstance(needed, PrepareNeeded):
            self._learn(needed)
        else:
            self._learn_reach(needed)
        self._note(last=self._clock(), blocked=False)

    def _learn(self, needed: PrepareNeeded) -> None:
        spool = Spool(str(self._settings.folder), self._settings.max_batch_bytes // _SPARE_PART)
        why = "is in no binlog file of the server"
        changes: OpenTransaction | None = None
        try:
            changes = self._find_prepared(needed.xid, needed.end, self._assembler.rows.wanted, spool)
        except Stopped:
            return
        except PermanentError as e:
            why = f"cannot be read: {e.found}"
        with self._changed:
            self._assembler.prepared.learn(needed.xid, why if changes is None else changes)

    def _learn_reach(self, needed: ReachNeeded) -> None:
        try:
            reach = self._find_reach(needed.dml, needed.end)
        except Stopped:
            return
        except PermanentError as e:
            reach = Reach(e.found)
        with self._changed:
            self._assembler.statements.learn_reach(needed.dml, reach)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(self._has_ended, seconds)

    def _follow(self) -> None:
        with self._changed:
            self._assembler.abandon()
            position = self._assembler.reached.position
        ids = self._ids
        settings = replace(self._settings, replica_id=ids.current, begin_seconds=ids.begin_seconds)
        with self._open_dump(settings, position, self._wanted) as dump:
            with self._changed:
                self._client = dump.client
                if dump.state is not None:
                    self._assembler.reached.learn_state(dump.state)
                for table, error in dump.refused.items():
                    self._assembler.refuse(table, error)
            try:
                self._consume(dump)
            finally:
                with self._changed:
                    self._client = None

    def _consume(self, dump: Dump) -> None:
        if self._has_ended():
            return
        plain = PlainPath(dump.parser, self._assembler, self._settings.max_batch_bytes)
        silence = Silence(dump.prove_end, self._clock, self._note_arrival)
        for arrived in dump.client.arrivals():
            if self._asked:
                time.sleep(_YIELD_SECONDS)
            with self._changed:
                if self._has_ended():
                    return
                progress = self._assembler.reached.progress_count
                if not self._take(dump.parser, plain, arrived):
                    return
                if self._assembler.reached.progress_count != progress:
                    self._last_progress = self._clock()
                waits_at = self._waits_at_the_end(dump)
                if waits_at is None:
                    self._note_arrival(self._clock())
            if waits_at is not None:
                silence.prove(waits_at)

    def _take(self, parser: EventParser, plain: PlainPath, arrived: Arrived) -> bool:
        """Plain transactions as columns, all else event by event; False if the reader has ended."""
        plain.index(arrived)
        at = 0
        while at < len(arrived):
            at = plain.take(at)
            single = plain.next_start(at) or len(arrived)
            if not self._feed_each(parser, arrived.part(at, single)):
                return False
            at = single
        return True

    def _feed_each(self, parser: EventParser, events: Iterable[memoryview]) -> bool:
        """Event by event; False if the reader has ended."""
        assembler, limit = self._assembler, self._settings.max_batch_bytes
        for event in events:
            if self._feed(parser, event) and self._has_ended():
                return False
            if assembler.rows.size >= limit and assembler.reached.moved:
                self._hand_over()
                if self._has_ended():
                    return False
        return True

    def _feed(self, parser: EventParser, event: memoryview) -> bool:
        """Whether a batch was handed over. A file that a crash may have ended ends one, and so does
        a transaction that changes a definition, which is a batch of its own."""
        facts = parser.feed(event)
        if event[KIND] == _FORMAT_DESCRIPTION:
            self._assembler.reached.begin_file(int.from_bytes(event[:KIND], "little"))
        handed_over = False
        for fact in facts:
            if type(fact) in _ENDING and self._assembler.cuts(fact):
                handed_over = True
                self._feed_alone(fact)
                continue
            self._assembler.feed(fact)
            if type(fact) is Statement:
                self._new.read(fact)
        return handed_over

    def _feed_alone(self, fact: Fact) -> None:
        """Feeds the fact into a batch of its own, behind the batch that it ends."""
        if self._assembler.reached.moved:
            self._hand_over()
        self._assembler.feed(fact)
        if self._assembler.rows.stepped and not self._has_ended():
            self._hand_over()

    def _wanted(self, table: TableId) -> bool:
        return self._assembler.rows.wanted(table) or self._new.met(table)

    def _hand_over(self) -> None:
        """Decodes the full batch, then waits until the previous one is consumed."""
        self._note(last=self._clock(), end=None, changes=self._assembler.rows.changes)
        batch = self._sealed()
        while self._full is not None and not self._stopping:
            self._note(blocked=True)
            self._changed.wait(1.0)
        self._note(last=self._clock(), blocked=False)  # it receives again
        self._full = batch
        self._early.set()

    def _waits_at_the_end(self, dump: Dump) -> Position | None:
        """The position of a heartbeat that says so, which is to be proved; None for all else that
        arrives. While the server skips what it need not send, it sends heartbeats from before the
        end of the binlog."""
        at = self._assembler.reached.at
        ended = self._assembler.waits and (dump.end is None or (at is not None and at.covers(dump.end)))
        return self._assembler.reached.position if ended else None

    def _note_arrival(self, last: float, end: float | None = None) -> None:
        self._note(last=last, end=end, changes=self._assembler.rows.changes)

    def _note(self, **parts: Any) -> None:
        if self._shared is not None:
            self._received = replace(self._received, **parts)
            self._shared.write(self._received)


def _unexpected(error: Exception) -> CdcError:
    return fail(Reason.INTERNAL_ERROR, f"the binlog reader failed: {type(error).__name__}: {quoted(str(error))}")
