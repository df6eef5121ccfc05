"""How a SQL database is reached: its address, the files of the account, TLS."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.account_texts import hidden_texts, without_texts
from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.networks import networks_of_the_run, parse_networks, refuse_addresses
from cdcsync_mysql.sessions.connection import Tls


@dataclass(frozen=True)
class SqlLogin:
    """Holds no secret: the files are read at each connect. `field` is the path of the section in
    the resource."""

    field: str
    host: str
    port: int
    username_file: Path
    password_file: Path
    tls: Tls

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def credentials(self) -> tuple[str, str]:
        """Account and password; raises `SpecInvalid` for a file that cannot be read."""
        try:
            return self.username_file.read_text().rstrip("\n"), self.password_file.read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise fail(
                Reason.SPEC_INVALID,
                f"{self.field}.credentialsSecretRef: {error}",
                needed="a Secret with the account and its password",
                remedy="see the Secret's keys",
            ) from error

    def without_account(self, message: str) -> str:
        """A server's message without what it may repeat of the login."""
        return without_texts(message, hidden_texts(self.username_file, self.password_file))

    def checked_address(self) -> str:
        """An address of the host, not refused by the operator's policy; raises CdcError."""
        try:
            entries = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self.unreachable(str(error)) from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        refuse_addresses(f"{self.field}.host", self.host, addresses, parse_networks(networks_of_the_run()))
        return addresses[0]

    def unreachable(self, message: str) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"{self.address}: {message}",
            needed="a database that answers",
            remedy=f"check {self.field}.host and port, and that the server is up; it is tried again",
        )
