"""The dump client's packets and commands, without a server: the same events however the bytes are
cut."""

from __future__ import annotations

import socket
import struct
from itertools import islice
from typing import Any, Self

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_spark.binlog.dump.client import BinlogClient, encode_gtid_set

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
UUID_BYTES = bytes.fromhex(UUID.replace("-", ""))


class FakeSocket:
    """Gives out `data` in pieces of at most `piece` bytes, then the end."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data, self._piece, self._at = memoryview(data), piece, 0

    def settimeout(self, seconds: float) -> None: ...

    def gettimeout(self) -> float:
        return 5.0

    def shutdown(self, how: int) -> None: ...

    def recv_into(self, buffer: memoryview) -> int:
        count = min(self._piece, len(buffer), len(self._data) - self._at)
        buffer[:count] = self._data[self._at : self._at + count]
        self._at += count
        return count


class FakeConnection:
    """What of PyMySQL's connection the client uses; records its commands."""

    def __init__(self, data: bytes = b"", piece: int = 1 << 20) -> None:
        self._sock: Any = FakeSocket(data, piece)
        self.commands: list[tuple[int, bytes]] = []
        self.statements: list[tuple[str, Any]] = []

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, values: object = None) -> None:
        self.statements.append((sql, values))

    def _execute_command(self, command: int, data: bytes) -> None:
        self.commands.append((command, data))

    def _read_packet(self) -> None: ...

    def _force_close(self) -> None: ...


def packets(*payloads: bytes) -> bytes:
    """Length 3, sequence number 1; a payload of 0xffffff bytes or more goes on in the next
    packet."""
    out = bytearray()
    for payload in payloads:
        for number, start in enumerate(range(0, len(payload) + 1, 0xFFFFFF)):
            part = payload[start : start + 0xFFFFFF]
            out += len(part).to_bytes(3, "little") + bytes([number & 0xFF]) + part
    return bytes(out)


def client(
    connection: FakeConnection, start: Position | None = None, *, flavor: Any = "mysql", nonblocking: bool = True
) -> BinlogClient:
    return BinlogClient(
        connection,  # type: ignore[arg-type]
        flavor=flavor,
        start=start or FilePosition(LogOffset("binlog.000001", 4)),
        replica_id=0x0A0B0C0D,
        heartbeat_seconds=2.5,
        nonblocking=nonblocking,
    )


END = b"\xfe\0\0\0\0"


def received(data: bytes, piece: int, **options: Any) -> list[bytes]:
    return [bytes(e) for e in client(FakeConnection(data, piece), **options).events()]


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 100, 1 << 20])
def test_events_are_the_same_however_the_bytes_are_cut(piece: int) -> None:
    events = [b"a", b"", b"bb" * 300, b"c" * 70_000 if piece > 5 else b"c"]
    data = packets(*(b"\0" + e for e in events), END)
    assert received(data, piece) == events
    # what comes after the end is not read
    assert received(data + b"garbage", piece) == events


@pytest.mark.parametrize("size", [0xFFFFFE, 0xFFFFFF, 0x1000000, 2 * 0xFFFFFF, 2 * 0xFFFFFF + 7])
def test_events_of_several_packets_are_joined(size: int) -> None:
    """The status byte is in the first packet only; an exact multiple of the packet size ends with
    an empty packet."""
    events = [b"a", b"x" * (size - 1), b"b"]
    assert received(packets(*(b"\0" + e for e in events), END), 1 << 20) == events


def _error(number: int, text: str) -> bytes:
    return b"\xff" + struct.pack("<H", number) + b"#HY000" + text.encode()


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (_error(1236, "Could not find first log file name in binary log index file"), Reason.POSITION_LOST),
        (_error(1236, "Cannot replicate because the source purged required binary logs"), Reason.POSITION_LOST),
        (
            _error(1236, "A replica with the same server_uuid/server_id as this replica has connected"),
            Reason.SOURCE_UNREACHABLE,
        ),
        (_error(4052, "A slave with the same server_uuid/server_id is already connected"), Reason.SOURCE_UNREACHABLE),
        (_error(4052, "A slave with the same server_id is already connected"), Reason.SOURCE_UNREACHABLE),
        (_error(1227, "Access denied; you need REPLICATION SLAVE"), Reason.PRIVILEGE_MISSING),
        (_error(1053, "Server shutdown in progress"), Reason.SOURCE_UNREACHABLE),
        (b"\xff\x01", Reason.TYPE_UNSUPPORTED),
        (b"\x7fwhat", Reason.TYPE_UNSUPPORTED),
        (b"", Reason.TYPE_UNSUPPORTED),
    ],
)
def test_the_servers_errors_have_our_reasons(packet: bytes, reason: Reason) -> None:
    with pytest.raises(CdcError) as caught:
        received(packets(b"\0a", packet), 1 << 20)
    assert caught.value.reason is reason


