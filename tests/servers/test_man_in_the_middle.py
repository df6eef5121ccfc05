"""Passwords go to the right server only: a machine in the middle, with a certificate of its own,
gets none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_mysql.sessions.connection import Source, Tls, connect
from support.middle import Middle
from support.servers import Server
from support.source import source_of

pytestmark = pytest.mark.server
_PASSWORD = "geheim-7f3c"
#: the plugin of the greeting ("": the server's), the one that is switched to
_WAYS = [
    ("caching_sha2_password", ""),
    ("", "caching_sha2_password"),
    ("sha256_password", ""),
    ("", "sha256_password"),
    ("", "mysql_clear_password"),
]
any_way = pytest.mark.parametrize(("greets", "switch"), _WAYS)
both_servers = pytest.mark.parametrize("variant", ["mysql97_gtid", "mariadb1011"])


def _refusal(source: Source) -> CdcError:
    with pytest.raises(CdcError) as refused:
        connect(source)
    return refused.value


@both_servers
@any_way
@pytest.mark.parametrize("mode", ["required", "disabled"])
def test_no_password_reaches_it(
    variant: str, greets: str, switch: str, mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    middle = Middle(request.getfixturevalue(variant), tmp_path, greets, switch)
    source = source_of(middle.server, "cdc", _PASSWORD, Tls("required" if mode == "required" else "disabled"))
    with middle.listening(tls=mode == "required") as port:
        refused = _refusal(replace(source, port=port))
    assert b"cdc" in middle.received, "it was spoken with"
    assert _PASSWORD.encode() not in middle.received
    assert middle.learnt == []
    assert refused.reason is Reason.AUTHENTICATION_FAILED
    if switch != "mysql_clear_password":
        assert "caSecretRef" in refused.remedy
        assert "allowUnverified" in refused.remedy


@both_servers
@any_way
def test_the_machine_in_the_middle_is_a_real_one(
    variant: str, greets: str, switch: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It gets the password of a client that accepts a server that is not verified; never by a
    plugin that only sends it."""
    middle = Middle(request.getfixturevalue(variant), tmp_path, greets, switch)
    for mode in (Tls("required", allow_unverified=True), Tls("disabled", allow_unverified=True)):
        middle.received.clear()
        middle.learnt.clear()
        with middle.listening(tls=mode.mode == "required") as port:
            _refusal(replace(source_of(middle.server, "cdc", _PASSWORD, mode), port=port))
        known = _PASSWORD.encode() in bytes(middle.received) + b"".join(middle.learnt)
        assert known is (switch != "mysql_clear_password")


@pytest.mark.parametrize("mode", ["required", "verify-ca", "verify-identity"])
def test_a_given_authority_is_used(mode: str, mysql97_gtid: Server, tmp_path: Path) -> None:
    """Not one byte of the login follows the handshake in which it shows its certificate."""
    middle = Middle(mysql97_gtid, tmp_path, "caching_sha2_password")
    tls = Tls("required", mysql97_gtid.datadir / "ca.pem")
    with middle.listening(tls=True) as port:
        refused = _refusal(replace(source_of(mysql97_gtid, "cdc", _PASSWORD, replace(tls, mode=mode)), port=port))  # type: ignore[arg-type]
    assert refused.reason is Reason.AUTHENTICATION_FAILED
    assert "certificate" in refused.found
    assert b"cdc" not in middle.received


def test_a_first_login_to_mysql_needs_a_verified_server(mysql97_gtid: Server) -> None:
    """MySQL knows the account's password after that, and a challenge suffices, until it starts
    again or forgets it."""
    mysql97_gtid.create_user("first", _PASSWORD)
    source = source_of(mysql97_gtid, "first", _PASSWORD, Tls("required"))
    verified = replace(source, tls=Tls("verify-ca", mysql97_gtid.datadir / "ca.pem"))
    accepted = replace(source, tls=Tls("required", allow_unverified=True))
    for way in (verified, accepted):
        assert "asks for the password itself" in _refusal(source).found
        assert "asks for the password itself" in _refusal(replace(source, tls=Tls("disabled"))).found
        connect(way).close()
        connect(source).close()
        connect(replace(source, tls=Tls("disabled"))).close()
        mysql97_gtid.run("FLUSH PRIVILEGES")


def test_an_account_without_a_password_has_nothing_to_lose(mysql97_gtid: Server) -> None:
    """It is not refused, though the server is not verified."""
    mysql97_gtid.create_user("open", "")
    connect(source_of(mysql97_gtid, "open", "", Tls("required"))).close()


def test_a_wrong_password_is_not_sent_either(mysql97_gtid: Server) -> None:
    mysql97_gtid.create_user("second", _PASSWORD)
    connect(source_of(mysql97_gtid, "second", _PASSWORD)).close()
    refused = _refusal(source_of(mysql97_gtid, "second", "another", Tls("required")))
    assert refused.reason is Reason.AUTHENTICATION_FAILED
    assert "the password is wrong" in refused.needed
