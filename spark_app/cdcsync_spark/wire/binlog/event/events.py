"""The bodies of single events, each a function from bytes to a value; nothing here knows what came
before.

A body is an event without its 19-byte header and without its checksum. Sources: MySQL
`libs/mysql/binlog/event/*.h`, `libs/mysql/serialization`; MariaDB `sql/log_event.h`,
`sql/log_event.cc`.
"""

from __future__ import annotations

import re
import struct
import uuid
from functools import lru_cache
from typing import NamedTuple

from cdcsync_core.errors import DecodeError
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_spark.wire.binlog.event.compression import unpack_mariadb
from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.columns.charset import charset_of, decode_loosely
from cdcsync_spark.wire.columns.cursor import Buffer, Cursor

# MariaDB's flags of a GTID event
STANDALONE, GROUP_COMMIT, DDL, PREPARED_XA, COMPLETED_XA = 1, 2, 32, 64, 128
# its further flags: which part of an ALTER in two phases follows (binlog_alter_two_phase)
START_ALTER, COMMIT_ALTER, ROLLBACK_ALTER = 2, 4, 8

_Q_FLAGS2, _Q_SQL_MODE, _Q_AUTO_INCREMENT, _Q_CHARSET, _Q_TIME_ZONE, _Q_CATALOG = 0, 1, 3, 4, 5, 6
#: MariaDB since 11.2, in statements that name a character set: the default collations of some, 4
#: bytes each
_Q_DEFAULT_COLLATIONS = 131
_Q_INVOKER, _Q_DATABASES, _TOO_MANY = 11, 12, 254
#: MySQL's and MariaDB's
_Q_MICROSECONDS = (13, 128)
_Q_TIMESTAMPS = 16
#: the other variables of one length, by their codes
_Q_WIDTHS = {_Q_FLAGS2: 4, _Q_AUTO_INCREMENT: 4, 7: 2, 8: 2, 9: 8, 10: 4, 17: 8, 18: 2, 19: 1, 20: 1, 129: 8}


#: MySQL's first version whose format description says whether events have checksums; all of MariaDB
#: that are still met do
_FIRST_WITH_CHECKSUMS = 50_601
_SUPPORTED = "MySQL 8.0 or newer, MariaDB 10.6 or newer"
#: flags, UUID, number; then the type of logical timestamps, which is 2, and two of them
_GTID, LOGICAL_CLOCK = struct.Struct("<B16sQ"), b"\2"
#: sequence, domain, flags
_MARIADB_GTID = struct.Struct("<QIB")
#: thread and duration, the database's length, the error, the length of the status variables
_QUERY = struct.Struct("<8xB2xH")
#: server's version, when it was started
_STARTED = struct.Struct("<2x50xI")
#: the end of the database's name, and the statement
BEGIN = b"\0BEGIN"
#: the bytes of these heads
GTID_HEAD, MARIADB_GTID_HEAD, QUERY_HEAD = _GTID.size, _MARIADB_GTID.size, _QUERY.size


class MySqlGtid(NamedTuple):
    """`gtid` is None for an anonymous transaction; `committed` is the commit's unix time in
    microseconds, 0 if not logged."""

    gtid: Gtid | None
    committed: int


class MariaDbGtidEvent(NamedTuple):
    """`alter` is the part of an ALTER in two phases (START_ALTER, COMMIT_ALTER or ROLLBACK_ALTER),
    0 for anything else."""

    domain: int
    server: int
    sequence: int
    flags: int
    alter: int = 0

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


class Query(NamedTuple):
    """`sql_mode` is None, and `charset`, the client's, and `connection`, of its literals, are empty
    where the event does not say. `timestamps` is `explicit_defaults_for_timestamp`, None where the
    event does not say.

    `thread` is the session's number on its server; `time_zone` and `microseconds` are in the event
    only if the statement used them.
    """

    database: str
    sql: str
    sql_mode: int | None
    charset: str
    time_zone: str = ""
    microseconds: int | None = None
    thread: int = 0
    connection: str = ""
    timestamps: bool | None = None


class RotatePlace(NamedTuple):
    file: str
    offset: int


