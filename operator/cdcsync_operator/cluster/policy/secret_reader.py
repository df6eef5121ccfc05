"""The Secrets that a resource names, as a cluster has them: read by name, the wanted keys only, and
no more than there is room for.

Why a Secret's type counts: a label and a key in a spec would otherwise send the token of a service
account, or the login of an image registry, to a host that the spec names.

Why it is right: a request names one Secret and its label, so no answer grows with what else is in
the namespace, and the content of a Secret without the label is not even read. Of the source's
Secrets the keys are kept that the resource names, of the sink's those that are variables of a
store's client; each Secret is bounded, and so is what all syncs of a namespace keep (`room`).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

from pydantic import SecretStr

from cdcsync_core.quoting import quoted
from cdcsync_core.resource.manifest import SECRET_LABEL, Secrets, missing_secrets
from cdcsync_core.resource.secret_hosts import misdirected, misnamed, unverified
from cdcsync_core.resource.source_bounds import unreadable
from cdcsync_core.resource.spec import CdcSync, required_secrets
from cdcsync_kube.client import Api, Object
from cdcsync_lake.location import CREDENTIAL
from cdcsync_operator.cluster.quota.room import SECRETS, Room

#: bytes and keys of one Secret, of those that are wanted; a bundle of all public authorities has
#: 250 KiB
MOST_BYTES, MOST_KEYS = 384 * 2**10, 32
#: what may hold credentials of a source or a sink; a Secret without a type is Opaque
TYPES = ("Opaque", "kubernetes.io/basic-auth", "kubernetes.io/tls")
#: what a file takes at least in a file system in memory
_PAGE = 4096


@dataclass(frozen=True)
class FoundSecrets:
    """`values` are to be written as files; `missing` are phrases, what keeps a run from
    starting; `of_source` are the annotations of the Secret with the source's account (None: it is
    not there)."""

    values: Secrets
    missing: tuple[str, ...]
    of_source: dict[str, str] | None = None


@dataclass(frozen=True)
class SecretReader:
    """Reads the Secrets of one sync, which holds its share of `room` until `close`.
    `must_name_hosts`: a Secret that does not name its hosts is for none."""

    api: Api
    namespace: str
    name: str
    room: Room = field(default_factory=lambda: Room(SECRETS))
    must_name_hosts: bool = False

    def read(self, resource: CdcSync) -> FoundSecrets:
        """A Secret that is not for the source's host counts as missing, as does one for which there
        is no room. Raises ApiError."""
        names = required_secrets(resource.spec)
        secrets = {name: secret for name in names if (secret := self._labelled(name))}
        sink = resource.spec.sink.kind.secrets()
        texts = {
            name: _kept(secret.get("data") or {}, names[name], variables=name in sink)
            for name, secret in secrets.items()
        }
        annotations = {name: secret["metadata"].get("annotations") or {} for name, secret in secrets.items()}
        too_large = {name: phrase for name, values in texts.items() if (phrase := _oversize(name, values))}
        refused = (
            too_large
            | misnamed(resource, annotations)
            | unverified(resource, annotations)
            | misdirected(resource, annotations, must_name_hosts=self.must_name_hosts)
            | unreadable(resource, annotations)
            | {name: _of_another_type(name, secret) for name, secret in secrets.items() if _type(secret) not in TYPES}
        )
        unlabelled = {name for name in names.keys() - secrets.keys() if self._is_there(name)}
        missing = (*missing_secrets(resource, texts, unlabelled), *refused.values())
        values = {name: of for name, of in texts.items() if name not in refused}
        of_source = annotations.get(resource.spec.source.credentials_secret_ref.name)
        if self.room.put(self.namespace, self.name, sum(_size(of) for of in values.values())):
            return FoundSecrets(values, missing, of_source)
        return FoundSecrets({}, (*missing, self._no_room()), of_source)

    def close(self) -> None:
        self.room.free(self.namespace, self.name)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    def _labelled(self, name: str) -> Object | None:
        labelled, named = f"{SECRET_LABEL}=true", f"metadata.name={name}"
        return next(self.api.items(self._path, labelSelector=labelled, fieldSelector=named), None)

    def _is_there(self, name: str) -> bool:
        """Whatever its labels; its content is not read."""
        return any(self.api.metadata(self._path, fieldSelector=f"metadata.name={name}"))

    def _no_room(self) -> str:
        return (
            f"no room in the operator for this sync's Secrets; needed: {self.room.bound(self.namespace)}; remedy: name smaller"
            " bundles of authorities (caSecretRef), or run some syncs of the namespace by a release of their own (the chart's"
            " values watchNamespaces and selector)"
        )


def _kept(data: dict[str, str], keys: set[str], *, variables: bool) -> dict[str, SecretStr]:
    """The named keys, of the sink's Secret also the variables of a store's client; of those what is
    UTF-8 text: other bytes are no credentials."""
    of_keys = {key: value for key, value in data.items() if key in keys or (variables and CREDENTIAL.fullmatch(key))}
    return {key: text for key, value in of_keys.items() if (text := _text(value)) is not None}


def _text(value: str) -> SecretStr | None:
    try:
        return SecretStr(base64.b64decode(value).decode())
    except (binascii.Error, UnicodeDecodeError):
        return None


def _type(secret: Object) -> str:
    return str(secret.get("type") or TYPES[0])


def _of_another_type(name: str, secret: Object) -> str:
    return f"Secret {name} is of the type {quoted(_type(secret))}; needed: one of {', '.join(TYPES)}"


def _oversize(name: str, values: dict[str, SecretStr]) -> str:
    """A phrase, empty where it is not."""
    size = sum(len(value.get_secret_value().encode()) for value in values.values())
    if size <= MOST_BYTES and len(values) <= MOST_KEYS:
        return ""
    return (
        f"Secret {name}: {len(values)} wanted keys with {size} bytes; "
        f"needed: at most {MOST_KEYS} keys with {MOST_BYTES} bytes together"
    )


def _size(values: dict[str, SecretStr]) -> int:
    """The bytes of its files."""
    return sum(-(-max(1, len(value.get_secret_value().encode())) // _PAGE) * _PAGE for value in values.values())
