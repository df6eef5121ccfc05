"""Binlog events built from their parts, as MySQL's source documentation lays them out: little
endian, a 19-byte header, the body, and a CRC32 where the binlog has checksums."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import Self

from cdcsync_spark.wire.binlog.event.event_type import EventType

#: 2023-11-14 22:13:20 UTC
TIME = 1_700_000_000
SERVER = 11
UUID = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")

QUERY, STOP, ROTATE, FORMAT = EventType.QUERY, EventType.STOP, EventType.ROTATE, EventType.FORMAT_DESCRIPTION
XID, TABLE_MAP, INCIDENT = EventType.XID, EventType.TABLE_MAP, EventType.INCIDENT
HEARTBEAT, HEARTBEAT_2 = EventType.HEARTBEAT, EventType.HEARTBEAT_V2
WRITE, UPDATE, DELETE = EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS
GTID, ANONYMOUS, TAGGED = EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED
XA_PREPARE, PARTIAL, PAYLOAD = EventType.XA_PREPARE, EventType.PARTIAL_UPDATE_ROWS, EventType.TRANSACTION_PAYLOAD
MARIADB_GTID, GTID_LIST = EventType.MARIADB_GTID, EventType.GTID_LIST


def event(
    kind: int,
    body: bytes,
    *,
    end: int = 0,
    checksum: bool = False,
    flags: int = 0,
    time: int = TIME,
    server: int = SERVER,
) -> bytes:
    """Time 4, kind 1, server 4, length 4, end position 4, flags 2; body; CRC32."""
    length = 19 + len(body) + (4 if checksum else 0)
    raw = struct.pack("<IBIIIH", time, kind, server, length, end & 0xFFFFFFFF, flags) + body
    return raw + struct.pack("<I", zlib.crc32(raw)) if checksum else raw


def format_body(algorithm: int) -> bytes:
    """Version 4, the server's version in 50 bytes, time of creation, header length 19, post-header
    lengths; the checksum algorithm."""
    return struct.pack("<H50sIB", 4, b"9.7.4", 0, 19) + bytes(40) + bytes([algorithm])


def format_event(*, checksum: bool = False, end: int = 0, flags: int = 0) -> bytes:
    """Always with the four bytes of a checksum, whatever the algorithm says."""
    if checksum:
        return event(FORMAT, format_body(1), checksum=True, end=end, flags=flags)
    return event(FORMAT, format_body(0) + bytes(4), end=end, flags=flags)


def rotate(file: str, offset: int = 4, *, end: int = 0, checksum: bool = False, time: int = 0) -> bytes:
    return event(ROTATE, struct.pack("<Q", offset) + file.encode(), end=end, checksum=checksum, time=time)


def query(sql: str, database: str = "shop", *, status: bytes = b"") -> bytes:
    """Thread 4, seconds 4, database's length 1, error 2, status variables' length 2; status
    variables, database, 0, SQL."""
    name = database.encode()
    return struct.pack("<IIBHH", 7, 0, len(name), 0, len(status)) + status + name + b"\0" + sql.encode()


def gtid(number: int, *, committed: int = 0, original: int = 0) -> bytes:
    """Flags 1, UUID 16, number 8, type 2 of the logical clock, two times 8, commit time 7 (its
    highest bit: another 7 follow)."""
    times = b""
    if committed:
        times = struct.pack("<Q", committed | (1 << 55 if original else 0))[:7]
        times += struct.pack("<Q", original)[:7] if original else b""
    return b"\1" + UUID.bytes + struct.pack("<qBQQ", number, 2, 0, 1) + times


def mariadb_gtid(sequence: int, domain: int = 0, flags: int = 0) -> bytes:
    """Sequence 8, domain 4, flags 1, six bytes of nothing."""
    return struct.pack("<QIB", sequence, domain, flags) + bytes(6)


def gtid_list(*entries: tuple[int, int, int]) -> bytes:
    """Count 4; domain 4, server 4, sequence 8 of each."""
    return struct.pack("<I", len(entries)) + b"".join(struct.pack("<IIQ", *e) for e in entries)


def table_map(
    number: int,
    columns: list[tuple[int, bytes]],
    *,
    database: str = "shop",
    table: str = "t",
    optional: list[tuple[int, bytes]] | None = None,
) -> bytes:
    """Number 6, flags 2; names with their length before and a 0 after; column count, types,
    metadata with its length, NULL bitmap; then fields of kind, length, value."""
    metadata = b"".join(meta for _, meta in columns)
    names = b"".join(bytes([len(n)]) + n + b"\0" for n in (database.encode(), table.encode()))
    head = number.to_bytes(6, "little") + b"\1\0" + names
    types = bytes([len(columns)]) + bytes(code for code, _ in columns)
    nulls = b"\xff" * ((len(columns) + 7) // 8)
    extra = b"".join(bytes([kind, len(value)]) + value for kind, value in optional or [])
    return head + types + bytes([len(metadata)]) + metadata + nulls + extra


def rows(
    number: int, images: bytes, *, width: int, update: bool = False, present: int | None = None, extra: bytes = b"\2\0"
) -> bytes:
    """Number 6, flags 2, extra data with its length (itself included); width, bitmap of the columns
    that are present (two for an update), images."""
    bitmap = ((1 << width) - 1 if present is None else present).to_bytes((width + 7) // 8, "little")
    return number.to_bytes(6, "little") + b"\1\0" + extra + bytes([width]) + bitmap * (2 if update else 1) + images


def names(*columns: str) -> tuple[int, bytes]:
    """The optional field of the column names."""
    return 4, b"".join(bytes([len(c.encode())]) + c.encode() for c in columns)


#: `t (id INT NOT NULL, v VARCHAR(10) utf8mb4)`: LONG without metadata, VARCHAR of at most 40 bytes;
#: signedness of one numeric column, default collation 45 of the character columns
ID_V = table_map(18, [(3, b""), (15, b"\x28\0")], optional=[(1, b"\0"), (2, b"\x2d"), names("id", "v")])


def image(number: int, text: str) -> bytes:
    """A row of `t`: no NULLs (the bitmap's unused bits are ones in real logs), the number, one byte
    of length, the text."""
    return b"\xfc" + struct.pack("<iB", number, len(text.encode())) + text.encode()


@dataclass
class BinlogFile:
    """A binlog file that is written event by event and knows where it is."""

    offset: int = 4
    checksum: bool = False

    @classmethod
    def begun(cls, *, checksum: bool = False) -> tuple[Self, list[bytes]]:
        """A log, and the two events that begin every dump."""
        log = cls(checksum=checksum)
        return log, [rotate("binlog.000001", checksum=checksum), format_event(checksum=checksum)]

    def write(self, kind: int, body: bytes, *, placed: bool = True, **options: int) -> bytes:
        """`placed`: the event says where it ends."""
        self.offset += 19 + len(body) + (4 if self.checksum else 0)
        return event(kind, body, end=self.offset if placed else 0, checksum=self.checksum, **options)
