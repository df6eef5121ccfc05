"""Raw events to facts, without I/O.

Rule 1: bytes in, facts out. One whole event per `feed`; its facts are generated while they are consumed, and must be
        consumed before the next `feed`. What a fact holds is owned by it.
Rule 2: what is not understood is an error, never skipped, unless the server marked the event as ignorable. An error that
        concerns one table travels as the `defect` of its rows; only what makes the log itself unreadable is raised.
Rule 3: rows of tables that are not wanted cost a table lookup and nothing else.

Theory of operation. A transaction is opened by a GTID event (MySQL: GTID or ANONYMOUS_GTID, then a BEGIN query or one
statement; MariaDB: GTID alone, or with the flag STANDALONE one statement), holds TABLE_MAP and rows events, and ends with XID, a
COMMIT or ROLLBACK query, an XA_PREPARE, or after the one statement. The place of its end comes from the header of its last event, whose 32
bits are continued to 64 by counting. The events inside a compressed transaction have no place of their own: the payload event's counts.
A file that ends inside a transaction was cut by a crash: the transaction did not happen.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Literal

from cdcsync_core.errors import DecodeError
from cdcsync_core.gtid import Gtid
from cdcsync_core.position import LogOffset, TransactionId
from cdcsync_core.table import TableId
from cdcsync_spark.wire import events
from cdcsync_spark.wire.compression import unpack_payload
from cdcsync_spark.wire.cursor import Buffer
from cdcsync_spark.wire.facts import (
    Fact,
    Incident,
    Progress,
    RollbackTo,
    Savepoint,
    Statement,
    TransactionBegin,
    TransactionEnd,
    TransactionRollback,
    XaEnd,
    XaPrepare,
)
from cdcsync_spark.wire.tables import ROWS, MappedTables

Flavor = Literal["mysql", "mariadb"]

_HEADER = struct.Struct("<IBIIIH")
_CHECKSUM = 4
_IGNORABLE, _IN_USE = 0x80, 0x01
_ROTATE, _FORMAT = 4, 15

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


class _Header:
    """The 19 bytes that begin every event."""

    __slots__ = ("flags", "kind", "length", "log_pos", "server", "timestamp")

    def __init__(self, event: Buffer) -> None:
        if len(event) < _HEADER.size:
            raise DecodeError(f"an event of {len(event)} bytes", needed=f"at least {_HEADER.size}")
        self.timestamp, self.kind, self.server, self.length, self.log_pos, self.flags = _HEADER.unpack_from(event)
        if self.length != len(event):
            raise DecodeError(f"an event of {len(event)} bytes that says it has {self.length}")


class EventParser:
    """The state of one binlog dump.

    `file` is the log file where it begins (found out from the first event otherwise); `mark` is MariaDB's GTID position
    there, empty if unknown: then marks are empty up to the next file, which begins with its own. `wanted` says whose rows are
    emitted.
    """

    def __init__(
        self,
        flavor: Flavor,
        file: str = "",
        mark: str = "",
        *,
        wanted: Callable[[TableId], bool] = lambda _: True,
    ) -> None:
        self._mariadb = flavor == "mariadb"
        self._file = file
        self._offset = 0
        self._checksum = False
        self._inside = _Inside.NOTHING
        self._gtid: Gtid | None = None
        self._own_mark = ""
        self._committed = 0
        self._domains: dict[int, str] | None = _parse_mark(mark) if mark else None
        self._tables = MappedTables(self._mariadb, wanted)

    def feed(self, event: Buffer) -> Iterator[Fact]:
        """The facts of one event: header, body and, where the log has them, checksum. Raises DecodeError."""
        try:
            header = _Header(event)
            body = memoryview(event)[_HEADER.size : self._checked(header, event)]
            self._move(header)
            yield from self._handle(header, body)
        except DecodeError as e:
            if e.position:
                raise
            at = f"{self._file}:{self._offset}"
            raise DecodeError(e.found, needed=e.needed, table=e.table, column=e.column, position=at) from None

    def _move(self, header: _Header) -> None:
        """To the event's end. Made up events have none, rotations and heartbeats say it in their bodies."""
        if not header.log_pos or header.kind in (_ROTATE, *_HEARTBEATS):
            return
        place = _continued(self._offset, header.log_pos)
        if place >> 32 != self._offset >> 32 and place - self._offset > header.length:
            raise DecodeError(f"an event that ends at {header.log_pos}, before the one before it")
        self._offset = place

    def _handle(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        handler = _HANDLERS.get(header.kind)
        if handler:
            yield from handler(self, header, body)
        elif header.kind not in _SILENT and not header.flags & _IGNORABLE:
            raise DecodeError(
                f"an event of the unknown kind {header.kind}", needed="a kind that MySQL 9 or MariaDB 11 documents"
            )

    def _checked(self, header: _Header, event: Buffer) -> int:
        """Where the body ends; the checksum after it is right."""
        end = len(event) - _CHECKSUM
        if header.kind == _FORMAT:
            self._checksum = events.parse_checksum(memoryview(event)[_HEADER.size :])
        if header.kind == _ROTATE and not header.log_pos:
            # made up by the server while it connects or changes files: no format description says yet whether it has a checksum
            return end if end > _HEADER.size and _crc(event, end) else len(event)
        if not self._checksum:
            return end if header.kind == _FORMAT else len(event)
        if header.kind == _FORMAT and header.flags & _IN_USE:
            # the checksum was computed before the server marked the file as open
            event = bytearray(event)
            event[17] &= ~_IN_USE & 0xFF
        if end < _HEADER.size or not _crc(event, end):
            raise DecodeError(
                f"an event of kind {header.kind} whose CRC32 is wrong", needed="an undamaged binlog and network"
            )
        return end

    # --- places -------------------------------------------------------------------------------------------------

    def _here(self) -> LogOffset:
        try:
            return LogOffset(self._file, self._offset)
        except ValueError as e:
            raise DecodeError(str(e)) from None

    def _format(self, header: _Header, _: Buffer) -> Iterator[Fact]:
        self._tables.forget()
        if header.log_pos:
            yield from self._cut(header)

    def _cut(self, header: _Header) -> Iterator[Fact]:
        if self._inside is not _Inside.NOTHING:
            self._inside = _Inside.NOTHING
            yield TransactionRollback(None, float(header.timestamp), self._mark())

    def _rotate(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        place = events.parse_rotate(body)
        if place.file != self._file:
            yield from self._cut(header)
        if (place.file, place.offset) != (self._file, self._offset):
            self._file, self._offset = place
            yield Progress(self._here(), float(header.timestamp) if header.timestamp else None)

    def _heartbeat(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        place = events.parse_heartbeat_v2(body) if header.kind == 41 else events.parse_heartbeat(body, header.log_pos)
        if place.file != self._file or self._inside is not _Inside.NOTHING:
            return
        whole = place.offset >> 32 > 0
        offset = place.offset if whole else _continued(self._offset, place.offset)
        if offset < self._offset or (not whole and offset - self._offset >= _FAR):
            return  # one from behind says nothing new; taken for one beyond 4 GiB it would skip what is there
        self._offset = offset
        yield Progress(self._here(), float(header.timestamp) if header.timestamp else None)

    # --- transactions -------------------------------------------------------------------------------------------

    def _begin(self, inside: _Inside, gtid: Gtid | None = None, mark: str = "", committed: int = 0) -> Iterator[Fact]:
        if self._inside is not _Inside.NOTHING:
            raise DecodeError("a transaction begins inside another one")
        self._inside, self._gtid, self._own_mark, self._committed = inside, gtid, mark, committed
        yield TransactionBegin(gtid, mark)

    def _end(self, header: _Header, rolled_back: bool = False) -> Iterator[Fact]:
        if self._inside is _Inside.NOTHING:
            raise DecodeError("a transaction ends that has not begun")
        self._inside = _Inside.NOTHING
        if self._domains is not None and self._own_mark:
            self._domains[int(self._own_mark.split("-")[0])] = self._own_mark
        timestamp = self._committed / 1e6 if self._committed else float(header.timestamp)
        kind = TransactionRollback if rolled_back else TransactionEnd
        yield kind(TransactionId(self._here(), self._gtid), timestamp, self._mark())

    def _mark(self) -> str:
        return ",".join(self._domains[d] for d in sorted(self._domains)) if self._domains else ""

    def _gtid_event(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        parsed = (
            events.parse_tagged_gtid(body)
            if header.kind == 42
            else events.parse_gtid(body, anonymous=header.kind == 34)
        )
        yield from self._begin(_Inside.OPENED, parsed.gtid, committed=parsed.committed)

    def _mariadb_gtid(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        gtid = events.parse_mariadb_gtid(body, header.server)
        inside = _Inside.STATEMENT if gtid.flags & events.STANDALONE else _Inside.TRANSACTION
        yield from self._begin(inside, mark=str(gtid))

    def _gtid_list(self, _: _Header, body: Buffer) -> Iterator[Fact]:
        self._domains = events.parse_gtid_list(body)
        return iter(())

    def _xid(self, header: _Header, _: Buffer) -> Iterator[Fact]:
        return self._end(header)

    def _xa_prepare(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        xid, one_phase = events.parse_xa_prepare(body)
        if not one_phase:
            yield XaPrepare(xid)
        yield from self._end(header)

    def _query(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        extra = 13 if header.kind == 18 else 0
        query = events.parse_query(body, extra=extra, compressed=header.kind == 165)
        sql = query.sql.strip()
        word = sql.upper()
        if word == "BEGIN":
            if self._inside is _Inside.OPENED:
                self._inside = _Inside.TRANSACTION
            elif self._inside is _Inside.NOTHING:
                yield from self._begin(_Inside.TRANSACTION)
        elif word in ("COMMIT", "ROLLBACK"):
            yield from self._end(header, rolled_back=word == "ROLLBACK")
        elif match := _ROLLBACK_TO.fullmatch(sql):
            yield RollbackTo(_savepoint(match[1]))
        elif match := _SAVEPOINT.fullmatch(sql):
            yield Savepoint(_savepoint(match[1]))
        elif match := _XA.fullmatch(sql):
            yield from self._xa(header, match[1].upper(), match[2].strip())
        elif not _RELEASE.fullmatch(sql):
            yield from self._statement(header, query)

    def _xa(self, header: _Header, verb: str, xid: str) -> Iterator[Fact]:
        if verb in ("START", "BEGIN"):
            self._inside = _Inside.TRANSACTION
        elif verb in ("COMMIT", "ROLLBACK"):
            yield XaEnd(xid, verb == "COMMIT")
            yield from self._end(header)

    def _statement(self, header: _Header, query: events.Query) -> Iterator[Fact]:
        alone = self._inside is not _Inside.TRANSACTION
        if self._inside is _Inside.NOTHING:
            yield from self._begin(_Inside.STATEMENT)
        yield Statement(query.database, query.sql)
        if alone and _opens_transaction(query.sql):
            self._inside = _Inside.TRANSACTION
        elif alone:
            yield from self._end(header)

    def _payload(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        for event in unpack_payload(body):
            inner = _Header(event)
            if inner.kind not in _IN_PAYLOAD:
                raise DecodeError(f"an event of kind {inner.kind} in a compressed transaction")
            yield from self._handle(inner, memoryview(event)[_HEADER.size :])

    def _incident(self, _: _Header, body: Buffer) -> Iterator[Fact]:
        yield Incident(events.parse_incident(body))

    # --- rows ---------------------------------------------------------------------------------------------------

    def _table_map(self, _: _Header, body: Buffer) -> Iterator[Fact]:
        self._tables.learn(body, f"{self._file}:{self._offset}")
        return iter(())

    def _rows(self, header: _Header, body: Buffer) -> Iterator[Fact]:
        if self._inside is not _Inside.TRANSACTION:
            raise DecodeError("rows outside a transaction", needed="a start where a transaction begins")
        rows = self._tables.rows(header.kind, header.length, body)
        if rows is not None:
            yield rows


def _crc(event: Buffer, end: int) -> bool:
    view = memoryview(event)
    return zlib.crc32(view[:end]) == int.from_bytes(view[end:], "little")


#: a heartbeat of 32 bits that seems to lead so far ahead comes from behind
_FAR = 1 << 31


def _continued(offset: int, log_pos: int) -> int:
    """The next 64-bit place from `offset` on whose low 32 bits are `log_pos`."""
    place = offset & ~0xFFFFFFFF | log_pos
    return place if place >= offset else place + (1 << 32)


def _parse_mark(mark: str) -> dict[int, str]:
    return {int(gtid.split("-")[0]): gtid for gtid in mark.split(",")}


def _savepoint(name: str) -> str:
    """The servers compare savepoints without case."""
    quote = name[0]
    return (name[1:-1].replace(quote * 2, quote) if quote in '`"' and len(name) > 1 else name).casefold()


def _opens_transaction(sql: str) -> bool:
    """MySQL logs CREATE TABLE ... SELECT as `CREATE TABLE ... START TRANSACTION`, rows and an XID."""
    return sql.rstrip().upper().endswith("START TRANSACTION")


_HEARTBEATS = (27, 41)
# STOP, INTVAR, APPEND_BLOCK, RAND, USER_VAR, BEGIN_LOAD_QUERY, IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS, TRANSACTION_CONTEXT,
# VIEW_CHANGE; MariaDB: ANNOTATE_ROWS, BINLOG_CHECKPOINT, START_ENCRYPTION (the dump is sent decrypted, and its checksums prove it)
_SILENT = frozenset({3, 5, 9, 13, 14, 17, 28, 29, 35, 36, 37, 160, 161, 164})
_Handler = Callable[[EventParser, _Header, Buffer], Iterator[Fact]]
_HANDLERS: dict[int, _Handler] = {
    2: EventParser._query,
    _ROTATE: EventParser._rotate,
    _FORMAT: EventParser._format,
    16: EventParser._xid,
    18: EventParser._query,
    19: EventParser._table_map,
    26: EventParser._incident,
    27: EventParser._heartbeat,
    33: EventParser._gtid_event,
    34: EventParser._gtid_event,
    38: EventParser._xa_prepare,
    40: EventParser._payload,
    41: EventParser._heartbeat,
    42: EventParser._gtid_event,
    162: EventParser._mariadb_gtid,
    163: EventParser._gtid_list,
    165: EventParser._query,
    **dict.fromkeys(ROWS, EventParser._rows),
}
_IN_PAYLOAD = frozenset({2, 5, 13, 14, 16, 17, 9, 18, 19, 28, 29, 36, 37, 38, *ROWS})
