"""Errors of server and client in the product's words: the number decides what is retried, the
remedy can be carried out."""

from __future__ import annotations

import ssl

import pymysql
import pytest

from cdcsync_core.errors import CdcError, Reason, fail, from_json
from cdcsync_mysql.sessions.failures import Scope, for_account, is_unexplained, login_refused, map_error, scope_of


def _mapped(code: int, text: str = "as the server has it") -> CdcError:
    return map_error(pymysql.err.OperationalError(code, text), "reading d.t")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1045, Reason.AUTHENTICATION_FAILED),
        (1698, Reason.AUTHENTICATION_FAILED),
        (1130, Reason.AUTHENTICATION_FAILED),
        (2059, Reason.AUTHENTICATION_FAILED),
        (2026, Reason.SPEC_INVALID),
        (3159, Reason.AUTHENTICATION_FAILED),
        (1044, Reason.PRIVILEGE_MISSING),
        (1142, Reason.PRIVILEGE_MISSING),
        (1143, Reason.PRIVILEGE_MISSING),
        (1227, Reason.PRIVILEGE_MISSING),
        (1040, Reason.SOURCE_UNREACHABLE),
        (1053, Reason.SOURCE_UNREACHABLE),
        (1129, Reason.SOURCE_UNREACHABLE),
        (1461, Reason.SOURCE_UNREACHABLE),
        (1205, Reason.TABLE_BUSY),
        (1317, Reason.SOURCE_UNREACHABLE),
        (1927, Reason.SOURCE_UNREACHABLE),
        (1969, Reason.TABLE_BUSY),
        (3024, Reason.TABLE_BUSY),
        (2003, Reason.SOURCE_UNREACHABLE),
        (2006, Reason.SOURCE_UNREACHABLE),
        (2013, Reason.SOURCE_UNREACHABLE),
        (1146, Reason.NO_SUCH_TABLE),
        (1054, Reason.SCHEMA_CHANGE_REFUSED),
        (1412, Reason.SCHEMA_CHANGE_REFUSED),
        (1381, Reason.BINLOG_DISABLED),
        (1226, Reason.SOURCE_UNREACHABLE),
        (1690, Reason.TABLE_UNREADABLE),
        (1814, Reason.TABLE_UNREADABLE),
        (3141, Reason.TABLE_UNREADABLE),
        (1021, Reason.SOURCE_UNREACHABLE),
        (1028, Reason.SOURCE_UNREACHABLE),
        (1038, Reason.SOURCE_UNREACHABLE),
        (1135, Reason.SOURCE_UNREACHABLE),
        (1213, Reason.SOURCE_UNREACHABLE),
        (1105, Reason.INTERNAL_ERROR),
    ],
)
def test_reasons(code: int, reason: Reason) -> None:
    error = _mapped(code)
    assert error.reason is reason
    assert error.found == f'reading d.t: "as the server has it" ({code})'


def test_each_number_is_sorted_once_and_what_concerns_the_table_is_not_retried() -> None:
    """A table's error stops the table, for as long as a lock lasts or for good; of the account or
    the server, the run says what to do; what passes is tried again."""
    scopes = {code: scope_of(code) for code in range(1, 5000) if scope_of(code)}
    assert {scopes[c] for c in (3141, 1814, 1146, 1054, 1205, 1969, 3024)} == {Scope.TABLE}
    assert {scopes[c] for c in (1045, 1142, 1226)} == {Scope.ACCOUNT}
    assert {scopes[c] for c in (1381, 1461)} == {Scope.SERVER}
    assert {scopes[c] for c in (1040, 2013, 1317)} == {Scope.PASSING}
    for code, scope in scopes.items():
        error = _mapped(code)
        assert not is_unexplained(error), code
        if scope is Scope.TABLE:
            assert error.reason is Reason.TABLE_BUSY or not error.reason.retried, code
        if scope is Scope.PASSING:
            assert error.reason.retried, code