def parse_checksum(body: Buffer) -> bool:
    """Whether events carry a CRC32, by a format description event (`body` has the checksum's
    place)."""
    cursor = Cursor(body)
    version = cursor.uint(2)
    server = cursor.take(50).rstrip(b"\0").decode("ascii", "replace")
    if version != 4:
        raise DecodeError(f"binlog format version {version} of server {server}", needed="version 4")
    if len(body) < 62 or ("MariaDB" not in server and parse_version(body) < _FIRST_WITH_CHECKSUMS):
        raise DecodeError(f"a binlog of the server version {server or '(none)'}", needed=_SUPPORTED)
    algorithm = body[-5]
    if algorithm not in (0, 1):
        raise DecodeError(f"checksum algorithm {algorithm}", needed="NONE (0) or CRC32 (1)")
    return algorithm == 1


def is_padding(kind: int, body: memoryview) -> bool:
    """Amazon Aurora's asterisks; another fork may give the kind to something else."""
    return kind == EventType.AURORA_PADDING and not bytes(body).strip(b"*")


def unread_kind(kind: int) -> DecodeError:
    if kind == EventType.PARTIAL_ROW_DATA:
        return DecodeError(
            f"a part of a rows event (PARTIAL_ROW_DATA, kind {kind})",
            needed="rows events that are whole",
            remedy="set binlog_row_event_fragment_threshold to more than the size of every rows event,"
            f" then {RESNAPSHOT_ALL}",
        )
    return DecodeError(
        f"an event of the unknown kind {kind}", needed="a kind that MySQL 9 or MariaDB up to 12.2 documents"
    )


def parse_version(body: Buffer) -> int:
    """The server's version by a format description event, as 80036 for 8.0.36; 0 if it has no such
    form."""
    text = bytes(body[2:52]).rstrip(b"\0").decode("ascii", "replace")
    match = re.match(r"(\d{1,3})\.(\d{1,2})\.(\d{1,2})(?!\d)", text)
    return int(match[1]) * 10_000 + int(match[2]) * 100 + int(match[3]) if match else 0


def has_started(body: Buffer) -> bool:
    """Whether the server began the file of this format description event when it was started: then
    no session of before lives, and no temporary table."""
    return len(body) >= _STARTED.size and _STARTED.unpack_from(body)[0] != 0


def parse_rotate(body: Buffer) -> RotatePlace:
    cursor = Cursor(body)
    offset = cursor.uint(8)
    return RotatePlace(cursor.text(cursor.left), offset)


def parse_gtid(body: Buffer, anonymous: bool) -> MySqlGtid:
    """GTID_LOG_EVENT and ANONYMOUS_GTID_LOG_EVENT."""
    if len(body) < _GTID.size:
        raise DecodeError(f"a GTID event of {len(body)} bytes", needed=f"at least {_GTID.size}")
    _, source, number = _GTID.unpack_from(body)
    committed = 0
    if body[_GTID.size : _GTID.size + 1] == LOGICAL_CLOCK:
        cursor = Cursor(body, _GTID.size + 1)
        cursor.skip(16)
        committed = _commit_timestamp(cursor)
    return MySqlGtid(None if anonymous else _gtid(uuid_text(source), number), committed)


