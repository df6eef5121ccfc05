"""The one owner of what PyMySQL keeps private: commands and packets below its cursors.

Why it exists: PyMySQL has no public interface for dumps of the binlog, prepared statements and raw
result sets. Its private names are used here, and in the subclass that bounds a connection
(`pymysql_adapter`), so a new version of it is checked in two files.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, cast

import pymysql
from pymysql.constants import COMMAND, CR
from pymysql.protocol import OKPacketWrapper

Connection: TypeAlias = "pymysql.connections.Connection[Any]"
_DEPRECATE_EOF = 1 << 24


def send_command(connection: Connection, command: int, payload: bytes | str) -> None:
    cast(Any, connection)._execute_command(command, payload)


def read_payload(connection: Connection) -> bytes:
    """The next packet's; raises pymysql's error for an error packet."""
    return bytes(cast(Any, connection)._read_packet().get_all_data())


def skip_packet(connection: Connection) -> None:
    """The same, without its bytes."""
    cast(Any, connection)._read_packet()


class LoadedRows(NamedTuple):
    """How many rows a table got, and how many warnings there were."""

    rows: int
    warnings: int


def load_local(connection: Connection, statement: str, parts: Iterable[bytes | memoryview]) -> LoadedRows:
    """Runs LOAD DATA LOCAL with `parts` as its file, each shorter than a packet, whatever name the
    server asks for. Raises pymysql's error, and has not begun with `parts` then if the server
    refuses the statement."""
    pymysql_connection = cast(Any, connection)
    with answered_within(connection, pymysql_connection.answer_seconds):
        send_command(connection, COMMAND.COM_QUERY, statement)
        if not pymysql_connection._read_packet().is_load_local_packet():
            drop(connection)
            raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, "an answer to LOAD DATA that asks for no rows")
        return _send_rows(connection, parts)


def _send_rows(connection: Connection, parts: Iterable[bytes | memoryview]) -> LoadedRows:
    pymysql_connection = cast(Any, connection)
    try:
        for part in parts:
            pymysql_connection.write_packet(part)
        pymysql_connection.write_packet(b"")
        packet = pymysql_connection._read_packet()
    except pymysql.MySQLError:
        raise
    except BaseException:
        drop(connection)  # the server waits for rows
        raise
    if not packet.is_ok_packet():
        drop(connection)
        raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, "an answer to rows that is none")
    answer: Any = OKPacketWrapper(packet)
    return LoadedRows(answer.affected_rows, answer.warning_count)


def socket_of(connection: Connection) -> socket.socket | None:
    """None: it is closed."""
    sock: socket.socket | None = cast(Any, connection)._sock
    return sock


def read_timeout_of(connection: Connection) -> float | None:
    seconds: float | None = cast(Any, connection)._read_timeout
    return seconds


def restore_read_timeout(connection: Connection) -> None:
    """After the socket had another one. PyMySQL keeps the one that it set last, to set it once."""
    sock, pymysql_connection = socket_of(connection), cast(Any, connection)
    if sock is not None:
        sock.settimeout(pymysql_connection._read_timeout)
        pymysql_connection._current_timeout = pymysql_connection._read_timeout


def deprecates_eof(connection: Connection) -> bool:
    """Whether both sides agreed on that; PyMySQL does not ask for it."""
    both = cast(Any, connection)
    return bool(both.client_flag & both.server_capabilities & _DEPRECATE_EOF)


def drop(connection: Connection) -> None:
    """Closes the socket without COM_QUIT."""
    cast(Any, connection)._force_close()


def interrupt(connection: Connection) -> None:
    """Closes it, also while another thread reads; may be called again."""
    sock = socket_of(connection)
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            sock = None  # the server was faster
    drop(connection)


@contextmanager
def answered_within(connection: Connection, seconds: float) -> Iterator[None]:
    """Keeps a clock around what reads an answer: a server that sends a byte now and then, or rows
    without end, is not silent. Raises pymysql's error of a lost connection once the time has
    passed, however the reading ended: what was read then may lack its end."""
    over = threading.Event()

    def end() -> None:
        over.set()
        interrupt(connection)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (pymysql.MySQLError, OSError, ValueError, AttributeError):
        # PyMySQL raises ValueError and AttributeError when another thread closes it meanwhile
        if not over.is_set():
            raise
    finally:
        timer.cancel()
    if over.is_set():
        _give_up_answer(connection)
        raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"no whole answer within {seconds:g} s")


def _give_up_answer(connection: Connection) -> None:
    """Forgets the result: PyMySQL would read the rest of one that is being read row by row."""
    if result := cast(Any, connection)._result:
        result.unbuffered_active = False
