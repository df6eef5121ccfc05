"""The response to COM_STMT_EXECUTE: how it begins, its rows, how it ends. No I/O.

A result is complete if and only if its end packet came, as the last one. An error packet may come
instead of any other; it ends the result, too, and must be raised by the caller, who knows errors.
Everything else is a DecodeError, never a short result. Source: MySQL source documentation, "Binary
Protocol Resultset", "Column Definition", "EOF_Packet", "ERR_Packet".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.cursor import Cursor
from cdcsync_spark.wire.resultset.packets import Payloads, ResultPackets

_OK, _ROW, _FILE, _END, _ERROR = 0x00, 0x00, 0xFB, 0xFE, 0xFF
_EOF_SIZE = 5
#: a longer packet cannot be an end packet, which holds two numbers, and a message if at all
_MAX_END = 1 << 16
_MORE_RESULTS = 0x0008
#: more columns than a table can have
_MAX_COLUMNS = 1 << 13


class Definition(NamedTuple):
    """A column of the result: the type code of the wire, the flags, the collation's id (63:
    bytes)."""

    name: str
    code: int
    flags: int
    collation: int


class ResultSet:
    """Fill `packets`; then ask `definitions` until they are there, and `rows` until `ended`.

    `deprecate_eof`: the connection agreed on CLIENT_DEPRECATE_EOF, so no packet stands between
    definitions and rows. `error` is the server's error packet where one came: the result is worth
    nothing then.
    """

    def __init__(self, packets: ResultPackets, *, deprecate_eof: bool = False) -> None:
        self.packets = packets
        self.ended = False
        self.error = b""
        self._deprecate_eof = deprecate_eof
        self._columns: int | None = None
        self._definitions: list[Definition] = []
        self._described = False

    def definitions(self) -> list[Definition] | None:
        """The columns; None as long as they have not come, or where an error came. Raises
        DecodeError."""
        while not self.ended:
            complete = len(self._definitions) == self._columns
            if self._described or (complete and self._deprecate_eof):
                return self._definitions
            payload = self.packets.take_one()
            if payload is None:
                return None
            if payload[:1] == bytes([_ERROR]):
                self._failed(payload)
            elif complete:
                _expect_eof(payload)
                self._described = True
            elif self._columns is None:
                self._columns = _column_count(payload)
            else:
                self._definitions.append(parse_definition(payload))
        return None

    @property
    def may_have_ended(self) -> bool:
        """Whether the last bytes look like the end: asking for rows is worth it."""
        tail = self.packets.last(4 + _EOF_SIZE)
        return tail[:3] == b"\5\0\0" and tail[4:5] == bytes([_END])

    def rows(self) -> Payloads:
        """The rows that came, perhaps none; valid until `packets.room`. Raises DecodeError."""
        payloads = self.packets.take()
        if not len(payloads):
            return payloads
        if (payloads.ends <= payloads.starts).any():
            raise DecodeError("an empty packet among the rows")
        other = np.flatnonzero(payloads.data[payloads.starts] != _ROW)
        if not len(other):
            return payloads
        at = int(other[0])
        self._end(bytes(payloads.data[payloads.starts[at] : payloads.ends[at]][:_MAX_END]))
        if at + 1 < len(payloads) or self.packets.pending:
            raise DecodeError("bytes behind the end of the result")
        return payloads.part(0, at)

    def _end(self, payload: bytes) -> None:
        if payload[0] == _ERROR:
            self._failed(payload)
        elif payload[0] == _END and len(payload) < _MAX_END:
            if self._status(payload) & _MORE_RESULTS:
                raise DecodeError("a result that is followed by another one")
            self.ended = True
        else:
            raise DecodeError(f"a packet among the rows that begins with {payload[:8].hex()}")

    def _status(self, payload: bytes) -> int:
        """An EOF packet has warnings, then the status; an OK packet in its place rows, insert id,
        status, warnings."""
        cursor = Cursor(payload, 1)
        if not self._deprecate_eof:
            _expect_eof(payload)
            cursor.skip(2)
        else:
            cursor.lenenc()
            cursor.lenenc()
        return cursor.uint(2)

    def _failed(self, payload: bytes) -> None:
        if len(payload) < 3:
            raise DecodeError("an error packet without an error number")
        self.error, self.ended = payload, True


def _expect_eof(payload: bytes) -> None:
    if len(payload) != _EOF_SIZE or payload[0] != _END:
        raise DecodeError(f"a packet that begins with {payload[:8].hex()}", needed="an EOF packet")


def _column_count(payload: bytes) -> int:
    if payload[:1] in (bytes([_OK]), bytes([_FILE])):
        raise DecodeError(f"a response that begins with {payload[:8].hex()}", needed="a result set")
    cursor = Cursor(payload)
    count = cursor.lenenc()
    if cursor or count > _MAX_COLUMNS:
        raise DecodeError(f"a result of {count} columns and {cursor.left} bytes more")
    return count


def parse_definition(payload: bytes) -> Definition:
    """Catalog, schema, table, its own name, the column's name, its own name, twelve bytes:
    collation, length, type, flags, decimals."""
    cursor = Cursor(payload)
    for _ in range(4):
        cursor.skip(cursor.lenenc())
    name = cursor.text(cursor.lenenc())
    cursor.skip(cursor.lenenc())
    if cursor.lenenc() != 12 or cursor.left != 12:
        raise DecodeError(f"a column definition that ends with {cursor.left} bytes", needed="12")
    collation = cursor.uint(2)
    cursor.skip(4)
    code, flags = cursor.byte(), cursor.uint(2)
    return Definition(name, code, flags, collation)
