"""For which hosts a Secret is, whether one that is not verified may get it, and which of its keys
are the account: its annotations `cdcsync.io/hosts`, `cdcsync.io/allow-unverified`,
`cdcsync.io/username-key` and `cdcsync.io/password-key`.

Why it exists: who may create a CdcSync may name any labelled Secret of the namespace, any of its
keys, and a host of his own. The owner of a Secret says by the annotations where its content may be
sent, and as what: an account's name is sent before a server has proved who it is, and servers
repeat it in their errors. Why it is right: all is compared before anything connects, as text; names
and addresses are not resolved, so no answer of a name server widens it. A Secret with an annotation
that names nothing is for no host.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcsync_core.resource.connection_spec import AccountUse
from cdcsync_core.resource.spec import CdcSync, Spec

HOSTS_ANNOTATION = "cdcsync.io/hosts"
UNVERIFIED_ANNOTATION = "cdcsync.io/allow-unverified"
USERNAME_ANNOTATION, PASSWORD_ANNOTATION = "cdcsync.io/username-key", "cdcsync.io/password-key"


def admits(hosts: str, host: str) -> bool:
    """Whether `hosts`, separated by commas or blanks, name `host`: literally, or as `*.example.com`
    for all below it."""
    name = host.lower().rstrip(".")
    return any(_matches(pattern.lower().rstrip("."), name) for pattern in hosts.replace(",", " ").split())


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern


def destinations(spec: Spec) -> dict[str, tuple[str, ...]]:
    """Secret name -> the hosts that get it, of those that may be for some hosts only."""
    source, pair = spec.source, spec.source.tls.client_cert_secret_ref
    hosts_by_secret = dict(spec.sink.kind.secret_hosts())
    for name in (source.credentials_secret_ref.name, *((pair.name,) if pair else ())):
        hosts_by_secret[name] = (*source.all_hosts, *hosts_by_secret.get(name, ()))
    return hosts_by_secret


def misdirected(
    resource: CdcSync, annotations: Mapping[str, Mapping[str, str]], *, must_name_hosts: bool = False
) -> dict[str, str]:
    """A phrase per Secret that is not for all hosts that would get it; `annotations` are those of
    Secrets, by name. A Secret without hosts is for all of them, unless it must name some."""
    phrases = {}
    for name, destined in destinations(resource.spec).items():
        if name not in annotations:
            continue
        hosts = annotations[name].get(HOSTS_ANNOTATION, "" if must_name_hosts else None)
        refused = [] if hosts is None else [host for host in destined if not admits(hosts, host)]
        if refused:
            needed = (
                "one that names the host"
                if must_name_hosts
                else "a Secret without that annotation, or one that names the host"
            )
            phrases[name] = (
                f"Secret {name} is not for the host {refused[0]} (its annotation {HOSTS_ANNOTATION}: {(hosts or '')[:200] or 'empty'}); "
                f"needed: {needed}"
            )
    return phrases


def accounts(spec: Spec) -> tuple[AccountUse, ...]:
    """The accounts of all servers, and what becomes of them."""
    source, tls = spec.source, spec.source.tls
    own = AccountUse("spec.source", source.credentials_secret_ref, tls.authority, tls.allow_unverified)
    return (own, *spec.sink.kind.accounts())


def unverified(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase per Secret whose password the spec would send to a server that is not verified, or
    is by the spec's word alone, although the Secret does not allow that. Who writes the spec is not
    always who owns the Secret."""
    uses = [use for use in accounts(resource.spec) if use.account.name in annotations]
    phrases = [(use.account.name, _unverified(use, annotations[use.account.name])) for use in uses]
    return {name: phrase for name, phrase in phrases if phrase}


def _unverified(use: AccountUse, annotations: Mapping[str, str]) -> str:
    """Empty where the Secret allows it; an authority in the Secret itself is its owner's."""
    name = use.account.name
    if annotations.get(UNVERIFIED_ANNOTATION) == "true":
        return ""
    if use.unverified:
        return (
            f"Secret {name} would be sent to a server that is not verified ({use.field}.tls.allowUnverified); "
            f'needed: the annotation {UNVERIFIED_ANNOTATION}: "true" on the Secret, or tls.caSecretRef'
        )
    if use.authority not in ("", name) and HOSTS_ANNOTATION not in annotations:
        return (
            f"Secret {name} would be sent to a server that another Secret alone verifies ({use.field}.tls.caSecretRef: "
            f"{use.authority}); needed: the annotation {HOSTS_ANNOTATION} on Secret {name} with the hosts that it is for, "
            "or the authority in the same Secret"
        )
    return ""


def misnamed(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase per Secret of which the spec takes another key for the account's name, or for its
    password, than the usual ones and those that the Secret itself names."""
    return {
        use.account.name: (
            f"Secret {use.account.name}: {use.field} names its key {key} as {field}; needed: {' or '.join(usual)}, "
            f"or the annotation {annotation}: {key} on the Secret"
        )
        for use in accounts(resource.spec)
        for field, key, usual, annotation in (
            ("passwordKey", use.account.password_key, use.password_keys, PASSWORD_ANNOTATION),
            ("usernameKey", use.account.username_key, use.username_keys, USERNAME_ANNOTATION),
        )
        if use.account.name in annotations
        and key not in (*usual, *annotations[use.account.name].get(annotation, "").replace(",", " ").split())
    }
