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

import ssl
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor, DictCursor, SSCursor

from cdcsync_core.account_texts import hidden_texts, without_texts
from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_mysql.sessions.authentication import plugins
from cdcsync_mysql.sessions.failures import LOCK_WAIT, login_refused, map_error
from cdcsync_mysql.sessions.hosts import ASKED_SECONDS, first_fit
from cdcsync_mysql.sessions.pymysql_adapter import UNINTELLIGIBLE, UTF8_OR_BYTES, SourceConnection
from cdcsync_mysql.sessions.question import out_of_time
from cdcsync_mysql.sessions.session import apply_profile
from cdcsync_mysql.sessions.source import Source, Tls, source_from_spec
from cdcsync_mysql.sessions.version import flavor_of, parse_version

__all__ = ["Connection", "Source", "Tls", "connect", "fetch", "fetch_dicts", "map_error", "source_from_spec"]

Connection: TypeAlias = "pymysql.connections.Connection[Any]"
_CONNECT_SECONDS = 10
_WRITE_SECONDS = 60


def connect(
    source: Source,
    *,
    max_seconds: int = 60,
    read_timeout: float | None = None,
    stream: bool = False,
    loads: bool = False,
    patience: float = 0.0,
) -> Connection:
    """A connection with the session profile of rule R1; its `source` has the host that was taken.

    `max_seconds` bounds a statement; `read_timeout` is the silence
    in seconds after which the server counts as gone (default: `max_seconds` and half a minute);
    with `stream` its cursors read rows as they come, in bounded memory; with `loads` the server may
    ask for the rows of LOAD DATA LOCAL (`protocol.load_local`), and of no other statement;
    `patience` is that of `first_fit`, for several hosts. Raises
    `CdcError`: AuthenticationFailed, SourceUnreachable, SpecInvalid (no credential file),
    InternalError (session profile).
    """
    open_one = partial(_connect, max_seconds=max_seconds, read_timeout=read_timeout, stream=stream, loads=loads)
    if not source.others:
        return open_one(source)
    return first_fit(source, partial(open_one, login_silence=ASKED_SECONDS), fetch_dicts, patience)


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
        connection.set_silence(silence)
    except (pymysql.MySQLError, OSError) as e:
        shown = _without_account(source, e)
        error = _mapped(source, shown, doing)
        raise login_refused(error, source.tls.mode != "disabled", source.tls.cert is not None) from shown
    except UNINTELLIGIBLE as e:
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


def _without_account(source: Source, error: BaseException) -> BaseException:
    """The server's error without what it may repeat of the login."""
    if not isinstance(error, pymysql.MySQLError):
        return error
    hidden = hidden_texts(source.username_file, source.password_file)
    shown = type(error)(*(without_texts(arg, hidden) if isinstance(arg, str) else arg for arg in error.args))
    shown.__dict__.update(error.__dict__)
    return shown


def _open(connection: SourceConnection, max_seconds: int) -> None:
    connection.connect()
    try:
        greeting = str(cast(Any, connection).get_server_info())
        connection.encoding = UTF8_OR_BYTES
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
