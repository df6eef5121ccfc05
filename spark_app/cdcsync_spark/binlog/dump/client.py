"""The dump client: one authenticated connection turned into a stream of raw binlog events.

Why it is right: the server is asked for checksums, so what arrives damaged is noticed by the
parser; it is asked for heartbeats, so silence means a dead connection and nothing else; the
replica's identity is derived from its id, so a successor's dump ends a zombie's. Nothing is decoded
here but packets and the server's errors. Sources: MySQL source documentation, "COM_BINLOG_DUMP",
"COM_BINLOG_DUMP_GTID", "COM_REGISTER_REPLICA"; MariaDB knowledge base, "Replication Protocol"; the
GTID set's form is that of `Gtid_set::encode` (tagged sets since MySQL 8.3).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import pymysql
from pymysql.cursors import Cursor

from cdcsync_core.errors import CdcError, DecodeError, Reason, TransientError, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtid
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_mysql.sessions.protocol import interrupt, send_command, skip_packet, socket_of
from cdcsync_spark.binlog.dump.packets import Arrived, DumpPackets
from cdcsync_spark.wire.binlog.parser import Flavor

_COM_BINLOG_DUMP, _COM_REGISTER_REPLICA, _COM_BINLOG_DUMP_GTID = 0x12, 0x15, 0x1E
_NON_BLOCKING, _HEARTBEAT_V2 = 1, 2
_END, _ERROR = 0xFE, 0xFF
_LONGEST_END = 9
_IDENTITY = uuid.UUID("6f0b6a0e-6f43-4c0f-9d0e-5f0d3c1b7a11")

_ER_PRIVILEGE = frozenset({1044, 1045, 1142, 1227})
_ER_FATAL_READING_BINLOG = 1236
#: MariaDB since 11.8; servers before it say so by the text of a fatal error
_ER_REPLICA_ID_TAKEN = 4052

#: of a dump that ends at the binlog's end
_SEARCH_HEARTBEAT_SECONDS = 10.0
#: the command has 32 bits for the offset
_ADDRESSABLE = 1 << 32


class DumpNotBegun(TransientError):
    """The server sent nothing in time: it waits for the end of another dump with our id."""


class DumpTakenOver(TransientError):
    """Another replica with our id asked for the binlog, so the server has ended our dump."""


def dump_begin(at: LogOffset) -> LogOffset:
    """Where the server is asked to begin so that everything after `at` comes: there, or at the
    beginning of a file that is too long for the command.

    A file is closed once it has its size, but first the server writes what was committed in one
    group with a huge transaction, and more while that is synced to disk. So a place past 4 GiB need
    not be the end of its file.
    """
    return at if at.offset < _ADDRESSABLE else replace(at, offset=4)


def silence_timeout(heartbeat_seconds: float) -> float:
    """How long a source that sends heartbeats may be silent before it is lost: three of them, at
    least ten seconds more than one."""
    return max(3 * heartbeat_seconds, heartbeat_seconds + 10)


class BinlogClient:
    """One dump. Use as a context manager; `events` or `arrivals` once.

    `connection` is authenticated and idle, and belongs to the client from now on. `start` says from
    where: a `FilePosition`, a `GtidPosition` (MySQL: everything that is not in its set), or on
    MariaDB a GTID, behind which it begins.
    `replica_id` is the same for successive runs; with 0 the dump is of no replica: it ends no other
    one and no other one ends it. With `nonblocking` the stream ends at the end of the binlog. A
    connection that is silent for `silence_seconds` (default: `silence_timeout`) is lost; one whose
    first packet takes longer than `begin_seconds` (by default as long) has not begun.
    """

    def __init__(
        self,
        connection: pymysql.Connection[Any],
        *,
        flavor: Flavor,
        start: Position | MariaDbGtid,
        replica_id: int,
        heartbeat_seconds: float,
        nonblocking: bool = False,
        silence_seconds: float | None = None,
        begin_seconds: float | None = None,
    ) -> None:
        self._connection = connection
        self._flavor = flavor
        self._start = start
        self._replica_id = replica_id
        self._heartbeat = heartbeat_seconds
        self._nonblocking = nonblocking
        self._silence = silence_timeout(heartbeat_seconds) if silence_seconds is None else silence_seconds
        self._begin = self._silence if begin_seconds is None else min(begin_seconds, self._silence)
        self._closed = False

    @classmethod
    def to_the_end(
        cls, connection: pymysql.Connection[Any], flavor: Flavor, start: Position | MariaDbGtid
    ) -> BinlogClient:
        """Reads what the binlog has from `start` on, and ends there. Its replica id is 0, for which
        the server ends no other dump."""
        return cls(
            connection,
            flavor=flavor,
            start=start,
            replica_id=0,
            heartbeat_seconds=_SEARCH_HEARTBEAT_SECONDS,
            nonblocking=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def events(self) -> Iterator[memoryview]:
        """The events of `arrivals` one by one; each is valid until the next is asked for."""
        for arrived in self.arrivals():
            yield from arrived

    def arrivals(self) -> Iterator[Arrived]:
        """Raw events, header and checksum included, as many as have arrived; they are valid until
        the next are asked for.

        Raises `CdcError`: PositionLost, PrivilegeMissing, SourceUnreachable (also as DumpNotBegun
        and DumpTakenOver). Ends when `close` is called, and in non-blocking mode at the end of the
        binlog.
        """
        try:
            self._ask()
            yield from self._received()
        except (pymysql.err.MySQLError, OSError, ValueError, AttributeError) as e:
            # PyMySQL raises ValueError and AttributeError when another thread closes it meanwhile
            if not self._closed:
                raise _refusal(e, self._start) from None

    def close(self) -> None:
        """Ends the dump, also from another thread while it waits; may be called again."""
        self._closed = True
        interrupt(self._connection)

    def _ask(self) -> None:
        period = int(self._heartbeat * 1e9)
        with self._connection.cursor() as cursor:
            for name, value in (("heartbeat_period", period), ("binlog_checksum", "CRC32")):
                cursor.execute(f"SET @master_{name} = %s, @source_{name} = %s", (value, value))
            cursor.execute("SET @mariadb_slave_capability = 4")
            if isinstance(self._start, MariaDbGtid):
                cursor.execute("SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1", (str(self._start),))
            if self._replica_id:
                self._register(cursor)
        send_command(self._connection, *self._dump())

    def _register(self, cursor: Cursor) -> None:
        identity = str(uuid.uuid5(_IDENTITY, str(self._replica_id)))
        cursor.execute("SET @slave_uuid = %s, @replica_uuid = %s", (identity, identity))
        host = b"cdcsync"
        register = struct.pack("<IB", self._replica_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        send_command(self._connection, _COM_REGISTER_REPLICA, register)
        skip_packet(self._connection)

    def _dump(self) -> tuple[int, bytes]:
        flags = (_NON_BLOCKING if self._nonblocking else 0) | (_HEARTBEAT_V2 if self._flavor == "mysql" else 0)
        if isinstance(self._start, GtidPosition):
            gtids = encode_gtid_set(self._start.gtids)
            return _COM_BINLOG_DUMP_GTID, struct.pack("<HIIQI", flags, self._replica_id, 0, 4, len(gtids)) + gtids
        if isinstance(self._start, MariaDbGtid):
            return _COM_BINLOG_DUMP, struct.pack("<IHI", 4, flags, self._replica_id)
        at = dump_begin(self._start.at)
        return _COM_BINLOG_DUMP, struct.pack("<IHI", at.offset, flags, self._replica_id) + at.file.encode()

    def _received(self) -> Iterator[Arrived]:
        sock = socket_of(self._connection)
        if sock is None:
            raise ConnectionError("it is closed")
        sock.settimeout(self._begin)
        packets = DumpPackets(sock)
        arrived = self._first(packets)
        sock.settimeout(self._silence)
        while True:
            events = arrived.events()
            yield events
            if len(events) < len(arrived):  # the server sends nothing after it
                return self._end(arrived[len(events)])
            arrived = packets.arrived()

    def _first(self, packets: DumpPackets) -> Arrived:
        try:
            return packets.arrived()
        except TimeoutError:
            raise DumpNotBegun(
                Reason.SOURCE_UNREACHABLE,
                f"the dump with the replica id {self._replica_id} did not begin within {self._begin:g} s",
                needed="the end of the dump that a lost driver left on the server",
                remedy="KILL the connection whose command is Killed or Binlog Dump, or wait for its end (some 16 minutes)",
            ) from None

    def _end(self, packet: memoryview) -> None:
        """The end that was asked for; raises CdcError for any other."""
        if not packet or packet[0] != _END or len(packet) >= _LONGEST_END:
            raise _server_error(packet, self._start)
        if not self._nonblocking:
            raise fail(Reason.SOURCE_UNREACHABLE, "the server ended the dump", needed="an endless one")


def encode_gtid_set(gtids: GtidSet) -> bytes:
    """The form of COM_BINLOG_DUMP_GTID: the number of sources, and per source its UUID, tag and
    intervals with open ends.

    A set with tags says so by a 1 in the first and last byte of the number, and every source then
    has a tag, which may be empty.
    """
    sources = list(gtids.items())
    tagged = any(":" in source for source, _ in sources)
    parts = [struct.pack("<Q", 1 << 56 | len(sources) << 8 | 1 if tagged else len(sources))]
    for source, intervals in sources:
        identity, _, tag = source.partition(":")
        parts.append(uuid.UUID(identity).bytes)
        if tagged:
            # a length below 64 of the serialization library, and the characters
            parts.append(bytes([len(tag) << 1]) + tag.encode("ascii"))
        parts.append(struct.pack("<Q", len(intervals)))
        parts.extend(struct.pack("<QQ", first, last + 1) for first, last in intervals)
    return b"".join(parts)


def _server_error(packet: memoryview, start: Position | MariaDbGtid) -> CdcError:
    """An error packet: 0xff, number, `#` and five characters of state, text."""
    raw = bytes(packet)
    if len(raw) < 3 or raw[0] != _ERROR:
        return DecodeError(f"a packet of the dump that begins with {raw[:8].hex()}")
    text = raw[9:] if raw[3:4] == b"#" else raw[3:]
    return _explained(int.from_bytes(raw[1:3], "little"), text.decode("utf-8", "replace"), start)


def _refusal(error: Exception, start: Position | MariaDbGtid) -> CdcError:
    if isinstance(error, TimeoutError):
        return fail(Reason.SOURCE_UNREACHABLE, "no heartbeat from the server in time", needed="a live connection")
    if isinstance(error, pymysql.err.MySQLError) and len(error.args) >= 2 and isinstance(error.args[0], int):
        return _explained(error.args[0], str(error.args[1]), start)
    return fail(
        Reason.SOURCE_UNREACHABLE, f"the connection of the dump broke: {quoted(str(error))}", needed="a live connection"
    )


def _explained(number: int, text: str, start: Position | MariaDbGtid) -> CdcError:
    found = f"the server ended the dump: {text} ({number})"
    if number in _ER_PRIVILEGE:
        return fail(
            Reason.PRIVILEGE_MISSING,
            found,
            needed="REPLICATION SLAVE",
            remedy="GRANT REPLICATION SLAVE ON *.* TO the user of spec.source.credentialsSecretRef",
        )
    if number == _ER_REPLICA_ID_TAKEN or "same server_uuid/server_id" in text:
        return DumpTakenOver(
            Reason.SOURCE_UNREACHABLE,
            f"another replica with the same id took over: {text} ({number})",
            needed="one replica per spec.source.serverId",
            remedy="set another spec.source.serverId if that is not this sync's own successor",
        )
    if number == _ER_FATAL_READING_BINLOG:
        return fail(
            Reason.POSITION_LOST,
            f"{found}, starting from {_place(start)}",
            needed="a binlog that still holds that position",
            remedy=f"{RESNAPSHOT_ALL}; keep binlogs longer (binlog_expire_logs_seconds)",
        )
    return fail(Reason.SOURCE_UNREACHABLE, found, needed="a running dump")


def _place(start: Position | MariaDbGtid) -> str:
    if isinstance(start, FilePosition):
        return str(start.at)
    return f"the GTID {start}" if isinstance(start, MariaDbGtid) else f"the GTID set {start}"
