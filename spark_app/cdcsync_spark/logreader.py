"""Reads the log in the background: one dump connection, whole transactions, a batch ahead of who applies them.

The thread fills a batch; when it is full it decodes it and waits until it is taken. Who asks earlier gets what is whole by
then. A lost connection is made again from the last whole transaction, for a bounded time: the rows of the transaction that
was being read come again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.position import FilePosition, Position
from cdcsync_core.table import Table, TableId
from cdcsync_mysql.connection import Source, connect
from cdcsync_mysql.history import prove
from cdcsync_mysql.server import ServerFacts, read_facts
from cdcsync_spark.assembly import Assembly
from cdcsync_spark.batchfile import BatchWriter
from cdcsync_spark.binlog import BinlogClient
from cdcsync_spark.logbatch import LogBatch
from cdcsync_spark.spool import Spool
from cdcsync_spark.wire.parser import EventParser

#: how long a lost source is tried again before the run ends
_PATIENCE_SECONDS = 60.0
#: an event begins with its timestamp (4 bytes) and its type
_KIND = 4
_FORMAT_DESCRIPTION = 15


@dataclass(frozen=True)
class ReaderSettings:
    """What to read, and how. `ahead` holds the positions of tables that are further than `start`."""

    source: Source
    log: str
    replica_id: int
    tables: Mapping[TableId, Table]
    start: Position
    ahead: Mapping[TableId, Position]
    heartbeat_seconds: float
    max_batch_bytes: int
    folder: Path


class LogReader:
    """`start()` once, then `take()` as often as wanted, `stop()` at the end."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        spool = Spool(str(settings.folder), settings.max_batch_bytes)
        self._assembly = Assembly(settings.tables, settings.start, settings.ahead, spool)
        self._writer = BatchWriter(settings.folder, settings.tables)
        self._changed = threading.Condition()
        self._full: LogBatch | None = None
        self._fatal: CdcError | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="log-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def take(self) -> LogBatch | None:
        """The next batch; None where the log has not moved. A batch with `fatal` is the last one."""
        with self._changed:
            if self._full is not None:
                batch, self._full = self._full, None
                self._changed.notify_all()
                return batch
            if self._assembly.moved and self._fatal is None:
                return self._sealed()
            if self._fatal is not None:
                at = self._assembly.position
                return LogBatch(at, at, None, "", (), self._fatal)
            return None

    def _sealed(self) -> LogBatch | None:
        try:
            return self._writer.write(self._assembly.seal())
        except CdcError as e:
            self._fatal = e
            at = self._assembly.position
            return LogBatch(at, at, None, "", (), e)

    # -- the thread

    def _run(self) -> None:
        try:
            self._follow_patiently()
        except CdcError as e:
            self._end(e)
        except Exception as e:  # noqa: BLE001 (a thread that died silently would look like a silent source)
            self._end(fail(Reason.INTERNAL_ERROR, f"the log reader failed: {type(e).__name__}: {e}"))

    def _end(self, error: CdcError) -> None:
        with self._changed:
            self._fatal = error

    def _follow_patiently(self) -> None:
        failing_since: float | None = None
        while not self._stopping:
            before = self._assembly.position
            try:
                self._follow()
            except TransientError:
                now = time.monotonic()
                failing_since = now if failing_since is None or self._assembly.position != before else failing_since
                if now - failing_since > _PATIENCE_SECONDS:
                    raise
                self._pause(1.0)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)

    def _follow(self) -> None:
        settings = self._settings
        with self._changed:
            self._assembly.abandon()
            position = self._assembly.position
        with connect(settings.source) as connection:
            facts = read_facts(connection)
            prove(connection, facts, settings.log, position)
            client = BinlogClient(
                connection,
                flavor=facts.flavor,
                start=position,
                replica_id=settings.replica_id,
                heartbeat_seconds=settings.heartbeat_seconds,
            )
            self._consume(client, self._parser(facts, position))

    def _parser(self, facts: ServerFacts, position: Position) -> EventParser:
        file = position.at.file if position.at else ""
        mark = position.mark if isinstance(position, FilePosition) else ""
        return EventParser(facts.flavor, file=file, mark=mark, wanted=self._assembly.wanted)

    def _consume(self, client: BinlogClient, parser: EventParser) -> None:
        for event in client.events():
            with self._changed:
                if event[_KIND] == _FORMAT_DESCRIPTION:
                    self._assembly.begin_file(int.from_bytes(event[:_KIND], "little"))
                for fact in parser.feed(event):
                    self._assembly.feed(fact)
                if self._assembly.size >= self._settings.max_batch_bytes and self._assembly.moved:
                    self._hand_over()
                if self._stopping:
                    return

    def _hand_over(self) -> None:
        """Decodes the full batch, then waits until the one before it is taken."""
        batch = self._sealed()
        while self._full is not None and not self._stopping:
            self._changed.wait(1.0)
        self._full = batch
