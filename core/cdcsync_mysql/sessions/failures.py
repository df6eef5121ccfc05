"""The server's and the client's errors in the product's words.

Why it is right: the error number decides, never the text, because texts are translated and change;
the text is only quoted, and only names (accounts, tables, privileges) are read from it. Each number
is sorted by what it concerns: one table, the account, the server, or nothing that lasts. What is
not listed is retried, so that an unknown error never stops a sync for good and never passes for
success. Where a run meets it at a table, it tries that table alone (`may_be_of_table`); then it is
the table's own as long as it lasts (TableBusy), as is what another session's lock, or a slow
statement, does to a table. So what lasts, and what concerns all tables, must be listed. Sources:
MySQL Server Error Message Reference; MariaDB Error Codes; error 2xxx are the client library's.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeAlias

import pymysql

from cdcsync_core.errors import CdcError, Reason, UnlistedError, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import REPAIR_TABLE, RESNAPSHOT
from cdcsync_core.tables.source_table import TableId, quote


class Scope(StrEnum):
    """What an error of the server concerns."""

    TABLE = "table"
    ACCOUNT = "account"
    SERVER = "server"
    PASSING = "passing"


#: who is to be granted something where the error does not say
_NOBODY = "the account"
_ACCOUNT = re.compile(r"'([^'\x00-\x1f;]{0,96})'@'([^'\x00-\x1f;]{0,255})'")
_TABLE = re.compile(r"for table [`']([^`'\x00-\x1f]{1,64})[`'](?:\.[`']([^`'\x00-\x1f]{1,64})[`'])?")
_DATABASE = re.compile(r"to database '([^'\x00-\x1f]{0,64})'")
_READABLE = "a table that the server can read"
_SEE_ERROR = "see what the server's error means; the sync tries again by itself"
_BY_TLS = "spec.source.tls: {mode: required}"
_PRIVILEGES = re.compile(r"\(at least one of\) the ([A-Za-z_, ]{1,300}?) privilege")


def map_error(error: BaseException, doing: str) -> CdcError:
    """The product's error for what `doing` (a phrase: "reading shop.orders") ended in.

    A `CdcError` is returned as it is. The caller raises the result from `error`.
    """
    if isinstance(error, CdcError):
        return error
    if (tls := _tls_cause(error)) is not None:
        return _tls_failure(f"{doing}: {quoted(str(tls))}", tls)
    code, text = _error_code(error)
    found = f"{doing}: {quoted(text)} ({code})" if code else f"{doing}: {quoted(text)}"
    rule = _RULES.get(code)
    if rule is not None:
        return rule[1](found, text)
    if isinstance(error, OSError):
        return _unreachable(found, text)
    return UnlistedError(Reason.INTERNAL_ERROR, found) if code else fail(Reason.INTERNAL_ERROR, found)


def scope_of(code: int) -> Scope | None:
    """None for a number that is not known."""
    rule = _RULES.get(code)
    return rule[0] if rule else None


def is_unexplained(error: CdcError) -> bool:
    """Whether it is not known what the error concerns: it may be the table at which it was met. An
    error of the product's own is not the table's."""
    return isinstance(error, UnlistedError)


def may_be_of_table(error: CdcError) -> bool:
    """Whether an error that was met at a table may concern it alone, although it is retried."""
    return is_unexplained(error) or error.reason is Reason.TABLE_BUSY


def of_table(error: CdcError, table: TableId) -> CdcError:
    """Such an error as the table's own, where it was met again at this table alone. One that is not
    known may pass: it stops no table for good."""
    name = error.table or str(table)
    if error.reason is Reason.TABLE_BUSY:
        return fail(error.reason, error.found, needed=error.needed, remedy=error.remedy, table=name)
    if is_unexplained(error):
        return fail(
            Reason.TABLE_BUSY,
            error.found,
            needed=error.needed or _READABLE,
            remedy=error.remedy or _SEE_ERROR,
            table=name,
        )
    return fail(Reason.TABLE_UNREADABLE, error.found, needed=_READABLE, remedy=REPAIR_TABLE, table=name)


def login_refused(error: CdcError, tls: bool, certificate: bool) -> CdcError:
    """The error of a login with what the account may ask for beside the password: the server says
    of an account with REQUIRE SSL or X509 only that access is denied. `tls` and `certificate`: what
    the login had."""
    if error.reason is not Reason.AUTHENTICATION_FAILED or (tls and certificate) or error.remedy == _BY_TLS:
        return error
    asked, field = ("REQUIRE X509", "clientCertSecretRef") if tls else ("REQUIRE SSL", "{mode: required}")
    remedy = f"{error.remedy}; spec.source.tls: {field} where the account is one with {asked}"
    return fail(error.reason, error.found, needed=error.needed, remedy=remedy, table=error.table)


def _error_code(error: BaseException) -> tuple[int, str]:
    if isinstance(error, pymysql.err.MySQLError) and len(error.args) > 1 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1])
    return 0, str(error) or type(error).__name__


def _tls_cause(error: BaseException) -> ssl.SSLError | None:
    """What went wrong in the handshake; None for a connection that merely broke in it."""
    cause = getattr(error, "original_exception", error)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return cause
    return None


#: OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_OTHER_NAME = (62, 64)


def _tls_failure(found: str, cause: ssl.SSLError) -> CdcError:
    if getattr(cause, "verify_code", 0) in _OTHER_NAME:
        return fail(
            Reason.AUTHENTICATION_FAILED,
            found,
            needed="a certificate that names spec.source.host",
            remedy="correct spec.source.host or the certificate, or tls.mode: verify-ca where the authority is the server's own",
        )
    return fail(
        Reason.AUTHENTICATION_FAILED,
        found,
        needed="a TLS connection as spec.source.tls asks for",
        remedy="correct spec.source.tls (mode, caSecretRef, clientCertSecretRef) or the server's certificate",
    )


def _no_tls(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        found,
        needed="a server with TLS, as spec.source.tls.mode asks for",
        remedy="switch TLS on at the server, or spec.source.tls: {mode: disabled} where the network is trusted",
    )


def _plain_refused(found: str, _text: str) -> CdcError:
    return fail(Reason.AUTHENTICATION_FAILED, found, needed="a TLS connection", remedy=_BY_TLS)


def _authentication(found: str, _text: str) -> CdcError:
    return fail(
        Reason.AUTHENTICATION_FAILED,
        found,
        needed="an account that may log in from here",
        remedy="correct the Secret of spec.source.credentialsSecretRef, or the account on the server",
    )


def _unreachable(found: str, _text: str) -> CdcError:
    return fail(Reason.SOURCE_UNREACHABLE, found, needed="a reachable server", remedy="check spec.source.host and port")


def _limited(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        found,
        needed="an account whose limits (MAX_USER_CONNECTIONS, MAX_QUERIES_PER_HOUR and the like) leave room for the sync",
        remedy="ALTER USER ... WITH the named limit raised or 0, or max_user_connections raised on the server",
    )


def _unreadable(found: str, _text: str) -> CdcError:
    return fail(Reason.TABLE_UNREADABLE, found, needed=_READABLE, remedy=REPAIR_TABLE)


def _blocked(found: str, _text: str) -> CdcError:
    return fail(Reason.SOURCE_UNREACHABLE, found, remedy="FLUSH HOSTS on the server")


def _exhausted(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        found,
        needed="a server with the disk, memory, threads and locks that its queries take",
        remedy="free on the server what the error names; the sync tries again by itself",
    )


def _too_many_statements(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        found,
        needed="a prepared statement for each split that is read at once",
        remedy="raise max_prepared_stmt_count on the server",
    )


def locked(found: str, _text: str = "") -> CdcError:
    """The error of a table that another session locks."""
    return fail(
        Reason.TABLE_BUSY,
        found,
        needed="a table that no other session locks for long",
        remedy="end the session that holds the lock (SHOW PROCESSLIST); the sync tries again by itself",
    )


def _too_long(found: str, _text: str) -> CdcError:
    return fail(
        Reason.TABLE_BUSY,
        found,
        needed="an end within spec.snapshot.maxSplitSeconds",
        remedy="lower spec.snapshot.chunkSize or raise spec.snapshot.maxSplitSeconds; the sync tries again by itself",
    )


def _privilege(found: str, text: str) -> CdcError:
    needed = _PRIVILEGES.search(text)
    table, database = _TABLE.search(text), _DATABASE.search(text)
    if needed and needed[1].upper() != "SUPER":
        # of several that would do, SUPER is never the one to ask for
        names = [n.strip() for n in re.split(r",| or ", needed[1]) if n.strip() and n.strip() != "SUPER"]
        remedy = grant(names[0], "*.*", text)
    elif table:
        # MySQL names the table alone
        remedy = grant("SELECT", TableId(table[1], table[2]).quoted if table[2] else f"its {quote(table[1])}", text)
    elif database:
        remedy = grant("SELECT", f"{quote(database[1])}.*", text)
    else:
        remedy = grant("SELECT", "the captured tables", text)
    return fail(Reason.PRIVILEGE_MISSING, found, needed="the privilege", remedy=remedy)


def grant(privilege: str, on: str, text: str = "") -> str:
    """The statement that grants `privilege`, to the account that the server's `text` names."""
    account = _ACCOUNT.search(text)
    return f"GRANT {privilege} ON {on} TO {account[0] if account else _NOBODY}"