@lru_cache(maxsize=1024)
def uuid_text(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def _commit_timestamp(cursor: Cursor) -> int:
    """The original commit's time where it differs from this server's (the event came by
    replication), else this server's."""
    if cursor.left < 7:
        return 0
    immediate = cursor.uint(7)
    return cursor.uint(7) if immediate >> 55 else immediate


def parse_tagged_gtid(body: Buffer) -> MySqlGtid:
    """GTID_TAGGED_LOG_EVENT: a message of MySQL's serialization library, fields by number.

    0 flags, 1 UUID as 16 numbers, 2 sequence number, 3 tag, 4 and 5 logical clock, 6 immediate and
    7 original commit time in microseconds (left out if equal), 8 transaction length, 9 and 10
    versions, 11 commit group ticket.
    """
    cursor = Cursor(body)
    version = cursor.varlen()
    if version != 1:
        raise DecodeError(f"serialization version {version} of a tagged GTID event", needed="version 1")
    end = cursor.varlen()
    cursor.varlen()  # the last field that must be understood
    fields: dict[int, object] = {}
    while cursor.at < min(end, cursor.end):
        number = cursor.varlen()
        fields[number] = _tagged_field(number, cursor)
    if not {1, 2} <= fields.keys():
        raise DecodeError(f"a tagged GTID event with the fields {sorted(fields)}", needed="UUID (1) and number (2)")
    tag = str(fields.get(3, ""))
    source = str(fields[1]) + (f":{tag}" if tag else "")
    return MySqlGtid(_gtid(source, int(str(fields[2]))), int(str(fields.get(7, fields.get(6, 0)))))


def _tagged_field(number: int, cursor: Cursor) -> object:
    if number == 1:
        octets = [cursor.varlen() for _ in range(16)]
        if max(octets) > 255:
            raise DecodeError(f"a UUID of the numbers {octets}")
        return uuid.UUID(bytes=bytes(octets))
    if number in (2, 4, 5):
        return cursor.signed_varlen()
    return cursor.text(cursor.varlen()) if number == 3 else cursor.varlen()


def _gtid(source: str, number: int) -> Gtid:
    if number < 1:
        raise DecodeError(f"the GTID {source}:{number}", needed="a number from 1")
    return Gtid(source, number)


def parse_mariadb_gtid(body: Buffer, server: int) -> MariaDbGtidEvent:
    """`server` is the header's server id."""
    if len(body) < _MARIADB_GTID.size:
        raise DecodeError(f"a GTID event of {len(body)} bytes", needed=f"at least {_MARIADB_GTID.size}")
    sequence, domain, flags = _MARIADB_GTID.unpack_from(body)
    return MariaDbGtidEvent(domain, server, sequence, flags, _alter(body, flags) if flags & DDL else 0)


def _alter(body: Buffer, flags: int) -> int:
    """The further flags stand behind the commit's number, if it has one; servers without them fill
    up with zeros."""
    at = _MARIADB_GTID.size + (8 if flags & GROUP_COMMIT else 0)
    further = body[at] if at < len(body) and not flags & (PREPARED_XA | COMPLETED_XA) else 0
    return further & (START_ALTER | COMMIT_ALTER | ROLLBACK_ALTER)


def parse_gtid_list(body: Buffer) -> dict[int, str]:
    """MariaDB's state at the beginning of a file: per domain the last GTID (of several servers, the
    last one listed)."""
    return {domain: f"{domain}-{server}-{number}" for domain, server, number in listed_gtids(body)}


def listed_gtids(body: Buffer) -> list[tuple[int, int, int]]:
    """Domain, server and number of each GTID of a list: the last ones of each server in each
    domain."""
    cursor = Cursor(body)
    return [(cursor.uint(4), cursor.uint(4), cursor.uint(8)) for _ in range(cursor.uint(4) & 0x0FFFFFFF)]


def is_begin(body: Buffer) -> bool:
    """Whether a QUERY event is exactly BEGIN, which every transaction has: no status variable needs
    to be read for it."""
    if len(body) < _QUERY.size or body[-len(BEGIN) :] != BEGIN:
        return False
    database, status = _QUERY.unpack_from(body)
    return len(body) == _QUERY.size + int(status) + int(database) + len(BEGIN)


def parse_query(body: Buffer, *, extra: int = 0, compressed: bool = False) -> Query:
    """QUERY, EXECUTE_LOAD_QUERY (`extra` bytes in the post header) and MariaDB's
    QUERY_COMPRESSED."""
    cursor = Cursor(body)
    thread = cursor.uint(4)
    cursor.skip(4)
    database_length = cursor.byte()
    cursor.skip(2)
    status = cursor.uint(2)
    cursor.skip(extra)
    session = _session(Cursor(cursor.take(status)))
    database = cursor.text(database_length)
    cursor.skip(1)
    raw = cursor.rest()
    sql = decode_loosely(unpack_mariadb(raw) if compressed else raw, session.collation)
    charset = _known_charset(session.collation)
    connection = _known_charset(session.connection) if session.connection else ""
    started = session.time_zone, session.microseconds
    return Query(database, sql, session.sql_mode, charset, *started, thread, connection, session.timestamps)


def _known_charset(collation: int) -> str:
    try:
        return charset_of(collation)
    except DecodeError:
        return ""


class _QueryStatus(NamedTuple):
    """Status variables of a QUERY event that decide how its text is read; `collation` is the
    client's, `connection` that of its literals, 0 if not known."""

    sql_mode: int | None = None
    collation: int = 0
    time_zone: str = ""
    microseconds: int | None = None
    connection: int = 0
    timestamps: bool | None = None


def _session(status: Cursor) -> _QueryStatus:
    """`sql_mode` and character set are always logged, and before them only variables of known
    length; what follows them and cannot be read is not needed."""
    session = _QueryStatus()
    try:
        while status:
            if (following := _variable(status, session)) is None:
                break
            session = following
    except DecodeError:
        if not session.collation:
            raise
    return session


def _variable(status: Cursor, session: _QueryStatus) -> _QueryStatus | None:
    """`found` with one more variable; None at one whose length is not known."""
    code = status.byte()
    if code == _Q_CHARSET:
        collation = status.uint(2)
        connection = status.uint(2) if status.left >= 2 else 0
        status.skip(min(2, status.left))
        return session._replace(collation=collation, connection=connection)
    if code == _Q_SQL_MODE:
        return session._replace(sql_mode=status.uint(8))
    if code == _Q_TIME_ZONE:
        return session._replace(time_zone=status.text(status.byte()))
    if code == _Q_TIMESTAMPS:
        return session._replace(timestamps=bool(status.byte()))
    if code in _Q_MICROSECONDS:
        return session._replace(microseconds=status.uint(3))
    return session if _skip_variable(code, status) else None


def _skip_variable(code: int, status: Cursor) -> bool:
    """False for a variable whose length is not known."""
    if code in _Q_WIDTHS:
        status.skip(_Q_WIDTHS[code])
    elif code == _Q_CATALOG:
        status.skip(status.byte())
    elif code == _Q_INVOKER:
        status.skip(status.byte())
        status.skip(status.byte())
    elif code == _Q_DEFAULT_COLLATIONS:
        status.skip(4 * status.byte())
    elif code == _Q_DATABASES:
        _skip_databases(status)
    else:
        return False
    return True


def _skip_databases(status: Cursor) -> None:
    """Names with a zero byte behind each; 254 stands for too many to list."""
    count = status.byte()
    for _ in range(count if count != _TOO_MANY else 0):
        while status.byte():
            continue


def parse_incident(body: Buffer) -> str:
    cursor = Cursor(body)
    number = cursor.uint(2)
    length = cursor.byte() if cursor else 0
    message = cursor.take(min(length, cursor.left)).decode("utf-8", "replace")
    return f"incident {number}: {message}" if message else f"incident {number}"


def parse_xa_prepare(body: Buffer) -> tuple[str, bool]:
    """The xid as hexadecimal literals, and whether this is a commit in one phase."""
    cursor = Cursor(body)
    one_phase = bool(cursor.byte())
    format_id, first, second = cursor.uint(4), cursor.uint(4), cursor.uint(4)
    return f"X'{cursor.take(first).hex()}',X'{cursor.take(second).hex()}',{format_id}", one_phase


def parse_gtid_pos(gtid_pos: str) -> dict[int, str]:
    """MariaDB's GTID position, by domains."""
    return {int(gtid.split("-")[0]): gtid for gtid in gtid_pos.split(",")}


def parse_heartbeat(body: Buffer, log_pos: int) -> RotatePlace:
    """HEARTBEAT: the position is in the header; a MariaDB server that is past 4 GiB writes 0 there
    and 8 bytes here."""
    cursor = Cursor(body)
    offset = log_pos or cursor.uint(8)
    return RotatePlace(cursor.text(cursor.left), offset)


def parse_heartbeat_v2(body: Buffer) -> RotatePlace:
    """Fields of (kind, length, value): 1 the file's name, 2 the position as a length-encoded
    number, 0 ends the list."""
    cursor = Cursor(body)
    file, offset = "", 0
    while cursor and (kind := cursor.lenenc()):
        field = Cursor(cursor.take(cursor.lenenc()))
        if kind == 1:
            file = field.text(field.left)
        elif kind == 2:
            offset = field.lenenc()
    return RotatePlace(file, offset)