def test_what_came_before_a_reset_counts() -> None:
    """A server that ends the dump says why and closes, with our bytes unread: a reset follows."""
    events = [b"e" * 100] * 200
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
        theirs.sendall(packets(*(b"\0" + e for e in events), _error(1236, "purged required binary logs")))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
    connection = FakeConnection()
    connection._sock = ours
    with ours:
        received = map(bytes, client(connection).events())
        assert list(islice(received, len(events))) == events
        with pytest.raises(CdcError) as caught:
            next(received)
    assert caught.value.reason is Reason.POSITION_LOST


@pytest.mark.parametrize("cut", [0, 2, 4, 6])
def test_a_closed_connection_is_unreachable(cut: int) -> None:
    with pytest.raises(CdcError) as caught:
        received(packets(b"\0abcdef")[:cut], 1)
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_an_endless_dump_may_not_end() -> None:
    with pytest.raises(CdcError) as caught:
        received(packets(END), 1, nonblocking=False)
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_the_dump_from_a_file() -> None:
    """0x15: id, host, user, password, port, rank, source id. 0x12: offset 4, flags 2 (1: do not
    wait, 2: second heartbeat), id, file."""
    connection = FakeConnection(packets(END))
    list(client(connection, FilePosition(LogOffset("binlog.000042", 0x1234))).events())
    assert connection.commands == [
        (0x15, b"\x0d\x0c\x0b\x0a" + b"\x07cdcsync" + bytes(12)),
        (0x12, b"\x34\x12\0\0" + b"\x03\0" + b"\x0d\x0c\x0b\x0a" + b"binlog.000042"),
    ]
    values = [v for _, v in connection.statements]
    assert values[:2] == [(2_500_000_000, 2_500_000_000), ("CRC32", "CRC32")]
    # the same identity for successive runs
    again = FakeConnection(packets(END))
    list(client(again).events())
    assert again.statements == connection.statements


def test_mariadb_gets_no_flag_of_mysql() -> None:
    connection = FakeConnection(packets(END))
    list(client(connection, flavor="mariadb", nonblocking=True).events())
    assert connection.commands[1][1][4:6] == b"\1\0"


def test_a_place_behind_four_gibibytes_is_asked_for_from_the_beginning_of_its_file() -> None:
    """The command has 32 bits, and a group commit may bring more than one transaction past them."""
    start = FilePosition(LogOffset("binlog.000009", 1 << 32))
    connection = FakeConnection(packets(END))
    list(client(connection, start).events())
    assert connection.commands[1][1] == struct.pack("<IHI", 4, 3, 0x0A0B0C0D) + b"binlog.000009"


def test_the_dump_from_a_gtid_set() -> None:
    """0x1e: flags 2, id 4, length of no file 4, offset 8, length of the set 4, set."""
    connection = FakeConnection(packets(END))
    gtids = GtidSet.parse(f"{UUID}:1-5:7")
    list(client(connection, GtidPosition(gtids)).events())
    encoded = encode_gtid_set(gtids)
    head = b"\x03\0" + b"\x0d\x0c\x0b\x0a" + bytes(4) + b"\x04" + bytes(7)
    assert connection.commands[1] == (0x1E, head + struct.pack("<I", len(encoded)) + encoded)


def test_gtid_sets_are_encoded_with_open_ends() -> None:
    """Sources 8; UUID 16, intervals 8, first and after-last 8 each."""
    assert encode_gtid_set(GtidSet()) == bytes(8)
    plain = encode_gtid_set(GtidSet.parse(f"{UUID}:1-5:7"))
    assert plain == struct.pack("<Q", 1) + UUID_BYTES + struct.pack("<QQQQQ", 2, 1, 6, 7, 8)


def test_gtid_sets_with_tags_are_encoded_in_their_own_form() -> None:
    """The number of sources between two ones; every source with its tag's length (shifted by one
    bit) and tag, empty for none."""
    tagged = encode_gtid_set(GtidSet.parse(f"{UUID}:1-5,{UUID}:abc:2"))
    assert tagged[:8] == b"\x01\x02\0\0\0\0\0\x01"
    assert tagged[8:] == (
        UUID_BYTES + b"\0" + struct.pack("<QQQ", 1, 1, 6) + UUID_BYTES + b"\x06abc" + struct.pack("<QQQ", 1, 2, 3)
    )
