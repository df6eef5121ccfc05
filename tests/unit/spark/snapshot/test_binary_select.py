"""A SELECT over a socket: whatever the peer does, a result without its end packet raises what a
lost connection raises."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from cdcsync_core.errors import DecodeError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.sessions.failures import map_error
from cdcsync_spark.snapshot.splits.binary_select import read_select, select_list
from support.results import EOF, KILLED, definition, packets, response, row

TABLE = Capture(
    SourceTable(
        TableId("shop", "t"),
        (Column("i`d", SourceType.parse("int"), False), Column("secret", SourceType.parse("blob"))),
    ),
    ("i`d",),
    frozenset({"secret"}),
)
DEFINITIONS = [definition("i`d", 3)]
ROWS = [row([struct.pack("<i", i)]) for i in range(3000)]
RESULT = response(DEFINITIONS, ROWS)
#: OK, statement 7, one column, no parameters, filler, no warnings; the column; EOF
PREPARED = [struct.pack("<BIHHBH", 0, 7, 1, 0, 0, 0), DEFINITIONS[0], EOF]


class Packet:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def get_all_data(self) -> bytes:
        return self._payload


class PairConnection:
    """What read_select uses of PyMySQL's, over one end of a pair of sockets."""

    client_flag = 0
    server_capabilities = 0xFFFFFFFF

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._sock: socket.socket | None = sock
        self._read_timeout = timeout
        self._prepared = iter(PREPARED)
        self.commands: list[tuple[int, Any]] = []

    def query(self, sql: str) -> None:
        self.commands.append((3, sql))

    def _execute_command(self, command: int, payload: Any) -> None:
        self.commands.append((command, payload))

    def _read_packet(self) -> Packet:
        return Packet(next(self._prepared))

    def _force_close(self) -> None:
        if self._sock:
            self._sock.close()
        self._sock = None


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def read(connection: PairConnection) -> list[int]:
    return [i for d in read_select(connection, TABLE, "SELECT ...") for i in d.batch.column(0).to_pylist()]  # type: ignore[arg-type]


def sent(theirs: socket.socket, data: bytes, then_close: bool = False) -> threading.Thread:
    def send() -> None:
        theirs.sendall(data)
        if then_close:
            theirs.close()

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_result(pair: tuple[socket.socket, socket.socket]) -> None:
    """Prepared, executed without a cursor and once, closed, with texts as stored; the socket's
    timeout is as before."""
    connection = PairConnection(pair[0], timeout=120)
    sender = sent(pair[1], RESULT)
    assert read(connection) == list(range(3000))
    sender.join()
    assert connection.commands == [
        (3, "SET character_set_results = NULL"),
        (0x16, "SELECT ..."),
        (0x17, b"\7\0\0\0" + b"\0" + b"\1\0\0\0"),
        (0x19, b"\7\0\0\0"),
        (3, "SET character_set_results = utf8mb4"),
    ]
    assert pair[0].gettimeout() == 120


def test_a_result_that_trickles(pair: tuple[socket.socket, socket.socket]) -> None:
    """A server that pauses longer than the reader waits is not gone."""
    connection = PairConnection(pair[0], timeout=120)
    rows = read_select(connection, TABLE, "SELECT ...")  # type: ignore[arg-type]
    cut = len(RESULT) - 5
    pair[1].sendall(RESULT[:cut])
    found = next(rows).batch.num_rows
    pair[1].sendall(RESULT[cut:])
    assert found + sum(d.batch.num_rows for d in rows) == 3000


@pytest.mark.parametrize("length", [0, 3, 40, len(RESULT) // 2, len(RESULT) - 9, len(RESULT) - 1])
def test_a_connection_that_breaks_off_is_lost(length: int, pair: tuple[socket.socket, socket.socket]) -> None:
    connection = PairConnection(pair[0], timeout=120)
    sender = sent(pair[1], RESULT[:length], then_close=True)
    with pytest.raises(pymysql.err.OperationalError) as caught:
        read(connection)
    sender.join()
    assert map_error(caught.value, "reading").reason is Reason.SOURCE_UNREACHABLE
    assert connection._sock is None


@pytest.mark.parametrize("length", [0, 40, len(RESULT) - 9])
def test_a_silent_connection_is_lost(length: int, pair: tuple[socket.socket, socket.socket]) -> None:
    connection = PairConnection(pair[0], timeout=0.2)
    pair[1].sendall(RESULT[:length])
    with pytest.raises(pymysql.err.OperationalError) as caught:
        read(connection)
    assert caught.value.args[0] == 2013
    assert map_error(caught.value, "reading").reason is Reason.SOURCE_UNREACHABLE


@pytest.mark.parametrize("rows", [0, 1, 2999])
def test_an_error_packet_raises_what_it_says(rows: int, pair: tuple[socket.socket, socket.socket]) -> None:
    connection = PairConnection(pair[0], timeout=120)
    sender = sent(pair[1], response(DEFINITIONS, ROWS[:rows], KILLED))
    with pytest.raises(pymysql.err.OperationalError) as caught:
        read(connection)
    sender.join()
    assert caught.value.args[0] == 1317


def test_an_error_packet_in_the_place_of_a_result(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(b"".join(packets([KILLED])))
    with pytest.raises(pymysql.err.OperationalError, match="interrupted"):
        read(PairConnection(pair[0], timeout=120))


def test_what_is_no_protocol_is_a_decode_error(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises((DecodeError, pymysql.err.OperationalError)):
        read(PairConnection(pair[0], timeout=0.2))


def test_every_captured_column_is_asked_for_by_name() -> None:
    """`*` leaves invisible columns out; a FLOAT needs no cast, its bytes are exact."""
    assert select_list(TABLE) == "`i``d`"