def test_only_a_number_of_the_server_that_is_not_listed_is_unexplained_wherever_it_comes_to() -> None:
    for error in (_mapped(1105), from_json(_mapped(1105).to_json())):
        assert is_unexplained(error)
        assert error.reason.retried
    assert not is_unexplained(map_error(ValueError("ours"), "reading"))
    assert not is_unexplained(fail(Reason.INTERNAL_ERROR, "ours"))


def test_a_limit_of_the_account_is_named() -> None:
    assert "MAX_USER_CONNECTIONS" in _mapped(1226).needed
    assert "ALTER USER" in _mapped(1226).remedy


@pytest.mark.parametrize(
    ("tls", "certificate", "asked"),
    [(False, False, "REQUIRE SSL"), (True, False, "REQUIRE X509"), (True, True, None)],
)
def test_a_login_that_is_refused_may_lack_tls(tls: bool, certificate: bool, asked: str | None) -> None:
    remedy = login_refused(_mapped(1045), tls, certificate).remedy
    assert ("REQUIRE" in remedy, asked is None or asked in remedy) == (asked is not None, True)
    assert login_refused(_mapped(1040), tls, certificate).remedy == _mapped(1040).remedy


def test_what_is_already_ours_stays() -> None:
    error = fail(Reason.POSITION_LOST, "gone")
    assert map_error(error, "reading") is error


def test_broken_connections_without_a_number() -> None:
    assert map_error(ConnectionResetError("reset"), "reading").reason is Reason.SOURCE_UNREACHABLE
    assert map_error(TimeoutError("timed out"), "reading").reason is Reason.SOURCE_UNREACHABLE
    assert map_error(pymysql.err.InterfaceError(0, ""), "reading").reason.retried


def test_tls_refusals_are_for_the_user_and_broken_handshakes_are_not() -> None:
    def wrapped(cause: BaseException) -> CdcError:
        error = pymysql.err.OperationalError(2003, "Can't connect")
        error.original_exception = cause  # type: ignore[attr-defined]
        return map_error(error, "connecting")

    assert wrapped(ssl.SSLCertVerificationError("self-signed")).reason is Reason.AUTHENTICATION_FAILED
    assert wrapped(ssl.SSLEOFError("EOF")).reason is Reason.SOURCE_UNREACHABLE
    assert wrapped(ConnectionRefusedError()).reason is Reason.SOURCE_UNREACHABLE


@pytest.mark.parametrize(
    ("code", "text", "remedy"),
    [
        (1142, "SELECT command denied to user 'u'@'h' for table `d`.`t`", "GRANT SELECT ON `d`.`t` TO 'u'@'h'"),
        (1142, "SELECT command denied to user 'u'@'h' for table 't'", "GRANT SELECT ON its `t` TO 'u'@'h'"),
        (1044, "Access denied for user 'u'@'%' to database 'd`e'", "GRANT SELECT ON `d``e`.* TO 'u'@'%'"),
        (
            1227,
            "Access denied; you need (at least one of) the SUPER, BINLOG MONITOR privilege(s) for this operation",
            "GRANT BINLOG MONITOR ON *.* TO the account",
        ),
        (
            1227,
            "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s) for this operation",
            "GRANT REPLICATION SLAVE ON *.* TO the account",
        ),
    ],
)
def test_grants(code: int, text: str, remedy: str) -> None:
    assert _mapped(code, text).remedy == remedy


def test_the_account_is_named_where_it_is_known() -> None:
    denied = _mapped(1142, "SELECT command denied to user 'u'@'10.0.0.1' for table `d`.`t`")
    assert for_account(denied, "'u'@'%'").remedy == "GRANT SELECT ON `d`.`t` TO 'u'@'%'"
    unnamed = _mapped(1227, "you need (at least one of) the BINLOG MONITOR privilege(s)")
    assert for_account(unnamed, "'u'@'%'").remedy == "GRANT BINLOG MONITOR ON *.* TO 'u'@'%'"
