"""What a source answers after the login, to a program that asks without a question's bounds, as a
driver does: whatever it is, it ends as a fault of that source, in bounded time and memory."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.sessions import connection as connections
from cdcsync_mysql.sessions import pymysql_adapter
from cdcsync_mysql.sessions.connection import Source, Tls, connect, fetch, fetch_dicts, map_error
from cdcsync_mysql.sessions.protocol import answered_within, load_local
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_mysql.sessions.question import AnswerLimits
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.snapshot.splits.binary_select import read_select
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from support import hostile
from support.hostile import COLUMN, END, Hostile, answering

pytestmark = pytest.mark.timeout(240)
Way = Callable[[Hostile, Any], None]
_TABLE = Capture(SourceTable(TableId("d", "t"), (Column("id", SourceType.parse("int"), nullable=False),)), ("id",))
#: a file that any account may read
_FILE = b"/etc/hostname"
#: no answers of a server
_MALFORMED = {
    "a file is asked for": [b"\xfb" + _FILE],
    "an empty packet": [b""],
    "a count that is cut": [b"\xfe\xff"],
    "no end of the columns": [b"\x01", COLUMN, COLUMN],
    "a column that is cut": [b"\x01", COLUMN[:9], END],
    "a column whose length overflows": [b"\x01", b"\xfe" + b"\xff" * 8 + COLUMN, END],
    "fewer values than columns": [b"\x02", COLUMN, COLUMN, END, b"\x01x", END],
    "a value that is cut": [b"\x01", COLUMN, END, b"\x64x", END],
    "a value whose length overflows": [b"\x01", COLUMN, END, b"\xfe" + b"\xff" * 7, END],
    "an error that is cut": [b"\xff\x01"],
}


def _source(port: int, folder: Path) -> Source:
    (folder / "username").write_text("cdc")
    (folder / "password").write_text("the password")
    return Source("127.0.0.1", port, folder / "username", folder / "password", Tls("disabled"))


@contextmanager
def _connected(
    way: Way, folder: Path, monkeypatch: pytest.MonkeyPatch, *, loads: bool = False
) -> Iterator[tuple[Hostile, SourceConnection]]:
    """Connects without the profile, which such a server does not take."""
    monkeypatch.setattr(connections, "apply_profile", lambda *_: None)
    server = Hostile(way)
    with server.listening() as port:
        connection = connect(_source(port, folder), loads=loads)
        assert isinstance(connection, SourceConnection)
        try:
            yield server, connection
        finally:
            connection._force_close()


def _ends(ask: Callable[[], object]) -> CdcError:
    with pytest.raises(CdcError) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize("payloads", _MALFORMED.values(), ids=_MALFORMED)
def test_a_malformed_answer_is_the_sources_fault(
    payloads: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in (fetch, fetch_dicts):
        with _connected(answering(*payloads), tmp_path, monkeypatch) as (_, connection):
            error = _ends(lambda: asked(connection, "SELECT 1"))  # noqa: B023 (called at once)
            assert (error.reason, connection.open) == (Reason.SOURCE_UNREACHABLE, False)


@pytest.mark.parametrize("payloads", _MALFORMED.values(), ids=_MALFORMED)
def test_a_malformed_answer_to_a_dump_or_a_split_is_named(
    payloads: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FilePosition(LogOffset("binlog.000001", 4))
    with _connected(answering(*payloads), tmp_path, monkeypatch) as (_, connection):
        client = BinlogClient(connection, flavor="mysql", start=start, replica_id=7, heartbeat_seconds=1)
        assert _ends(lambda: list(client.arrivals())).reason is Reason.SOURCE_UNREACHABLE
    with _connected(answering(*payloads), tmp_path, monkeypatch) as (_, connection):
        with pytest.raises((CdcError, pymysql.MySQLError)) as caught:
            list(read_select(connection, _TABLE, "SELECT id FROM d.t"))
        assert map_error(caught.value, "reading").reason in (Reason.SOURCE_UNREACHABLE, Reason.TYPE_UNSUPPORTED)


def test_no_file_and_no_password_goes_to_a_server_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOAD DATA LOCAL, whose answer would be the file; the login is a challenge's response."""
    got = bytearray()

    def asking(server: Hostile, client: Any) -> None:
        class Noting:
            def recv(self, size: int) -> bytes:
                found = client.recv(size)
                got.extend(found)
                return bytes(found)

            def sendall(self, data: bytes) -> None:
                client.sendall(data)

        answering(b"\xfb" + os.fsencode(tmp_path / "password"))(server, Noting())

    for loads in (False, True):
        with _connected(asking, tmp_path, monkeypatch, loads=loads) as (_, connection):
            _ends(lambda: fetch(connection, "SELECT 1"))
            assert not connection.open
    with _connected(asking, tmp_path, monkeypatch, loads=True) as (_, connection):
        with pytest.raises(pymysql.MySQLError):  # a request in place of the answer to the rows
            load_local(connection, "LOAD DATA LOCAL", [b"our rows"])
        assert not connection.open
    assert b"SELECT 1" in got
    assert b"our rows" in got
    assert b"the password" not in got


