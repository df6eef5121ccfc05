"""The login: which proof of the password a server may get.

Why it exists: some plugins send the password itself and rely on the connection:
`caching_sha2_password` where the server does not know the account yet (the first login after its
start), `sha256_password` always. In TLS without verification any server that answers can ask for
that, and without TLS the RSA key that hides it would come from the server that answers.

Why it is right: the password itself goes only to a server whose certificate was verified, or where
the spec accepts that it was not (`tls.allowUnverified`; on loopback no other machine answers). All
other servers get responses to challenges: none of the plugins that are left makes another answer.
The first answer is never one of `sha256_password`, whichever plugin the server names in its
greeting, because the client would give the password there unasked. Plugins that only ever send the
password are off. Sources: MySQL source documentation, "caching_sha2_password information",
"sha256_password information"; PyMySQL's `_auth`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import pymysql
from pymysql import _auth
from pymysql.constants import CR

from cdcsync_core.errors import CdcError, Reason, fail

if TYPE_CHECKING:
    from pymysql.protocol import MysqlPacket

#: an answer of caching_sha2_password after its first byte: the response was right; the password
#: itself is wanted
_FAST, _FULL = 3, 4
CACHING_SHA2, SHA256 = "caching_sha2_password", "sha256_password"


class Refused:
    """In the place of a plugin that sends the password itself, or an old hash that is as good."""

    def __init__(self, _connection: object) -> None:
        """PyMySQL gives its connection; nothing is to be done with it."""

    def authenticate(self, _packet: object) -> NoReturn:
        raise pymysql.err.OperationalError(
            CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
            "the server asks for the password in clear text or by an obsolete plugin, which this client never sends",
        )


class ChallengeOnly:
    """`caching_sha2_password` without its second part, in which the password itself is sent."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: MysqlPacket) -> MysqlPacket:
        if packet.is_auth_switch_request():
            self._connection.salt = packet.read_all().removesuffix(b"\0")
            packet = self._answer(_auth.scramble_caching_sha2(self._connection.password, self._connection.salt))
        if packet.is_extra_auth_data():
            packet.advance(1)
            if packet.read_uint8() != _FAST:
                raise refused(self._connection, CACHING_SHA2)
            packet = self._connection._read_packet()
        return packet

    def _answer(self, proof: bytes) -> MysqlPacket:
        self._connection.write_packet(proof if self._connection.password else b"")
        answer: MysqlPacket = self._connection._read_packet()
        return answer


class NoSha256(ChallengeOnly):
    """`sha256_password` has no challenge: only an account without a password can log in by it."""

    def authenticate(self, packet: MysqlPacket) -> MysqlPacket:
        if self._connection.password:
            raise refused(self._connection, SHA256)
        return self._answer(b"")


Plugins: TypeAlias = dict[str, Callable[["pymysql.connections.Connection[Any]"], Any]]


def plugins(*, reveal: bool) -> Plugins:
    """PyMySQL's `auth_plugin_map`; with `reveal` the password itself may be sent by a plugin that
    knows a challenge, too."""
    never: Plugins = dict.fromkeys(("mysql_clear_password", "dialog", "mysql_old_password"), Refused)
    return never if reveal else {**never, CACHING_SHA2: ChallengeOnly, SHA256: NoSha256}


def refused(connection: Any, plugin: str) -> CdcError:
    return fail(
        Reason.AUTHENTICATION_FAILED,
        f"connecting to {connection.host}:{connection.port}: the server, which is not verified, asks for the password itself ({plugin})",
        needed="a verified server: MySQL asks so where it does not know the account since its start, or the password is wrong",
        remedy="spec.source.tls.caSecretRef with the server's authority (of one that MySQL made for itself: ca.pem of the data folder, "
        "with mode: verify-ca), or spec.source.tls.allowUnverified: true where all that is between is trusted",
    )
