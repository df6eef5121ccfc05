"""Raw events to facts, without I/O.

- Rule 1: bytes in, facts out. One whole event per `feed`; the facts of a compressed transaction are
  generated while they are consumed, and must be consumed before the next `feed`. What a fact holds
  is owned by it.
- Rule 2: what is not understood is an error, never skipped, even where the server marked the event
  as ignorable: MariaDB marks parts of rows so. An error that concerns one table travels as the
  `defect` of its rows; only what makes the binlog itself unreadable is raised.
- Rule 3: rows of tables that are not wanted cost a table lookup and nothing else.
- Rule 4: a transaction of one row is five events, so an event costs few steps: no generator, no
  cursor where places are fixed.

Theory of operation. A transaction is opened by a GTID event (MySQL: GTID or ANONYMOUS_GTID, then a
BEGIN query or one statement; MariaDB: GTID alone, or with the flag STANDALONE one statement), holds
TABLE_MAP and rows events, and ends with XID, a COMMIT or ROLLBACK query, an XA_PREPARE, or after
the one statement. The place of its end comes from the header of its last event, whose 32 bits are
continued to 64 by counting. The events inside a compressed transaction have no place of their own:
the payload event's counts. A file that ends inside a transaction was cut by a crash: the
transaction did not happen. A file ends with a ROTATE event, or with STOP where the server was shut
down; before each file the server sends an artificial ROTATE. Where only that one comes, the server
crashed. MariaDB with binlog_alter_two_phase writes an ALTER twice, when it starts and
when it is committed or rolled back: it is a statement where it is committed, and the rows before
that have the old definition.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Literal

from cdcsync_core.errors import DecodeError, Reason, fail
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.position import LogOffset, Place, TransactionId, file_number
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog.event import events, sql_forms
from cdcsync_spark.wire.binlog.event.compression import OversizedEvent, unpack_payload
from cdcsync_spark.wire.binlog.event.event_type import IN_PAYLOAD, WITHOUT_FACTS, EventType
from cdcsync_spark.wire.binlog.event.header import (
    CRC,
    HEADER,
    KIND,
    Header,
    body_end,
    continued,
    damaged,
    read_header,
    waited_at,
)
from cdcsync_spark.wire.binlog.facts import (
    Fact,
    FileLeft,
    Incident,
    Progress,
    RollbackTo,
    Savepoint,
    ServerStarted,
    TransactionBegin,
    TransactionEnd,
    TransactionRollback,
    XaEnd,
    XaPrepare,
)
from cdcsync_spark.wire.binlog.tables import ROWS, MappedTables
from cdcsync_spark.wire.columns.cursor import Buffer
from cdcsync_spark.wire.sql.syntax.text import Statement, Thread
from cdcsync_spark.wire.sql.syntax.tokens import Session, Started

Flavor = Literal["mysql", "mariadb"]

_CHECKSUM = CRC.size
_THREAD_SPECIFIC = 0x4
_QUERY, _ROTATE, _FORMAT = EventType.QUERY.value, EventType.ROTATE.value, EventType.FORMAT_DESCRIPTION.value
_LOAD_QUERY, _QUERY_COMPRESSED = EventType.EXECUTE_LOAD_QUERY.value, EventType.QUERY_COMPRESSED.value
_ANONYMOUS_GTID, _GTID_TAGGED = EventType.ANONYMOUS_GTID.value, EventType.GTID_TAGGED.value
_HEARTBEAT, _HEARTBEAT_V2 = EventType.HEARTBEAT.value, EventType.HEARTBEAT_V2.value


class _Inside(Enum):
    """The position relative to a transaction."""

    NOTHING = auto()
    OPENED = auto()  # MySQL: after the GTID, before BEGIN or the only statement
    STATEMENT = auto()  # MariaDB: one statement follows and ends it
    TRANSACTION = auto()


class EventParser:
    """The state of one binlog dump.

    `file` is the binlog file where it begins (else known from the first event); `gtid_pos` is
    MariaDB's GTID position there, empty if unknown: then it stays empty up to the next file, which
    begins with its own. Up to the place `after`, where an event must end, there are no facts.
    `is_wanted` says whose rows are emitted. Places name `binlog`, where it is given.
    """

    def __init__(
        self,
        flavor: Flavor,
        file: str = "",
        gtid_pos: str = "",
        *,
        after: LogOffset | None = None,
        is_wanted: Callable[[TableId], bool] = lambda _: True,
        binlog: BinlogId = "",
    ) -> None:
        self.mariadb = flavor == "mariadb"
        self._binlog = binlog
        self._file = file
        self._offset = 0
        self._known = after
        self._checksum = False
        self._version = 0
        self._inside = _Inside.NOTHING
        #: the statement that follows is only begun, or was taken back
        self._without_effect = False
        self._gtid: Gtid | None = None
        self._own_domain = 0
        self._own_gtid = ""
        self._committed = 0
        self._stopped = False
        self._domains: dict[int, str] | None = events.parse_gtid_pos(gtid_pos) if gtid_pos else None
        self.tables = MappedTables(self.mariadb, is_wanted)

    def feed(self, event: Buffer) -> Iterable[Fact]:
        """The facts of one event, which has its checksum if the binlog has them. DecodeError."""
        try:
            view = memoryview(event)
            header = read_header(view)
            if self._checksum and header.kind not in _CHECKED_APART:
                end = header.length - _CHECKSUM
                if end < HEADER.size or zlib.crc32(view[:end]) != CRC.unpack_from(view, end)[0]:
                    raise damaged(header)
            else:
                if header.kind == _FORMAT:
                    self._checksum = events.parse_checksum(view[HEADER.size :])
                end = body_end(header, view, self._checksum)
            if header.log_pos and header.kind not in _PLACED_BY_BODY:
                if header.log_pos >= self._offset:
                    self._offset = header.log_pos
                else:
                    self._move(header)
            handler = _HANDLERS.get(header.kind, EventParser._other)
            facts = handler(self, header, view[HEADER.size : end])
            return facts if self._known is None else self._passed_over(self._known, facts)
        except DecodeError as e:
            raise self._placed(e) from None

    def _passed_over(self, after: LogOffset, facts: Iterable[Fact]) -> Iterable[Fact]:
        for _ in facts:
            continue  # some are generated on demand, and the parser's state with them
        here = self._here()
        if here == after:
            self._known = None
        elif not after.covers(here):
            raise fail(
                Reason.POSITION_LOST,
                f"no event of the binlog ends at {after}: the next one ends at {here}",
                needed="the binlog that the tables were read from",
                remedy=RESNAPSHOT_ALL,
            )
        return ()

    def _placed(self, e: DecodeError) -> DecodeError:
        return e.placed(position=f"{self._file}:{self._offset}")

    def _move(self, header: Header) -> None:
        """To the event's end. Artificial events have none, rotations and heartbeats have it in
        their bodies."""
        place = continued(self._offset, header.log_pos)
        if place >> 32 != self._offset >> 32 and place - self._offset > header.length:
            raise DecodeError(f"an event that ends at {header.log_pos}, before the one before it")
        self._offset = place

    def _other(self, header: Header, body: memoryview) -> Iterable[Fact]:
        if header.kind in WITHOUT_FACTS or (not self.mariadb and events.is_padding(header.kind, body)):
            return ()
        raise events.unread_kind(header.kind)

    # -- places

    @property
    def outside(self) -> LogOffset | None:
        """Where the reader is; None inside a transaction, or before the first event."""
        return self._here() if self._inside is _Inside.NOTHING and self._file and self._offset else None

    def _here(self) -> LogOffset:
        try:
            if self._binlog:
                return Place(self._file, self._offset, self._binlog)
            return LogOffset(self._file, self._offset)
        except ValueError as e:
            raise DecodeError(str(e)) from None

    def _format(self, header: Header, body: memoryview) -> Iterable[Fact]:
        self.tables.forget()
        self._version = events.parse_version(body)
        if not header.log_pos:
            return ()
        return [*self._cut(header), *([ServerStarted(header.server)] if events.has_started(body) else ())]

    def _cut(self, header: Header) -> list[Fact]:
        if self._inside is _Inside.NOTHING:
            return []
        self._inside = _Inside.NOTHING
        return [TransactionRollback(None, float(header.timestamp), self._gtid_pos())]

    def _rotate(self, header: Header, body: memoryview) -> Iterable[Fact]:
        place = events.parse_rotate(body)
        facts = self._cut(header) if place.file != self._file else []
        left, stopped = self._file, self._stopped
        if (place.file, place.offset) != (self._file, self._offset):
            self._file, self._offset = place
            self._stopped = False
            if left and not header.log_pos and not stopped and _is_before(left, self._here()):
                facts.append(FileLeft(left, place.file))
            facts.append(Progress(self._here(), float(header.timestamp) if header.timestamp else None))
        return facts

    def _stop(self, header: Header, _: memoryview) -> Iterable[Fact]:
        self._stopped = True
        return ()

    def _heartbeat(self, header: Header, body: memoryview) -> Iterable[Fact]:
        place = (
            events.parse_heartbeat_v2(body)
            if header.kind == _HEARTBEAT_V2
            else events.parse_heartbeat(body, header.log_pos)
        )
        if place.file != self._file or self._inside is not _Inside.NOTHING:
            return ()
        offset = waited_at(self._offset, place.offset)
        if offset is None:
            return ()
        self._offset = offset
        return [Progress(self._here(), float(header.timestamp) if header.timestamp else None, waits=True)]

    # -- transactions

    def _begin(
        self, inside: _Inside, gtid: Gtid | None = None, domain: int = 0, mariadb_gtid: str = "", committed: int = 0
    ) -> list[Fact]:
        if self._inside is not _Inside.NOTHING:
            raise DecodeError("a transaction begins inside another one")
        self._inside, self._gtid, self._committed = inside, gtid, committed
        self._own_domain, self._own_gtid = domain, mariadb_gtid
        return [TransactionBegin(gtid, mariadb_gtid)]

    def _end(self, header: Header, rolled_back: bool = False) -> list[Fact]:
        if self._inside is _Inside.NOTHING:
            raise DecodeError("a transaction ends that has not begun")
        self._inside = _Inside.NOTHING
        if self._domains is not None and self._own_gtid:
            self._domains[self._own_domain] = self._own_gtid
        timestamp = self._committed / 1e6 if self._committed else float(header.timestamp)
        kind = TransactionRollback if rolled_back else TransactionEnd
        return [kind(TransactionId(self._here(), self._gtid, self._own_gtid), timestamp, self._gtid_pos())]

    def _gtid_pos(self) -> str:
        return ",".join(self._domains[d] for d in sorted(self._domains)) if self._domains else ""

    def _gtid_event(self, header: Header, body: memoryview) -> Iterable[Fact]:
        if header.kind == _GTID_TAGGED:
            parsed = events.parse_tagged_gtid(body)
        else:
            parsed = events.parse_gtid(body, anonymous=header.kind == _ANONYMOUS_GTID)
        return self._begin(_Inside.OPENED, parsed.gtid, committed=parsed.committed)

    def _mariadb_gtid(self, header: Header, body: memoryview) -> Iterable[Fact]:
        gtid = events.parse_mariadb_gtid(body, header.server)
        inside = _Inside.STATEMENT if gtid.flags & events.STANDALONE else _Inside.TRANSACTION
        self._without_effect = gtid.alter in (events.START_ALTER, events.ROLLBACK_ALTER)
        return self._begin(inside, domain=gtid.domain, mariadb_gtid=str(gtid))

    def _gtid_list(self, header: Header, body: memoryview) -> Iterable[Fact]:
        self._domains = events.parse_gtid_list(body)
        return [Progress(self._here(), gtid_pos=self._gtid_pos())] if header.log_pos else ()

    def _xid(self, header: Header, _: memoryview) -> Iterable[Fact]:
        return self._end(header)

    def _xa_prepare(self, header: Header, body: memoryview) -> Iterable[Fact]:
        xid, one_phase = events.parse_xa_prepare(body)
        ended = self._end(header)
        return ended if one_phase else [XaPrepare(xid), *ended]

    def _query(self, header: Header, body: memoryview) -> Iterable[Fact]:
        if header.kind == _QUERY and events.is_begin(body):
            return self._opened()
        query = events.parse_query(
            body, extra=13 if header.kind == _LOAD_QUERY else 0, compressed=header.kind == _QUERY_COMPRESSED
        )
        sql = query.sql.strip()
        word = sql.upper()
        if word == "BEGIN":
            return self._opened()
        if word in ("COMMIT", "ROLLBACK"):
            return self._end(header, rolled_back=word == "ROLLBACK")
        if match := sql_forms.ROLLBACK_TO.fullmatch(sql):
            return [RollbackTo(sql_forms.savepoint_name(match[1]))]
        if match := sql_forms.SAVEPOINT.fullmatch(sql):
            return [Savepoint(sql_forms.savepoint_name(match[1]))]
        if match := sql_forms.XA.fullmatch(sql):
            return self._xa(header, match[1].upper(), match[2].strip())
        return () if sql_forms.RELEASE.fullmatch(sql) else self._statement(header, query)

    def _opened(self) -> Iterable[Fact]:
        if self._inside is _Inside.NOTHING:
            return self._begin(_Inside.TRANSACTION)
        if self._inside is _Inside.OPENED:
            self._inside = _Inside.TRANSACTION
        return ()

    def _xa(self, header: Header, verb: str, xid: str) -> Iterable[Fact]:
        if verb in ("START", "BEGIN"):
            self._inside = _Inside.TRANSACTION
        elif verb in ("COMMIT", "ROLLBACK"):
            return [XaEnd(xid, verb == "COMMIT"), *self._end(header)]
        return ()

    def _statement(self, header: Header, query: events.Query) -> Iterable[Fact]:
        alone = self._inside is not _Inside.TRANSACTION
        facts = self._begin(_Inside.STATEMENT) if self._inside is _Inside.NOTHING else []
        started = Started(header.timestamp, query.microseconds, query.time_zone)
        mode, charset, literals = query.sql_mode, query.charset, query.connection
        session = Session(mode, charset, self.mariadb, self._version, started, literals, query.timestamps)
        if not (alone and self._without_effect):
            thread = Thread(header.server, query.thread, bool(header.flags & _THREAD_SPECIFIC))
            facts.append(Statement(query.database, query.sql, session, thread))
        if alone and sql_forms.opens_transaction(query.sql, session):
            self._inside = _Inside.TRANSACTION
        elif alone:
            facts += self._end(header)
        return facts

    def _payload(self, _: Header, body: memoryview) -> Iterator[Fact]:
        """A compressed transaction, which may be larger than memory: its facts are generated."""
        try:
            for event in unpack_payload(body):
                yield from self._oversized(event) if isinstance(event, OversizedEvent) else self._inner(event)
        except DecodeError as e:
            raise self._placed(e) from None

    def _inner(self, event: bytes) -> Iterable[Fact]:
        handler = _HANDLERS.get(_kind_in_payload(event), EventParser._other)
        view = memoryview(event)
        return handler(self, read_header(view), view[HEADER.size :])

    def _oversized(self, event: OversizedEvent) -> Iterable[Fact]:
        """Rows that are not unpacked are a defect of their table; a statement may be about any."""
        kind = _kind_in_payload(event.beginning)
        if kind in WITHOUT_FACTS:
            return ()
        if kind not in ROWS:
            raise event.refusal
        rows = self.tables.refused(kind, event.beginning[HEADER.size :], event.refusal)
        return () if rows is None else (rows,)

    def _incident(self, _: Header, body: memoryview) -> Iterable[Fact]:
        return [Incident(events.parse_incident(body))]

    # -- plain transactions

    @property
    def between(self) -> LogOffset | None:
        """Where the parser stands between transactions, if plain ones that follow may be read as
        columns; None if the events must be fed. Raises DecodeError."""
        usual = self._checksum and self._known is None and self._offset < _NARROW
        return self._here() if usual and self._inside is _Inside.NOTHING else None

    def pass_plain(self, offset: int, maps: Iterable[bytes], gtids: Mapping[int, str]) -> str:
        """Plain transactions were read up to `offset`, with the TABLE_MAPs `maps`; `gtids` are
        MariaDB's last ones by their domains. MariaDB's GTID position, empty if unknown."""
        for body in maps:
            self.tables.learn(body, self._file, offset)
        self._offset, self._without_effect = offset, self._without_effect and not self.mariadb
        if self._domains is not None:
            self._domains |= gtids
        return self._gtid_pos()

    # -- rows

    def _table_map(self, _: Header, body: memoryview) -> Iterable[Fact]:
        self.tables.learn(body, self._file, self._offset)
        return ()

    def _rows(self, header: Header, body: memoryview) -> Iterable[Fact]:
        if self._inside is not _Inside.TRANSACTION:
            raise DecodeError("rows outside a transaction", needed="a start where a transaction begins")
        rows = self.tables.rows(header.kind, header.length, body)
        return () if rows is None else (rows,)


#: places beyond 32 bits are continued event by event
_NARROW = 1 << 32


def _kind_in_payload(event: bytes) -> int:
    kind = event[KIND]
    if kind not in _IN_PAYLOAD:
        raise DecodeError(f"an event of kind {kind} in a compressed transaction")
    return kind


def _is_before(file: str, place: LogOffset) -> bool:
    return file != place.file and file_number(file) < place.number


_PLACED_BY_BODY = frozenset({_ROTATE, _HEARTBEAT, _HEARTBEAT_V2})
_CHECKED_APART = frozenset({_ROTATE, _FORMAT})
_Handler = Callable[[EventParser, Header, memoryview], Iterable[Fact]]
_BY_TYPE: dict[EventType, _Handler] = {
    EventType.QUERY: EventParser._query,
    EventType.STOP: EventParser._stop,
    EventType.ROTATE: EventParser._rotate,
    EventType.FORMAT_DESCRIPTION: EventParser._format,
    EventType.XID: EventParser._xid,
    EventType.EXECUTE_LOAD_QUERY: EventParser._query,
    EventType.TABLE_MAP: EventParser._table_map,
    EventType.INCIDENT: EventParser._incident,
    EventType.HEARTBEAT: EventParser._heartbeat,
    EventType.GTID: EventParser._gtid_event,
    EventType.ANONYMOUS_GTID: EventParser._gtid_event,
    EventType.XA_PREPARE: EventParser._xa_prepare,
    EventType.TRANSACTION_PAYLOAD: EventParser._payload,
    EventType.HEARTBEAT_V2: EventParser._heartbeat,
    EventType.GTID_TAGGED: EventParser._gtid_event,
    EventType.MARIADB_GTID: EventParser._mariadb_gtid,
    EventType.GTID_LIST: EventParser._gtid_list,
    EventType.QUERY_COMPRESSED: EventParser._query,
}
_HANDLERS: dict[int, _Handler] = {t.value: h for t, h in _BY_TYPE.items()} | dict.fromkeys(ROWS, EventParser._rows)
_IN_PAYLOAD = ROWS.keys() | IN_PAYLOAD
