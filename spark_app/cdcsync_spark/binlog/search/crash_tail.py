"""Which keys were changed by the last transactions before a crash of the source.

Which part of the binlog is suspicious. InnoDB flushes its redo log once in
`innodb_flush_log_at_timeout` seconds (1 by default), so what is lost was committed in the last
seconds before the crash. No event says when that was, but it was not before the newest second in
the file. An event's second is the one in which its statement began, or that of another server, so
an event with an old second may have been committed late: the seconds that count are the newest so
far, and at least the last 64 MiB of the files concerned are suspicious, more than a server writes
in the time in question. To suspect more of the binlog does no harm: a key that was not lost is read
as it is.

Two passes over few files, by dumps that end no other one (replica id 0): the first finds the ends
and the position where the suspicious part begins (at the end of a transaction), and decodes no row;
the second collects the keys of all images from there to the next file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset, Place, file_number
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import global_variables
from cdcsync_mysql.sessions.connection import Source, fetch
from cdcsync_spark.binlog.assembly.spool import Spool
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.binlog.search.xa_search import XaSearch
from cdcsync_spark.rows.changes import KIND
from cdcsync_spark.wire.binlog.facts import Fact, FileLeft, Progress, RowsEvent, TransactionEnd, XaEnd, XaPrepare
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.binlog.rows import batches

#: as much of one table is decoded at once
_PIECE_BYTES = 8 << 20
_TIMESTAMP = 4


@dataclass(frozen=True)
class TailLimits:
    """How much of the binlog is suspicious at least: `seconds` beside the server's own, and `size`
    bytes. Ends of transactions are kept `step` bytes apart."""

    seconds: int = 60
    size: int = 64 << 20
    step: int = 64 << 10


class Mark(NamedTuple):
    """A transaction ends at `offset`; `newest` is the newest second of an event up to there."""

    offset: int
    newest: int


@dataclass(frozen=True)
class FileScan:
    """One binlog file: offsets from which it can be read, in order, the first at its beginning; its
    end; the newest second in it; whether the server ended it."""

    file: str
    marks: tuple[Mark, ...]
    end: int
    newest: int
    ended: bool


class Tail(NamedTuple):
    """The suspicious part begins at `start`. What has no second from `since` on is included for
    caution."""

    start: LogOffset
    since: int


def suspicious(scans: Iterator[FileScan], seconds: int, least_bytes: int) -> Tail:
    """`scans` are the crashed file and, asked for as needed, those before it."""
    first = next(scans)
    since, size = first.newest - seconds, 0
    for scan in itertools.chain([first], scans):
        for mark in reversed(scan.marks):
            if mark.newest < since and size + scan.end - mark.offset >= least_bytes:
                return Tail(LogOffset(scan.file, mark.offset), since)
        size += scan.end
        begun = Tail(LogOffset(scan.file, scan.marks[0].offset), since)
        if scan.marks[0].newest < since:
            return begun  # the files before were ended that long before the crash
    return begun


class Timed(NamedTuple):
    """A fact, and the newest second of an event up to it."""

    newest: int
    fact: Fact


@dataclass(frozen=True)
class TailReader:
    """Reads the binlog that `lineage` ends with. `folder` is scratch space that is there."""

    source: Source
    lineage: Lineage
    folder: Path
    decoder: Decoder = Decoder.VECTORIZED
    limits: TailLimits = TailLimits()

    def keys(self, left: FileLeft, tables: Mapping[TableId, Capture]) -> dict[TableId, pa.Table | CdcError]:
        """Per table with suspicious keys these, or why they cannot be known; raises
        TransientError."""
        try:
            tail = self._tail(left)
            return self._collected(tail, Place(left.next, 4, self.lineage.newest), tables) if tail else {}
        except PermanentError as e:
            return dict.fromkeys(tables, e)

    def _tail(self, left: FileLeft) -> Tail | None:
        """None where the server ended all the files."""
        files = self._files()
        number = file_number(left.file)
        if all(file_number(file) > number for file in files):
            self._refuse_purged(left)
            return None
        for index, file in enumerate(files):
            if not number <= file_number(file) < file_number(left.next):
                continue
            scan = self._scan(file)
            if not scan.ended:
                before = (self._scan(earlier) for earlier in reversed(files[:index]))
                return suspicious(itertools.chain([scan], before), self._seconds(), self.limits.size)
        return None

    def _refuse_purged(self, left: FileLeft) -> None:
        """How the file ended cannot be seen any more. Raises LogIncomplete unless the source
        forgets nothing in a crash."""
        name = "innodb_flush_log_at_trx_commit"
        value = self._variable(name, "1")
        if value != "1":
            raise fail(
                Reason.LOG_INCOMPLETE,
                f"the binlog file {left.file} was purged before its end was seen, and {name} is {value}: if the server"
                " crashed meanwhile, its last transactions may be lost",
                needed=f"the file, or {name} = 1",
                remedy=RESNAPSHOT_ALL,
            )

    def _collected(
        self, tail: Tail, end: LogOffset, tables: Mapping[TableId, Capture]
    ) -> dict[TableId, pa.Table | CdcError]:
        keys, committed = KeyCollector(tables, tail.since, self.decoder), XaCommits()
        with self._reading(tail.start, tables) as (client, parser):
            for newest, fact in _timed(client, parser):
                if isinstance(fact, RowsEvent):
                    keys.add(fact, newest)
                elif isinstance(fact, Progress) and fact.at.covers(end):
                    break
                committed.feed(fact)
        for xid, commit in committed.without_prepare:
            for event in self._prepared(xid, commit, tables):
                keys.add(event, tail.since)
        return keys.result()

    def _prepared(self, xid: str, commit: LogOffset, tables: Mapping[TableId, Capture]) -> Iterator[RowsEvent]:
        """The rows of an XA transaction whose PREPARE is before the suspicious part."""
        search = XaSearch(self.source, self.lineage)
        prepared = search.prepared(xid, commit, lambda table: table in tables, Spool(str(self.folder), _PIECE_BYTES))
        if prepared is None:
            raise fail(
                Reason.XA_UNSUPPORTED,
                f"an XA COMMIT ({xid}) before a crash of the source, whose XA PREPARE is in no binlog file",
                needed="the binlog with the XA PREPARE",
                remedy=f"{RESNAPSHOT_ALL}; keep the binlog longer",
            )
        return (item.event() for item in prepared.rows)

    def _scan(self, file: str) -> FileScan:
        with self._reading(LogOffset(file, 4)) as (client, parser):
            return scan_file(file, _timed(client, parser), self.limits.step)

    @contextmanager
    def _reading(
        self, at: LogOffset, tables: Mapping[TableId, Capture] | tuple[()] = ()
    ) -> Iterator[tuple[BinlogClient, EventParser]]:
        """The binlog from `at` to its end."""
        start = FilePosition(at.in_binlog(self.lineage.newest))
        with open_session(self.source) as session:
            connection, facts = session.proved(self.lineage, start), session.facts
            client = BinlogClient.to_the_end(connection, facts.flavor, start)
            with client:
                yield (
                    client,
                    EventParser(facts.flavor, file=at.file, is_wanted=lambda table: table in tables, binlog=facts.log),
                )

    def _files(self) -> list[str]:
        with open_session(self.source) as session:
            return [str(row[0]) for row in fetch(session.proved(self.lineage), "SHOW BINARY LOGS")]

    def _seconds(self) -> int:
        return self.limits.seconds + 2 * int(self._variable("innodb_flush_log_at_timeout", "1"))

    def _variable(self, name: str, default: str) -> str:
        with open_session(self.source) as session:
            return global_variables(session.proved(self.lineage), name).get(name, default)


def _timed(client: BinlogClient, parser: EventParser) -> Iterator[Timed]:
    newest = 0
    for event in client.events():
        newest = max(newest, int.from_bytes(event[:_TIMESTAMP], "little"))
        for fact in parser.feed(event):
            yield Timed(newest, fact)


def scan_file(file: str, timed: Iterator[Timed], step: int = TailLimits.step) -> FileScan:
    """`timed` are the facts from the file's beginning on, those of later files included."""
    newest, end, ended = 0, 4, True  # the file that is being written has no end yet
    marks: list[Mark] = []
    for seen, fact in timed:
        ended = not isinstance(fact, FileLeft)
        if not ended or (isinstance(fact, Progress) and fact.at.file != file):
            break
        newest = seen
        marks = marks or [Mark(4, newest)]
        if isinstance(fact, TransactionEnd):
            end = fact.id.end.offset
            if end - marks[-1].offset >= step:
                marks.append(Mark(end, newest))
    return FileScan(file, tuple(marks or [Mark(4, newest)]), end, newest, ended)


