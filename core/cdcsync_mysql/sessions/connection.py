"""Connections to the source: authenticated, encrypted as asked, with a session that inherits
nothing that matters.

Why it is right: credentials are read from their files at each connect, so a rotated secret works at
the next one and no object here holds a secret that could be printed; TLS that is asked for is never
given up silently, and a given authority is always used; a server that asks for a file gets none,
and the password itself goes to no server that is not verified, save where the spec accepts it
(`authentication`), so that a server in the middle gets neither files nor passwords; every session
has the profile of rule R1 and every error comes in the product's words.
"""

from __future__ import annotations

import codecs
import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import pymysql
from pymysql.constants import CLIENT, CR
from pymysql.cursors import Cursor, DictCursor, SSCursor
from pymysql.protocol import MysqlPacket

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.networks import networks_of_the_run
from cdcsync_mysql.sessions.authentication import CACHING_SHA2, SHA256, plugins
from cdcsync_mysql.sessions.failures import LOCK_WAIT, login_refused, map_error
from cdcsync_mysql.sessions.hosts import first_fit
from cdcsync_mysql.sessions.protocol import answered_within
from cdcsync_mysql.sessions.question import LOGIN_SECONDS, AnswerLimits, Question, out_of_memory, out_of_time
from cdcsync_mysql.sessions.session import apply_profile
from cdcsync_mysql.sessions.version import flavor_of, parse_version

if TYPE_CHECKING:  # the specification's models take a third of a second to import, and a reader does without them
    from cdcsync_core.resource.spec import SourceSpec

__all__ = ["Connection", "Source", "Tls", "connect", "fetch", "fetch_dicts", "map_error", "source_from_spec"]

Connection: TypeAlias = "pymysql.connections.Connection[Any]"
TlsMode = Literal["disabled", "required", "verify-ca", "verify-identity"]
_CONNECT_SECONDS = 10
_WRITE_SECONDS = 60
#: of one packet before the login; a greeting, a certificate's key or an error is less than one KiB
_LOGIN_BYTES = 64 * 1024
#: a text of the catalog may hold other bytes (the default of a BINARY column): they come as lone
#: surrogates, as the names of files do, so that a table's text disturbs no other's
_UTF8_OR_BYTES = "cdcsync_utf8_or_bytes"
#: what PyMySQL raises at bytes that are no protocol of a server; RuntimeError where it is asked for
#: a file (LOAD DATA LOCAL)
_UNINTELLIGIBLE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, struct.error)
#: of an answer that is kept as a whole, where no question bounds it: a captured column is a row
_MOST = AnswerLimits(1_000_000, 128 * 2**20)
#: of a row that is read as it comes: the largest max_allowed_packet, and what frames it
_ROW_BYTES = 2**30 + 2**20
#: for such an answer to come, beside the longest silence
_ANSWER_SECONDS = 300.0


@dataclass(frozen=True)
class Tls:
    """`ca`, `cert` and `key` are PEM files. `verify-ca` checks the certificate's issuer, and so
    does `required` where there is a `ca`; `verify-identity` also the host's name in it. `required`
    without a `ca` encrypts and knows no peer. `allow_unverified`: such a peer, and one without TLS,
    may get the password itself."""

    mode: TlsMode = "required"
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    allow_unverified: bool = False

    @property
    def verified(self) -> bool:
        return self.mode in ("verify-ca", "verify-identity") or (self.mode == "required" and self.ca is not None)


@dataclass(frozen=True)
class Source:
    """Where the source is and which files hold the account. Holds no secret; can be pickled without
    a `question`, within whose bounds its connections are where there is one. Of `host` and
    `others`, in that order, a connection takes one by `first_fit`, which prefers the server of the
    binlog `followed`."""

    host: str
    port: int
    username_file: Path
    password_file: Path
    tls: Tls = Tls()
    question: Question | None = field(default=None, compare=False, repr=False)
    others: tuple[str, ...] = ()
    followed: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.host, *self.others)

    def of_hosts(self, host: str, *others: str) -> Source:
        return replace(self, host=host, others=others)

    def without(self, host: str) -> Source | None:
        """Its other hosts; None where there are none."""
        left = [other for other in self.hosts if other != host]
        return self.of_hosts(*left) if left else None