def test_an_answer_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pymysql_adapter, "_MOST", AnswerLimits(5000, 2**20))
    for way, found in ((hostile.endless_rows, "5000 rows"), (hostile.one_endless_value, "1048576 bytes")):
        with _connected(way, tmp_path, monkeypatch) as (server, connection):
            error = _ends(lambda: fetch(connection, "SELECT 1"))
        assert (error.reason, f"more than {found}" in error.found) == (Reason.SOURCE_UNREACHABLE, True)
        assert server.sent < 64 * 2**20


def test_an_answer_that_drips_ends_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _connected(answering(b"\x01", COLUMN, END, drips=True), tmp_path, monkeypatch) as (_, connection):
        connection.answer_seconds = 0.5
        error = _ends(lambda: fetch(connection, "SELECT 1"))
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "no whole answer within 0.5 s" in error.found
    assert "question" not in {thread.name for thread in threading.enumerate()}, "the login's clock has ended"


def _dripping_dump(server: Hostile, client: Any) -> None:
    """Every statement succeeds; the dump's first event never comes to its end."""
    hostile.log_in(server, client)
    while command := client.recv(65536):
        if command[4] == 0x12:
            server.send(client, b"\xff\xff\x00\x01\x00")
            server.drip(client)
        server.packet(client, 1, hostile.OK)


def test_a_dump_that_drips_ends_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never silent; the time-out of its socket is far longer than a pause of the server."""
    with _connected(_dripping_dump, tmp_path, monkeypatch) as (_, connection):
        start = FilePosition(LogOffset("binlog.000001", 4))
        client = BinlogClient(
            connection, flavor="mysql", start=start, replica_id=7, heartbeat_seconds=1, silence_seconds=4
        )
        error = _ends(lambda: list(client.arrivals()))
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "less than 1024 bytes a second of a packet" in error.found


def _split(*, drips: bool) -> Way:
    """A server whose SELECT, prepared or not, has rows without end, or a row without end."""

    def way(server: Hostile, client: Any) -> None:
        hostile.log_in(server, client)
        while command := client.recv(65536):
            if command[4] == 0x16:
                server.packet(client, 1, struct.pack("<BIHHBH", 0, 7, 1, 0, 0, 0))
                server.packet(client, 2, COLUMN)
                server.packet(client, 3, END)
            elif command[4] == 0x17 or b"SELECT" in command:
                value = b"\x00\x00\x01x" if command[4] == 0x17 else b"\x01x"
                for number, payload in enumerate((b"\x01", COLUMN, END), start=1):
                    server.packet(client, number, payload)
                if drips:
                    server.send(client, b"\xff\x00\x00\x04")
                    server.drip(client)
                numbers = ((4 + n) & 0xFF for n in range(256))
                block = b"".join(len(value).to_bytes(3, "little") + bytes([n]) + value for n in numbers)
                while not server.ending.is_set():
                    server.send(client, block)
            else:
                server.packet(client, 1, hostile.OK)

    return way


@pytest.mark.parametrize("decoder", Decoder)
@pytest.mark.parametrize("drips", [False, True])
def test_a_split_without_end_ends_by_the_clock(
    decoder: Decoder, drips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column("c", SourceType.parse("varchar(5)", "utf8mb4"), nullable=False)
    table = Capture(SourceTable(TableId("d", "t"), (column,)), ("c",))
    start = FilePosition(LogOffset("binlog.000001", 4))
    with _connected(_split(drips=drips), tmp_path, monkeypatch) as (_, connection):
        lineage: Any = None
        reader = SplitReader(
            connection.source, lineage, table, Split(None, None), start, 1, decoder=decoder, grace_seconds=0
        )
        with pytest.raises(pymysql.MySQLError) as caught:
            deque(reader._select(connection), maxlen=0)
    error = map_error(caught.value, "reading")
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "no whole answer within 1 s" in error.found


def _ended_by_the_clock(connection: SourceConnection) -> None:
    with answered_within(connection, 0.01):
        while connection.open:
            time.sleep(0.01)


def test_rows_that_ended_with_the_clock_are_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader saw no error: it may have taken the closed connection for the end of the rows."""
    way = answering(b"\x01", COLUMN, END, END)
    with (
        _connected(way, tmp_path, monkeypatch) as (_, connection),
        pytest.raises(pymysql.OperationalError, match="no whole answer"),
    ):
        _ended_by_the_clock(connection)


def test_a_login_that_drips_ends_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pymysql_adapter, "LOGIN_SECONDS", 0.5)
    for way, tls in ((hostile.dripping_greeting, "disabled"), (hostile.dripping_handshake, "required")):
        with Hostile(way).listening() as port:
            source = _source(port, tmp_path)
            source = Source(source.host, port, source.username_file, source.password_file, Tls(tls))
            assert _ends(lambda: connect(source)).reason is Reason.SOURCE_UNREACHABLE  # noqa: B023 (at once)


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "[]", "{", "7", '{"binary_log_file": "a", "binary_log_position": []}']
)
def test_a_place_that_is_none_is_the_sources_fault(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermark, "fetch", lambda *_, **__: [(value,)])
    facts: Any = SimpleNamespace(log="mysql:uuid")
    connection: Any = object()
    assert _ends(lambda: watermark.log_status_place(connection, facts)).reason is Reason.SOURCE_UNREACHABLE