class XaCommits:
    """Finds the XA transactions that are committed and not prepared in the same part of the
    binlog."""

    def __init__(self) -> None:
        self.without_prepare: list[tuple[str, LogOffset]] = []
        self._prepared: set[str] = set()
        self._ending: list[str] = []

    def feed(self, fact: Fact) -> None:
        if isinstance(fact, XaPrepare):
            self._prepared.add(fact.xid)
        elif isinstance(fact, XaEnd) and fact.committed and fact.xid not in self._prepared:
            self._ending.append(fact.xid)
        elif isinstance(fact, TransactionEnd):
            self.without_prepare += [(xid, fact.id.end) for xid in self._ending]
            self._ending = []


class KeyCollector:
    """Collects the keys of all images of `tables`; of a table without a key, that it has images.

    Rows that do not have the table's definition are left out: they are older than a change of the
    table's structure, and a server writes its redo log for that. Others that cannot be read are an
    error of their table, if they have a second from `since` on.
    """

    def __init__(self, tables: Mapping[TableId, Capture], since: int, decoder: Decoder) -> None:
        self._tables, self._since, self._decoder = tables, since, decoder
        self._events: dict[TableId, list[RowsEvent]] = {}
        self._sizes: dict[TableId, int] = {}
        self._keys: dict[TableId, list[pa.Table]] = {}
        self._errors: dict[TableId, CdcError] = {}
        self._newest = 0

    def add(self, event: RowsEvent, newest: int) -> None:
        table, self._newest = event.table, newest
        self._events.setdefault(table, []).append(event)
        self._sizes[table] = self._sizes.get(table, 0) + event.size
        if self._sizes[table] >= _PIECE_BYTES:
            self._decode(table)

    def result(self) -> dict[TableId, pa.Table | CdcError]:
        for table in list(self._events):
            self._decode(table)
        joined = {t: _distinct(pa.concat_tables(keys)) for t, keys in self._keys.items() if keys}
        return {t: keys for t, keys in joined.items() if keys.num_rows} | self._errors

    def _decode(self, table: TableId) -> None:
        events = self._events.pop(table)
        self._sizes[table] = 0
        for _, run in itertools.groupby(events, lambda event: (id(event.map), event.defect is None)):
            try:
                self._keys.setdefault(table, []).extend(self._of(self._tables[table], list(run)))
            except CdcError as e:
                if e.reason is not Reason.SCHEMA_CHANGE_REFUSED and self._newest >= self._since:
                    self._errors.setdefault(table, e)

    def _of(self, table: Capture, events: list[RowsEvent]) -> Iterator[pa.Table]:
        for decoded in batches(table, events, [0] * len(events), self._decoder):
            # a key with a zero or partial date is in no target
            yield _distinct(pa.table(decoded.batch.select(list(table.key) or [KIND])).drop_null())


def _distinct(keys: pa.Table) -> pa.Table:
    names = keys.column_names
    return keys.group_by(names).aggregate([]).select(names).cast(keys.schema)
