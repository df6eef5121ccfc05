"""PyMySQL's connection, bounded: what is overridden of it is in this file.

Why it exists: PyMySQL reads what a server sends without a bound and has no public place for one. Of
its private names some are overridden here and others are used in `protocol`, so a new version of it
is checked in two files; a test compares what is overridden with the version that is installed.
"""

from __future__ import annotations

import codecs
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pymysql
from pymysql.constants import CR
from pymysql.protocol import MysqlPacket

from cdcsync_core.errors import Reason, fail
from cdcsync_core.resource.networks import networks_of_the_run
from cdcsync_mysql.sessions.authentication import CACHING_SHA2, SHA256
from cdcsync_mysql.sessions.protocol import answered_within, read_timeout_of
from cdcsync_mysql.sessions.question import LOGIN_SECONDS, AnswerLimits, Question, out_of_memory
from cdcsync_mysql.sessions.source import Source

#: of one packet before the login; a greeting, a certificate's key or an error is less than one KiB
_LOGIN_BYTES = 64 * 1024
#: a text of the catalog may hold other bytes (the default of a BINARY column): they come as lone
#: surrogates, as the names of files do, so that a table's text disturbs no other's
UTF8_OR_BYTES = "cdcsync_utf8_or_bytes"
#: what PyMySQL raises at bytes that are no protocol of a server; RuntimeError where it is asked for
#: a file (LOAD DATA LOCAL)
UNINTELLIGIBLE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, struct.error)
#: of an answer that is kept as a whole, where no question bounds it: a captured column is a row
_MOST = AnswerLimits(1_000_000, 128 * 2**20)
#: of a row that is read as it comes: the largest max_allowed_packet, and what frames it
_ROW_BYTES = 2**30 + 2**20
#: for such an answer to come, beside the longest silence
_ANSWER_SECONDS = 300.0


def _decode(data: Any, _errors: str = "strict", /) -> tuple[str, int]:
    return codecs.utf_8_decode(data, "surrogateescape", True)


def _codec(name: str) -> codecs.CodecInfo | None:
    return codecs.CodecInfo(codecs.utf_8_encode, _decode, name=name) if name == UTF8_OR_BYTES else None


codecs.register(_codec)