def source_from_spec(source: SourceSpec, secrets_dir: Path) -> Source:
    """The source of a manifest; `secrets_dir` holds `<secret name>/<key>` files. On loopback no
    other machine can answer."""
    from cdcsync_core.resource.connection_spec import is_loopback

    account, tls = source.credentials_secret_ref, source.tls
    ca, pair = tls.ca_secret_ref, tls.client_cert_secret_ref
    first, *others = source.servers
    return Source(
        first,
        source.port,
        secrets_dir / account.name / account.username_key,
        secrets_dir / account.name / account.password_key,
        Tls(
            tls.mode,
            ca=secrets_dir / ca.name / ca.key if ca else None,
            cert=secrets_dir / pair.name / "tls.crt" if pair else None,
            key=secrets_dir / pair.name / "tls.key" if pair else None,
            allow_unverified=tls.allow_unverified or all(map(is_loopback, source.servers)),
        ),
        others=tuple(others),
        followed=source.followed,
    )


def _decode(data: Any, _errors: str = "strict", /) -> tuple[str, int]:
    return codecs.utf_8_decode(data, "surrogateescape", True)


def _codec(name: str) -> codecs.CodecInfo | None:
    return codecs.CodecInfo(codecs.utf_8_encode, _decode, name=name) if name == _UTF8_OR_BYTES else None


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
        except _UNINTELLIGIBLE as error:
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
        except (pymysql.err.InternalError, *_UNINTELLIGIBLE) as error:
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
        found: bytes = cast(Any, super())._read_bytes(count)
        return found

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


def connect(
    source: Source,
    *,
    max_seconds: int = 60,
    read_timeout: float | None = None,
    stream: bool = False,
    loads: bool = False,
) -> Connection:
    """A connection with the session profile of rule R1; its `source` has the host that was taken.

    `max_seconds` bounds a statement; `read_timeout` is the silence
    in seconds after which the server counts as gone (default: `max_seconds` and half a minute);
    with `stream` its cursors read rows as they come, in bounded memory; with `loads` the server may
    ask for the rows of LOAD DATA LOCAL (`protocol.load_local`), and of no other statement. Raises
    `CdcError`: AuthenticationFailed, SourceUnreachable, SpecInvalid (no credential file),
    InternalError (session profile).
    """
    open_one = partial(_connect, max_seconds=max_seconds, read_timeout=read_timeout, stream=stream, loads=loads)
    if not source.others:
        return open_one(source)
    return first_fit(source, partial(open_one, login_silence=_CONNECT_SECONDS), fetch)


def _connect(
    source: Source,
    *,
    max_seconds: int,
    read_timeout: float | None,
    stream: bool,
    loads: bool,
    login_silence: float | None = None,
) -> SourceConnection:
    """`login_silence` is how long the host may be silent before the login is done."""
    silence = read_timeout or max_seconds + 30
    doing = f"connecting to {source.host}:{source.port}"
    user, password = _credential(source.username_file), _credential(source.password_file)
    context = _tls_context(source.tls)
    try:
        connection = SourceConnection(
            host=source.host,
            port=source.port,
            user=user.decode(),
            password=cast(Any, password),
            charset="utf8mb4",
            autocommit=True,
            cursorclass=SSCursor if stream else Cursor,
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=cast(Any, login_silence or silence),
            write_timeout=_WRITE_SECONDS,
            local_infile=False,  # which would send files
            client_flag=CLIENT.LOCAL_FILES if loads else 0,
            auth_plugin_map=plugins(reveal=source.tls.verified or source.tls.allow_unverified),
            program_name="cdcsync",
            ssl=cast(Any, context),
            ssl_disabled=context is None,
            defer_connect=True,
        )
        connection.source = source
        connection.verified_positions = set()
        connection.answer_seconds += silence
        _open(connection, max_seconds)
        cast(Any, connection)._read_timeout = silence
    except (pymysql.MySQLError, OSError) as e:
        error = _mapped(source, e, doing)
        raise login_refused(error, source.tls.mode != "disabled", source.tls.cert is not None) from e
    except _UNINTELLIGIBLE as e:
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            f"{doing}: an answer that cannot be understood ({type(e).__name__})",
            needed="a MySQL or MariaDB server",
            remedy="check spec.source.host and port",
        ) from e
    return connection