def for_account(error: CdcError, account: str) -> CdcError:
    """The error with the account's own name in the remedy: an error names no account, or the
    client's address, which is not the account's."""
    remedy = _ACCOUNT.sub(lambda _: account, error.remedy).replace(f" TO {_NOBODY}", f" TO {account}")
    return fail(error.reason, error.found, needed=error.needed, remedy=remedy, table=error.table)


def _no_table(found: str, _text: str) -> CdcError:
    return fail(Reason.NO_SUCH_TABLE, found, remedy="create the table or correct spec.tables")


def _changed(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        found,
        needed="the definition of the plan",
        remedy=RESNAPSHOT,
    )


def _no_binlog(found: str, _text: str) -> CdcError:
    return fail(Reason.BINLOG_DISABLED, found, needed="log_bin=ON", remedy="start the server with --log-bin")


#: 1016, 1017, 1033-1035: files; 1194, 1195, 1712, 1877: damaged; 1812-1814, 1932: no tablespace;
#: 1286: no engine; 1176: no such index; the others: a generated column that cannot be computed
_UNREADABLE = (
    *(1016, 1017, 1033, 1034, 1035, 1194, 1195, 1712, 1877, 1812, 1813, 1814, 1932, 1286, 1176),
    *(1139, 1264, 1267, 1270, 1271, 1292, 1305, 1365, 1366, 1367, 1406, 1411, 1416, 1441, 1690, 1901, 4161),
    # MySQL: 3037, 3055: geometry; 3140-3158, 3903-3907: JSON; 3685-3699: regular expressions
    *(3037, 3055, *range(3140, 3159), *range(3685, 3700), *range(3903, 3908)),
)
LOCK_WAIT = 1205
_Rule: TypeAlias = Callable[[str, str], CdcError]


