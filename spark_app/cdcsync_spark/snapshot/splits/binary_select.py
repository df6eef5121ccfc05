"""One SELECT through the binary protocol, on a connection that PyMySQL opened.

PyMySQL does what is hard to get right (handshake, TLS, authentication, session); a result's bytes
are read past it, from its socket, because a Python object for each packet and cell costs ten times
what decoding whole columns costs (`wire.binaryrow`).

Why a short read is never accepted: rows end with the server's end packet alone. A closed or silent
connection is the same lost connection that PyMySQL would report, an error packet the same error,
wherever in the result it comes.

Text comes as it is stored: without `character_set_results` the server converts nothing. So bytes
that are no character are the same as in the binlog; converted, they would be question marks. The
columns' definitions prove it: they name their own character sets. Source: MySQL source
documentation, "COM_STMT_PREPARE", "COM_STMT_EXECUTE".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Self

import pymysql
from pymysql.constants import CR

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import quote
from cdcsync_mysql.sessions.connection import Connection
from cdcsync_mysql.sessions.protocol import (
    deprecates_eof,
    drop,
    read_payload,
    read_timeout_of,
    restore_read_timeout,
    send_command,
    skip_packet,
    socket_of,
)
from cdcsync_spark.wire.resultset.binary_row import DecodedResult, RowDecoder
from cdcsync_spark.wire.resultset.packets import Payloads, ResultPackets
from cdcsync_spark.wire.resultset.response import Definition, ResultSet

_PREPARE, _EXECUTE, _CLOSE = 0x16, 0x17, 0x19
#: zero, the statement's id, columns, parameters
_PREPARED = struct.Struct("<BIHH")
#: after this silence the received bytes are parsed: a result's end may be among them
_PAUSE_SECONDS = 0.05


def select_list(table: Capture) -> str:
    """Every captured column by name: invisible and generated ones are left out of a `*`."""
    return ", ".join(quote(c.name) for c in table.captured)


def read_select(connection: Connection, table: Capture, sql: str) -> Iterator[DecodedResult]:
    """The rows of `sql`, whose columns are `table`'s captured ones, in batches of a few MiB.

    The connection is idle again at the end; if that is not reached it must be closed. Raises
    CdcError and pymysql's errors.
    """
    connection.query("SET character_set_results = NULL")
    statement = _prepare(connection, sql)
    send_command(connection, _EXECUTE, struct.pack("<IBI", statement, 0, 1))
    with _Response(connection) as response:
        decoder = RowDecoder(table, response.definitions())
        while not response.ended:
            yield from decoder.decode(response.rows())
    send_command(connection, _CLOSE, struct.pack("<I", statement))
    connection.query("SET character_set_results = utf8mb4")


def _prepare(connection: Connection, sql: str) -> int:
    """The statement's id. The response describes the columns, too; those of the result count, as
    they come with the rows."""
    send_command(connection, _PREPARE, sql)
    answer = read_payload(connection)
    if len(answer) < _PREPARED.size or answer[0]:
        raise DecodeError(f"an answer that begins with {answer[:8].hex()}", needed="a prepared statement")
    _, statement, columns, parameters = _PREPARED.unpack_from(answer)
    for count in (parameters, columns):
        for _ in range(count + (count > 0 and not deprecates_eof(connection))):
            skip_packet(connection)
    return int(statement)


class _Response:
    """A result set from a connection's socket. Use as a context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        sock = socket_of(connection)
        assert sock is not None, "a statement was just prepared on it"
        self._sock = sock
        self._packets = ResultPackets()
        self._result = ResultSet(self._packets, deprecate_eof=deprecates_eof(connection))
        self._timeout = read_timeout_of(connection) or float("inf")
        self._silence = 0.0
        #: bytes arrived since the result was parsed
        self._has_new = False

    def __enter__(self) -> Self:
        self._sock.settimeout(_PAUSE_SECONDS)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        restore_read_timeout(self._connection)

    @property
    def ended(self) -> bool:
        return self._result.ended

    def definitions(self) -> list[Definition]:
        while (definitions := self._result.definitions()) is None:
            self._raise_error()
            self._receive()
        return definitions

    def rows(self) -> Payloads:
        """As many as the buffer holds, fewer where the server pauses or has no more."""
        while not self._packets.full and not (self._has_new and self._result.may_have_ended):
            if not self._receive():
                break
        self._has_new = False
        rows = self._result.rows()
        self._raise_error()
        return rows

    def _raise_error(self) -> None:
        if self._result.error:
            pymysql.err.raise_mysql_exception(self._result.error)

    def _receive(self) -> bool:
        """False after a pause without a byte."""
        try:
            count = self._sock.recv_into(self._packets.room())
        except TimeoutError as e:
            self._silence += _PAUSE_SECONDS
            if self._silence < self._timeout:
                return False
            raise self._lost(e) from e
        except OSError as e:
            raise self._lost(e) from e
        if not count:
            raise self._lost("the server closed it")
        self._silence, self._has_new = 0.0, True
        self._packets.filled(count)
        return True

    def _lost(self, why: object) -> pymysql.err.OperationalError:
        drop(self._connection)
        return pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({why})")