def fetch(connection: Connection, sql: str, args: Sequence[object] = (), *, doing: str = "") -> list[tuple[Any, ...]]:
    """All rows of one statement; raises `CdcError` that begins with `doing` (default: the
    statement's beginning)."""
    return _fetch(connection, Cursor, sql, args, doing)


def fetch_dicts(
    connection: Connection, sql: str, args: Sequence[object] = (), *, doing: str = ""
) -> list[dict[str, Any]]:
    """The same, each row as a dictionary by column names in upper case, for results whose columns
    differ by server."""
    rows = _fetch(connection, DictCursor, sql, args, doing)
    return [{str(name).upper(): value for name, value in row.items()} for row in rows]


def _fetch(
    connection: Connection, cursor_class: type[Cursor], sql: str, args: Sequence[object], doing: str
) -> list[Any]:
    try:
        with connection.cursor(cursor_class) as cursor:
            cursor.execute(sql, tuple(args) or None)
            rows = list(cursor.fetchall())
            if cursor.warning_count:
                _refuse_part(connection)
            return rows
    except (pymysql.MySQLError, OSError) as e:
        raise _mapped(getattr(connection, "source", None), e, doing or sql[:60]) from e


def _refuse_part(connection: Connection) -> None:
    """Raises pymysql's error where the catalog leaves out what it has of a table that another
    session locks: MariaDB answers without it, and with a warning. Raises InternalError where
    MariaDB does not list all warnings, of which one may be that; MySQL has no such answers, and no
    list that any account may make longer."""
    with connection.cursor(Cursor) as cursor:
        cursor.execute("SHOW WARNINGS")
        warnings = cursor.fetchall()
        cursor.execute("SELECT @@warning_count")
        ((count,),) = cursor.fetchall()
    locked = [text for _, code, text in warnings if code == LOCK_WAIT]
    if locked:
        raise pymysql.err.OperationalError(LOCK_WAIT, locked[0])
    if int(count) > len(warnings) and flavor_of(str(cast(Any, connection).get_server_info())) == "mariadb":
        raise fail(
            Reason.INTERNAL_ERROR,
            f"an answer with {count} warnings, of which the server lists {len(warnings)}",
            needed="all of them, since an answer of the catalog that is not whole shows only there",
            remedy="SHOW WARNINGS after the same statement says what to repair; the sync tries again by itself",
        )


def _mapped(source: Source | None, error: BaseException, doing: str) -> CdcError:
    if source is not None and source.question is not None and source.question.stopped:
        return out_of_time()
    return map_error(error, doing)


def _open(connection: SourceConnection, max_seconds: int) -> None:
    connection.connect()
    try:
        greeting = str(cast(Any, connection).get_server_info())
        connection.encoding = _UTF8_OR_BYTES
        apply_profile(connection, flavor_of(greeting), parse_version(greeting), max_seconds)
    except BaseException:
        cast(Any, connection)._force_close()
        raise


def _credential(file: Path) -> bytes:
    """A file's bytes; a line end that an editor added is no part of a credential."""
    try:
        return file.read_bytes().rstrip(b"\r\n")
    except OSError as e:
        raise fail(
            Reason.SPEC_INVALID,
            f"no readable credential in {file.parent.name}/{file.name}: {e.strerror}",
            needed="the Secret of spec.source.credentialsSecretRef with its keys",
        ) from e


def _tls_context(tls: Tls) -> ssl.SSLContext | None:
    if tls.mode == "disabled":
        return None
    try:
        if not tls.verified:
            context = ssl.SSLContext(
                ssl.PROTOCOL_TLS_CLIENT
            )  # no peer is verified: to load the system's authorities costs 45 ms of CPU
        else:
            context = ssl.create_default_context(cafile=tls.ca)
        # The certificates that MySQL makes for itself lack what strict X.509 asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = tls.mode == "verify-identity"
        context.verify_mode = ssl.CERT_REQUIRED if tls.verified else ssl.CERT_NONE
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as e:
        raise fail(
            Reason.SPEC_INVALID,
            f"the certificates of spec.source.tls cannot be loaded: {e}",
            needed="PEM files",
            remedy="correct the Secrets of caSecretRef and clientCertSecretRef",
        ) from e
    return context
