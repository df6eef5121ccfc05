"""The server's and the client's errors in the product's words.

Why it is right: the error number decides, never the text, because texts are translated and change;
the text is only quoted, and only names (accounts, tables, privileges) are read from it. What is not
listed is retried, so that an unknown error never stops a sync for good and never passes for
success. Sources: MySQL Server Error Message Reference; MariaDB Error Codes; error 2xxx are the
client library's.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable

import pymysql

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.source_table import TableId, quote

#: who is to be granted something where the error does not say
_NOBODY = "the account"
_ACCOUNT = re.compile(r"'([^'\x00-\x1f;]{0,96})'@'([^'\x00-\x1f;]{0,255})'")
_TABLE = re.compile(r"for table [`']([^`'\x00-\x1f]{1,64})[`'](?:\.[`']([^`'\x00-\x1f]{1,64})[`'])?")
_DATABASE = re.compile(r"to database '([^'\x00-\x1f]{0,64})'")
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
        return rule(found, text)
    if isinstance(error, OSError):
        return _unreachable(found, text)
    return fail(Reason.INTERNAL_ERROR, found)


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
    return fail(
        Reason.AUTHENTICATION_FAILED, found, needed="a TLS connection", remedy="spec.source.tls: {mode: required}"
    )


def _authentication(found: str, _text: str) -> CdcError:
    return fail(
        Reason.AUTHENTICATION_FAILED,
        found,
        needed="an account that may log in from here",
        remedy="correct the Secret of spec.source.credentialsSecretRef, or the account on the server",
    )


def _unreachable(found: str, _text: str) -> CdcError:
    return fail(Reason.SOURCE_UNREACHABLE, found, needed="a reachable server", remedy="check spec.source.host and port")


def _blocked(found: str, _text: str) -> CdcError:
    return fail(Reason.SOURCE_UNREACHABLE, found, remedy="FLUSH HOSTS on the server")


def _too_many_statements(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        found,
        needed="a prepared statement for each split that is read at once",
        remedy="raise max_prepared_stmt_count on the server",
    )


def _too_long(found: str, _text: str) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        found,
        needed="an end within spec.snapshot.maxSplitSeconds",
        remedy="lower spec.snapshot.chunkSize or raise spec.snapshot.maxSplitSeconds",
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
    """With the account's own name in the remedy: an error names no account, or the client's
    address, which is not the account's."""
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


_RULES: dict[int, Callable[[str, str], CdcError]] = {
    # 1045, 1698: refused; 1130: not from this host; 1251, 2049, 2059, 2061: the account's plugin;
    # 1820, 1862: password expired; 3118, 4151: account locked; 4055: access denied by ed25519 or
    # unix_socket of MariaDB 2026: the client asks for TLS and the server has none (a handshake that
    # fails is an error of `ssl`)
    **dict.fromkeys((1045, 1698, 1130, 1251, 2049, 2059, 2061, 1820, 1862, 3118, 4151, 4055), _authentication),
    2026: _no_tls,
    3159: _plain_refused,
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370, 1401), _privilege),
    # 1040, 1203, 1226: too many connections; 1053, 1077-1079, 1927, 3169: shutdown, killed;
    # 1152-1161, 1184: broken connection; 1317: query killed; 2002-2013: client side
    **dict.fromkeys((1040, 1203, 1226, 1053, 1077, 1078, 1079, 1927, 3169, 1317), _unreachable),
    **dict.fromkeys((1152, 1153, 1158, 1159, 1160, 1161, 1184, 2002, 2003, 2005, 2006, 2013, 2055, 4031), _unreachable),
    1129: _blocked,
    1461: _too_many_statements,
    # 1205: lock wait; 1969 (MariaDB), 3024 (MySQL): statement too long
    **dict.fromkeys((1205, 1969, 3024), _too_long),
    **dict.fromkeys((1049, 1146, 1051), _no_table),
    **dict.fromkeys((1054, 1412), _changed),
    1381: _no_binlog,
}
