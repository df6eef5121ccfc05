"""The parts of the resource that say how a server is reached: accounts, authorities, TLS.

Why it is right: they name Secrets and never hold what is in them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import model_validator

from cdcsync_core.resource.spec_part import Flag, Part, SecretKey, SecretName


class CredentialsRef(Part):
    name: SecretName
    username_key: SecretKey = "username"
    password_key: SecretKey = "password"

    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys."""
        return {self.name: {self.username_key, self.password_key}}


@dataclass(frozen=True)
class AccountUse:
    """What a resource does with the account of a Secret. `field` is the path of the section;
    `username_keys` and `password_keys` are the Secret's keys that any resource may name;
    `authority` is the Secret with the only authority by which a server that gets the password
    itself is verified, empty where there is none; `unverified`: a server that is not verified may
    get it."""

    field: str
    account: CredentialsRef
    authority: str = ""
    unverified: bool = False
    username_keys: tuple[str, ...] = ("username",)
    password_keys: tuple[str, ...] = ("password",)


class CaRef(Part):
    name: SecretName
    key: SecretKey = "ca.crt"


class ClientCertRef(Part):
    """A Secret of type kubernetes.io/tls: keys `tls.crt` and `tls.key`."""

    name: SecretName


class TlsPart(Part):
    """The authorities that the machine knows verify the server where none is given.
    `allow_unverified`: one that is not verified may get the password itself."""

    mode: Literal["disabled", "required", "verify-ca", "verify-identity"]
    ca_secret_ref: CaRef | None = None
    client_cert_secret_ref: ClientCertRef | None = None
    allow_unverified: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _empty_reference_is_none(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if not (k.endswith("SecretRef") and v == {})}

    @model_validator(mode="after")
    def _verified_or_not(self) -> TlsPart:
        if self.allow_unverified and self.ca_secret_ref is not None and self.mode != "disabled":
            raise ValueError("caSecretRef or allowUnverified, because a given authority verifies the server")
        return self

    @property
    def verified(self) -> bool:
        return self.mode.startswith("verify-") or (self.mode == "required" and self.ca_secret_ref is not None)

    @property
    def authority(self) -> str:
        """The Secret with the only authority that verifies servers; empty where there is none."""
        return self.ca_secret_ref.name if self.ca_secret_ref and self.verified else ""

    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys."""
        ca, pair = self.ca_secret_ref, self.client_cert_secret_ref
        return joined({ca.name: {ca.key}} if ca else {}, {pair.name: {"tls.crt", "tls.key"}} if pair else {})


class SourceTls(TlsPart):
    """The TLS of a source: its certificate is by an authority of its own."""

    @model_validator(mode="after")
    def _verification_needs_a_ca(self) -> SourceTls:
        if self.mode in ("verify-ca", "verify-identity") and self.ca_secret_ref is None:
            raise ValueError(f"caSecretRef, because mode is {self.mode}")
        return self


def joined(*parts: dict[str, set[str]]) -> dict[str, set[str]]:
    """The keys of each Secret that any of them names."""
    names = {name for part in parts for name in part}
    return {name: set[str]().union(*(part.get(name, set()) for part in parts)) for name in names}


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
