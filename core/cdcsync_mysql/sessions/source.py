"""Where a source is, and which files hold the account and the certificates of its connections."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cdcsync_mysql.sessions.question import Question

if TYPE_CHECKING:  # the specification's models take a third of a second to import, and a reader does without them
    from cdcsync_core.resource.spec import SourceSpec

TlsMode = Literal["disabled", "required", "verify-ca", "verify-identity"]


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


def snapshot_host_of(spec: SourceSpec, source: Source) -> Source | None:
    """The replica on which snapshots read rows; None where they read on the source itself."""
    return None if spec.snapshot_host is None else source.of_hosts(spec.snapshot_host)


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
            allow_unverified=tls.allow_unverified or all(map(is_loopback, source.all_hosts)),
        ),
        others=tuple(others),
        followed=source.followed,
    )