class SourceConnection(pymysql.connections.Connection):
    """A connection that knows how to make another one like it, and how much it may be sent: little
    before the login, and no answer beyond the limits of its question, or those of any program; rows
    that are read as they come have, without a question, a limit each. What cannot be understood is
    pymysql's own error, and closes it."""

    source: Source
    #: positions whose history was verified on it (see `history`)
    verified_positions: set[object]
    answer_seconds = _ANSWER_SECONDS
    row_bytes = _ROW_BYTES
    _held = 0
    _logged_in = False
    _streams = False
    #: of the packet, and of the answer, that is being read
    _left = _LOGIN_BYTES
    _answer = AnswerLimits()

    def connect(self, sock: socket.socket | None = None) -> None:
        question = self.source.question
        if question is None:
            self._log_in_alone()
        else:
            with question.within(question.login_seconds):
                sock, self._held = question.open(self.source.host, self.source.port)
                super().connect(sock)
        self._logged_in = True

    def set_silence(self, seconds: float) -> None:
        """The silence from now on after which the server counts as gone."""
        cast(Any, self)._read_timeout = seconds

    @contextmanager
    def answers_within(self, seconds: float) -> Iterator[None]:
        """Each answer comes whole in so many seconds, or the server counts as gone. Afterwards the
        connection has the limits that it had before."""
        silence, self.answer_seconds, before = read_timeout_of(self), seconds, self.answer_seconds
        self.set_silence(seconds)
        try:
            yield
        finally:
            cast(Any, self)._read_timeout, self.answer_seconds = silence, before

    def _log_in_alone(self) -> None:
        with Question(networks_of_the_run()) as login, login.within(LOGIN_SECONDS):
            sock, held = login.open(self.source.host, self.source.port)
            super().connect(sock)
            login.release(held)

    def _force_close(self) -> None:
        """Now: the descriptor stays open as long as an error's traceback has its reader."""
        sock = cast("socket.socket | None", cast(Any, self)._sock)
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        cast(Any, super())._force_close()
        source = getattr(self, "source", None)
        if source is not None and source.question is not None:
            source.question.release(self._held)

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        self._streams = unbuffered
        if unbuffered or not self._logged_in or self.source.question is not None:
            return super().query(sql, unbuffered)
        with answered_within(self, self.answer_seconds):
            return super().query(sql, unbuffered)

    def _execute_command(self, command: int, sql: Any) -> None:
        self._answer = self._most
        cast(Any, super())._execute_command(command, sql)

    @property
    def _most(self) -> AnswerLimits:
        return self.source.question.limits if self.source.question is not None else _MOST

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        try:
            affected = cast(Any, super())._read_query_result(unbuffered)
            result = cast(Any, self)._result
            if any(len(row) != result.field_count for row in result.rows or ()):
                raise ValueError("a row of another number of columns than its result")
        except UNINTELLIGIBLE as error:
            raise self._malformed(error) from error
        return affected

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        if not self._logged_in:
            self._left = _LOGIN_BYTES
        elif self._bounded:
            self._answer = AnswerLimits(self._answer.packets - 1, self._answer.bytes)
        else:
            self._left = self.row_bytes
        try:
            packet: MysqlPacket = cast(Any, super())._read_packet(packet_type)
        except (pymysql.err.InternalError, *UNINTELLIGIBLE) as error:
            if isinstance(error, pymysql.err.InternalError) and len(error.args) > 1:
                raise  # the server's own
            raise self._malformed(error) from error
        return packet

    def _malformed(self, error: Exception) -> pymysql.err.OperationalError:
        self.give_up()
        found = f"an answer that cannot be understood ({type(error).__name__})"
        return pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, found)

    def give_up(self) -> None:
        """Closes it without the rest of rows that come one by one, which PyMySQL would read."""
        self._force_close()
        if result := cast(Any, self)._result:
            result.unbuffered_active = False

    @property
    def _bounded(self) -> bool:
        return self.source.question is not None or not self._streams

    def _read_bytes(self, count: int) -> bytes:
        """PyMySQL joins packets without end; so what is read of one is counted here."""
        if not self._logged_in:
            self._left -= count
            self._refuse_beyond(self._left, f"more than {_LOGIN_BYTES} bytes in a packet before the login")
        elif self._bounded:
            self._count(count)
        else:
            self._left -= count
            self._refuse_beyond(self._left, f"a row of more than {self.row_bytes} bytes")
        content: bytes = cast(Any, super())._read_bytes(count)
        return content

    def _count(self, count: int) -> None:
        self._answer = AnswerLimits(self._answer.packets, self._answer.bytes - count)
        most, question = self._most, self.source.question
        self._refuse_beyond(self._answer.packets, f"an answer of more than {most.packets} rows")
        self._refuse_beyond(self._answer.bytes, f"an answer of more than {most.bytes} bytes")
        read = (most.packets - self._answer.packets, most.bytes - self._answer.bytes)
        if question is not None and not question.answered(*read):
            self._force_close()
            raise out_of_memory(question.bound)

    def _refuse_beyond(self, left: int, found: str) -> None:
        if left >= 0:
            return
        self.give_up()
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            f"{self.source.host}:{self.source.port} sends {found}",
            needed="a MySQL or MariaDB server, and answers within the operator's bounds",
            remedy="check spec.source.host and port; an account that may read fewer tables gets shorter answers",
        )

    def _request_authentication(self) -> None:
        """A server that names `sha256_password` in its greeting would get the password in the first
        answer: it gets a challenge's response, and has to ask."""
        named = cast(Any, self)._auth_plugin_name
        tls = self.source.tls
        if named == SHA256 and not (tls.verified or tls.allow_unverified):
            cast(Any, self)._auth_plugin_name = CACHING_SHA2
        cast(Any, super())._request_authentication()