def _rows(scope: Scope, codes: Iterable[int], rule: _Rule) -> dict[int, tuple[Scope, _Rule]]:
    return dict.fromkeys(codes, (scope, rule))


_RULES: dict[int, tuple[Scope, _Rule]] = {
    **_rows(Scope.TABLE, _UNREADABLE, _unreadable),
    **_rows(Scope.TABLE, (1049, 1146, 1051), _no_table),
    **_rows(Scope.TABLE, (1054, 1412), _changed),
    # 1205: lock wait; 1969 (MariaDB), 3024 (MySQL): statement too long
    **_rows(Scope.TABLE, (LOCK_WAIT,), locked),
    **_rows(Scope.TABLE, (1969, 3024), _too_long),
    # 1045, 1698: refused; 1130: not from this host; 1251, 2049, 2059, 2061: the account's plugin;
    # 1820, 1862: password expired; 3118, 4151: account locked; 4055: access denied by ed25519 or
    # unix_socket of MariaDB
    **_rows(Scope.ACCOUNT, (1045, 1698, 1130, 1251, 2049, 2059, 2061, 1820, 1862, 3118, 4151, 4055), _authentication),
    **_rows(Scope.ACCOUNT, (3159,), _plain_refused),
    **_rows(Scope.ACCOUNT, (1044, 1142, 1143, 1227, 1370, 1401), _privilege),
    **_rows(Scope.ACCOUNT, (1203, 1226), _limited),
    # 2026: the client asks for TLS and the server has none (a handshake that fails is an error of
    # `ssl`)
    **_rows(Scope.SERVER, (2026,), _no_tls),
    **_rows(Scope.SERVER, (1129,), _blocked),
    **_rows(Scope.SERVER, (1461,), _too_many_statements),
    **_rows(Scope.SERVER, (1381,), _no_binlog),
    # 1040: too many connections; 1053, 1077-1079, 1927, 3169: shutdown, killed; 1152-1161, 1184,
    # 4031: broken connection; 1317: query killed; 2002-2055: client side
    **_rows(Scope.PASSING, (1040, 1053, 1077, 1078, 1079, 1927, 3169, 1317), _unreachable),
    **_rows(Scope.PASSING, (1152, 1153, 1158, 1159, 1160, 1161, 1184, 4031), _unreachable),
    **_rows(Scope.PASSING, (2002, 2003, 2005, 2006, 2013, 2027, 2055), _unreachable),
    # 1004, 1021, 1026, 1028, 1114, 1878: no room for temporary files, of sorts among them; 1037,
    # 1038, 1041, 1135: memory and threads; 1020, 1206, 1213, 1637: locks and transactions; 1047: a
    # node of Galera that is not in its cluster
    **_rows(Scope.PASSING, (1004, 1021, 1026, 1028, 1114, 1878), _exhausted),
    **_rows(Scope.PASSING, (1037, 1038, 1041, 1135, 1206, 1637), _exhausted),
    **_rows(Scope.PASSING, (1020, 1047, 1213), _unreachable),
}
