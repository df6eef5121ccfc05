"""Raw events to facts, without I/O.

- Rule 1: bytes in, facts out. One whole event per `feed`; the facts of a compressed transaction are
  generated while they are consumed, and must be consumed before the next `feed`. What a fact holds
  is owned by it.
- Rule 2: what is not understood is an error, never skipped, unless the server marked the event as
  ignorable. An error that concerns one table travels as the `defect` of its rows; only what makes
  the binlog itself unreadable is raised.
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
down; before each file that the server sends it makes up another ROTATE. Where only that one comes,
the server crashed. MariaDB with binlog_alter_two_phase writes an ALTER twice, when it starts and
when it is committed or rolled back: it is a statement where it is committed, and the rows before
that have the old definition.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Literal, NamedTuple

from cdcsync_core.errors import DecodeError, Reason, fail
from cdcsync_core.gtid import Gtid
from cdcsync_core.position import LogOffset, TransactionId
from cdcsync_core.table import TableId
from cdcsync_spark.wire.binlog import events
from cdcsync_spark.wire.binlog.compression import unpack_payload
from cdcsync_spark.wire.binlog.facts import (
    Fact,
    FileLeft,
    Incident,
    Progress,
    RollbackTo,
    Savepoint,
    TransactionBegin,
    TransactionEnd,
    TransactionRollback,
    XaEnd,
    XaPrepare,
)
from cdcsync_spark.wire.binlog.tables import ROWS, MappedTables
from cdcsync_spark.wire.columns.cursor import Buffer
from cdcsync_spark.wire.sql.text import Statement
from cdcsync_spark.wire.sql.tokens import Session

Flavor = Literal["mysql", "mariadb"]

_HEADER = struct.Struct("<IBIIIH")
_CRC = struct.Struct("<I")
_CHECKSUM = _CRC.size
_IGNORABLE, _IN_USE = 0x80, 0x01
_QUERY, _ROTATE, _FORMAT, _LOAD_QUERY, _PAYLOAD, _QUERY_COMPRESSED = 2, 4, 15, 18, 40, 165

_NAME = r"(?:`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|\S+)"
_SAVEPOINT = re.compile(rf"SAVEPOINT\s+({_NAME})", re.I)
_RELEASE = re.compile(rf"RELEASE\s+SAVEPOINT\s+{_NAME}", re.I)
_ROLLBACK_TO = re.compile(rf"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?({_NAME})", re.I)
_XA = re.compile(r"XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+(.*)", re.I | re.S)


class _Inside(Enum):
    """Where in a transaction the log stands."""

    NOTHING = auto()
    OPENED = auto()  # MySQL: after the GTID, before BEGIN or the only statement
    STATEMENT = auto()  # MariaDB: one statement follows and ends it
    TRANSACTION = auto()


class _Header(NamedTuple):
    """The 19 bytes that begin every event."""

    timestamp: int
    kind: int
    server: int
    length: int
    log_pos: int
    flags: int


def _header(event: memoryview) -> _Header:
    if len(event) < _HEADER.size:
        raise DecodeError(f"an event of {len(event)} bytes", needed=f"at least {_HEADER.size}")
    header = tuple.__new__(_Header, _HEADER.unpack_from(event))  # without the Python of its constructor
    if header.length != len(event):
        raise DecodeError(f"an event of {len(event)} bytes that says it has {header.length}")
    return header


class EventParser:
    """The state of one binlog dump.

    `file` is the log file where it begins (found out from the first event otherwise); `mark` is
    MariaDB's GTID position there, empty if unknown: then marks are empty up to the next file, which
    begins with its own. Up to the place `known`, where an event must end, there are no facts.
    `wanted` says whose rows are emitted.
    """

    def __init__(
        self,
        flavor: Flavor,
        file: str = "",
        mark: str = "",
        *,
        known: LogOffset | None = None,
        wanted: Callable[[TableId], bool] = lambda _: True,
    ) -> None:
        self._mariadb = flavor == "mariadb"
        self._file = file
        self._offset = 0
        self._known = known
        self._checksum = False
        self._version = 0
        self._inside = _Inside.NOTHING
        #: the statement that follows is only begun, or was taken back
        self._without_effect = False
        self._gtid: Gtid | None = None
        self._own_domain = 0
        self._own_mark = ""
        self._committed = 0
        self._stopped = False
        self._domains: dict[int, str] | None = _parse_mark(mark) if mark else None
        self._tables = MappedTables(self._mariadb, wanted)

    def feed(self, event: Buffer) -> Iterable[Fact]:
        """The facts of one event: header, body and, where the log has them, checksum. Raises
        DecodeError."""
        try:
            view = memoryview(event)
            header = _header(view)
            if self._checksum and header.kind not in _CHECKED_APART:
                end = header.length - _CHECKSUM
                if end < _HEADER.size or zlib.crc32(view[:end]) != _CRC.unpack_from(view, end)[0]:
                    raise _damaged(header)
            else:
                end = self._checked(header, view)
            if header.log_pos and header.kind not in _PLACED_BY_BODY:
                if header.log_pos >= self._offset:
                    self._offset = header.log_pos
                else:
                    self._move(header)
            handler = _HANDLERS.get(header.kind, EventParser._other)
            found = handler(self, header, view[_HEADER.size : end])
            return found if self._known is None else self._passed_over(self._known, found)
        except DecodeError as e:
            raise self._placed(e) from None

    def _passed_over(self, known: LogOffset, found: Iterable[Fact]) -> Iterable[Fact]:
        for _ in found:
            continue  # some are made as they are asked for, and the parser's state with them
        here = self._here()
        if here == known:
            self._known = None
        elif not known.covers(here):
            raise fail(
                Reason.POSITION_LOST,
                f"no event of the log ends at {known}: the next one ends at {here}",
                needed="the log that the tables were read from",
                remedy="read the tables again (spec.resnapshot)",
            )
        return ()

    def _placed(self, e: DecodeError) -> DecodeError:
        at = e.position or f"{self._file}:{self._offset}"
        return DecodeError(e.found, needed=e.needed, table=e.table, column=e.column, position=at)

    def _move(self, header: _Header) -> None:
        """To the event's end. Made up events have none, rotations and heartbeats say it in their
        bodies."""
        place = _continued(self._offset, header.log_pos)
        if place >> 32 != self._offset >> 32 and place - self._offset > header.length:
            raise DecodeError(f"an event that ends at {header.log_pos}, before the one before it")
        self._offset = place

    def _other(self, header: _Header, _: memoryview) -> Iterable[Fact]:
        if header.kind in _SILENT or header.flags & _IGNORABLE:
            return ()
        raise DecodeError(
            f"an event of the unknown kind {header.kind}", needed="a kind that MySQL 9 or MariaDB 11 documents"
        )

    def _checked(self, header: _Header, event: memoryview) -> int:
        """Where the body ends, of the events that come before it is known whether there are
        checksums, and of logs without."""
        end = len(event) - _CHECKSUM
        if header.kind == _FORMAT:
            self._checksum = events.parse_checksum(event[_HEADER.size :])
        if header.kind == _ROTATE and not header.log_pos:
            # made up by the server while it connects or changes files: no format description says
            # yet whether it has a checksum
            return end if end > _HEADER.size and _crc(event, end) else len(event)
        if not self._checksum:
            return end if header.kind == _FORMAT else len(event)
        if header.kind == _FORMAT and header.flags & _IN_USE:
            # the checksum was computed before the server marked the file as open
            closed = bytearray(event)
            closed[17] &= ~_IN_USE & 0xFF
            event = memoryview(closed)
        if end < _HEADER.size or not _crc(event, end):
            raise _damaged(header)
        return end

    # --- places
    # ---------------------------------------------------------------------------------------------

    def _here(self) -> LogOffset:
        try:
            return LogOffset(self._file, self._offset)
        except ValueError as e:
            raise DecodeError(str(e)) from None

    def _format(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        self._tables.forget()
        self._version = events.parse_version(body)
        return self._cut(header) if header.log_pos else ()

    def _cut(self, header: _Header) -> list[Fact]:
        if self._inside is _Inside.NOTHING:
            return []
        self._inside = _Inside.NOTHING
        return [TransactionRollback(None, float(header.timestamp), self._mark())]

    def _rotate(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        place = events.parse_rotate(body)
        found = self._cut(header) if place.file != self._file else []
        left, stopped = self._file, self._stopped
        if (place.file, place.offset) != (self._file, self._offset):
            self._file, self._offset = place
            self._stopped = False
            if left and not header.log_pos and not stopped and _is_before(left, self._here()):
                found.append(FileLeft(left, place.file))
            found.append(Progress(self._here(), float(header.timestamp) if header.timestamp else None))
        return found

    def _stop(self, header: _Header, _: memoryview) -> Iterable[Fact]:
        self._stopped = True
        return ()

    def _heartbeat(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        place = events.parse_heartbeat_v2(body) if header.kind == 41 else events.parse_heartbeat(body, header.log_pos)
        if place.file != self._file or self._inside is not _Inside.NOTHING:
            return ()
        whole = place.offset >> 32 > 0
        offset = place.offset if whole else _continued(self._offset, place.offset)
        if offset < self._offset or (not whole and offset - self._offset >= _FAR):
            return ()  # one from behind says nothing new; taken for one beyond 4 GiB it would skip what is there
        self._offset = offset
        return [Progress(self._here(), float(header.timestamp) if header.timestamp else None, waits=True)]

    # --- transactions
    # -------------------------------------------------------------------------------------------

    def _begin(
        self, inside: _Inside, gtid: Gtid | None = None, domain: int = 0, mark: str = "", committed: int = 0
    ) -> list[Fact]:
        if self._inside is not _Inside.NOTHING:
            raise DecodeError("a transaction begins inside another one")
        self._inside, self._gtid, self._committed = inside, gtid, committed
        self._own_domain, self._own_mark = domain, mark
        return [TransactionBegin(gtid, mark)]

    def _end(self, header: _Header, rolled_back: bool = False) -> list[Fact]:
        if self._inside is _Inside.NOTHING:
            raise DecodeError("a transaction ends that has not begun")
        self._inside = _Inside.NOTHING
        if self._domains is not None and self._own_mark:
            self._domains[self._own_domain] = self._own_mark
        timestamp = self._committed / 1e6 if self._committed else float(header.timestamp)
        kind = TransactionRollback if rolled_back else TransactionEnd
        return [kind(TransactionId(self._here(), self._gtid), timestamp, self._mark())]

    def _mark(self) -> str:
        return ",".join(self._domains[d] for d in sorted(self._domains)) if self._domains else ""

    def _gtid_event(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        parsed = (
            events.parse_tagged_gtid(body)
            if header.kind == 42
            else events.parse_gtid(body, anonymous=header.kind == 34)
        )
        return self._begin(_Inside.OPENED, parsed.gtid, committed=parsed.committed)

    def _mariadb_gtid(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        gtid = events.parse_mariadb_gtid(body, header.server)
        inside = _Inside.STATEMENT if gtid.flags & events.STANDALONE else _Inside.TRANSACTION
        self._without_effect = gtid.alter in (events.START_ALTER, events.ROLLBACK_ALTER)
        return self._begin(inside, domain=gtid.domain, mark=str(gtid))

    def _gtid_list(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        self._domains = events.parse_gtid_list(body)
        return [Progress(self._here(), mark=self._mark())] if header.log_pos else ()

    def _xid(self, header: _Header, _: memoryview) -> Iterable[Fact]:
        return self._end(header)

    def _xa_prepare(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        xid, one_phase = events.parse_xa_prepare(body)
        ended = self._end(header)
        return ended if one_phase else [XaPrepare(xid), *ended]

    def _query(self, header: _Header, body: memoryview) -> Iterable[Fact]:
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
        if match := _ROLLBACK_TO.fullmatch(sql):
            return [RollbackTo(_savepoint(match[1]))]
        if match := _SAVEPOINT.fullmatch(sql):
            return [Savepoint(_savepoint(match[1]))]
        if match := _XA.fullmatch(sql):
            return self._xa(header, match[1].upper(), match[2].strip())
        return () if _RELEASE.fullmatch(sql) else self._statement(header, query)

    def _opened(self) -> Iterable[Fact]:
        """BEGIN."""
        if self._inside is _Inside.NOTHING:
            return self._begin(_Inside.TRANSACTION)
        if self._inside is _Inside.OPENED:
            self._inside = _Inside.TRANSACTION
        return ()

    def _xa(self, header: _Header, verb: str, xid: str) -> Iterable[Fact]:
        if verb in ("START", "BEGIN"):
            self._inside = _Inside.TRANSACTION
        elif verb in ("COMMIT", "ROLLBACK"):
            return [XaEnd(xid, verb == "COMMIT"), *self._end(header)]
        return ()

    def _statement(self, header: _Header, query: events.Query) -> Iterable[Fact]:
        alone = self._inside is not _Inside.TRANSACTION
        found = self._begin(_Inside.STATEMENT) if self._inside is _Inside.NOTHING else []
        if not (alone and self._without_effect):
            session = Session(query.sql_mode, query.charset, self._mariadb, self._version)
            found.append(Statement(query.database, query.sql, session))
        if alone and _opens_transaction(query.sql):
            self._inside = _Inside.TRANSACTION
        elif alone:
            found += self._end(header)
        return found

    def _payload(self, _: _Header, body: memoryview) -> Iterator[Fact]:
        """A compressed transaction, which may be larger than memory: its facts are generated."""
        try:
            for event in unpack_payload(body):
                inner = _header(memoryview(event))
                if inner.kind not in _IN_PAYLOAD:
                    raise DecodeError(f"an event of kind {inner.kind} in a compressed transaction")
                handler = _HANDLERS.get(inner.kind, EventParser._other)
                yield from handler(self, inner, memoryview(event)[_HEADER.size :])
        except DecodeError as e:
            raise self._placed(e) from None

    def _incident(self, _: _Header, body: memoryview) -> Iterable[Fact]:
        return [Incident(events.parse_incident(body))]

    # --- rows
    # ---------------------------------------------------------------------------------------------

    def _table_map(self, _: _Header, body: memoryview) -> Iterable[Fact]:
        self._tables.learn(body, self._file, self._offset)
        return ()

    def _rows(self, header: _Header, body: memoryview) -> Iterable[Fact]:
        if self._inside is not _Inside.TRANSACTION:
            raise DecodeError("rows outside a transaction", needed="a start where a transaction begins")
        rows = self._tables.rows(header.kind, header.length, body)
        return () if rows is None else (rows,)


def _crc(event: memoryview, end: int) -> bool:
    return zlib.crc32(event[:end]) == _CRC.unpack_from(event, end)[0]


def _damaged(header: _Header) -> DecodeError:
    return DecodeError(f"an event of kind {header.kind} whose CRC32 is wrong", needed="an undamaged binlog and network")


#: a heartbeat of 32 bits that seems to lead so far ahead comes from behind
_FAR = 1 << 31


def _continued(offset: int, log_pos: int) -> int:
    """The next 64-bit place from `offset` on whose low 32 bits are `log_pos`."""
    place = offset & ~0xFFFFFFFF | log_pos
    return place if place >= offset else place + (1 << 32)


def _parse_mark(mark: str) -> dict[int, str]:
    return {int(gtid.split("-")[0]): gtid for gtid in mark.split(",")}


def _is_before(file: str, place: LogOffset) -> bool:
    return file != place.file and LogOffset(file, 4).number < place.number


def _savepoint(name: str) -> str:
    """The servers compare savepoints without case."""
    quote = name[0]
    return (name[1:-1].replace(quote * 2, quote) if quote in '`"' and len(name) > 1 else name).casefold()


def _opens_transaction(sql: str) -> bool:
    """MySQL logs CREATE TABLE ... SELECT as `CREATE TABLE ... START TRANSACTION`, rows and an
    XID."""
    return sql.rstrip().upper().endswith("START TRANSACTION")


_PLACED_BY_BODY = frozenset({_ROTATE, 27, 41})
_CHECKED_APART = frozenset({_ROTATE, _FORMAT})
# INTVAR, APPEND_BLOCK, RAND, USER_VAR, BEGIN_LOAD_QUERY, IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS,
# TRANSACTION_CONTEXT, VIEW_CHANGE; MariaDB: ANNOTATE_ROWS, BINLOG_CHECKPOINT, START_ENCRYPTION (the
# dump is sent decrypted, and its checksums prove it)
_SILENT = frozenset({5, 9, 13, 14, 17, 28, 29, 35, 36, 37, 160, 161, 164})
_Handler = Callable[[EventParser, _Header, memoryview], Iterable[Fact]]
_HANDLERS: dict[int, _Handler] = {
    _QUERY: EventParser._query,
    3: EventParser._stop,
    _ROTATE: EventParser._rotate,
    _FORMAT: EventParser._format,
    16: EventParser._xid,
    _LOAD_QUERY: EventParser._query,
    19: EventParser._table_map,
    26: EventParser._incident,
    27: EventParser._heartbeat,
    33: EventParser._gtid_event,
    34: EventParser._gtid_event,
    38: EventParser._xa_prepare,
    _PAYLOAD: EventParser._payload,
    41: EventParser._heartbeat,
    42: EventParser._gtid_event,
    162: EventParser._mariadb_gtid,
    163: EventParser._gtid_list,
    _QUERY_COMPRESSED: EventParser._query,
    **dict.fromkeys(ROWS, EventParser._rows),
}
_IN_PAYLOAD = frozenset({2, 5, 13, 14, 16, 17, 9, 18, 19, 28, 29, 36, 37, 38, *ROWS})
