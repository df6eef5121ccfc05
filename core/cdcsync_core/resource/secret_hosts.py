"""For which hosts a Secret is, and whether one that is not verified may get it: its annotations
`cdcsync.io/hosts` and `cdcsync.io/allow-unverified`.

Why it exists: who may create a CdcSync may name any labelled Secret of the namespace, and a host of
his own. The owner of a Secret says by the annotation where its content may be sent. Why it is
right: it is compared before anything connects, as text, with the hosts of the spec; names and
addresses are not resolved, so no answer of a name server widens it. A Secret with an annotation
that names nothing is for no host.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcsync_core.resource.spec import CdcSync, Spec

HOSTS_ANNOTATION = "cdcsync.io/hosts"
UNVERIFIED_ANNOTATION = "cdcsync.io/allow-unverified"


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


def sent_unverified(spec: Spec) -> dict[str, str]:
    """Secret name -> the section by which its password may be sent to a server that is not
    verified."""
    sections = dict.fromkeys(spec.sink.kind.unverified_secrets(), f"spec.sink.{spec.sink.type}")
    if spec.source.tls.allow_unverified:
        sections[spec.source.credentials_secret_ref.name] = "spec.source"
    return sections


def unverified(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase per Secret whose password the spec would send to a server that is not verified,
    although the Secret does not allow that. Who writes the spec is not always who owns the
    Secret."""
    return {
        name: (
            f"Secret {name} would be sent to a server that is not verified ({field}.tls.allowUnverified); "
            f'needed: the annotation {UNVERIFIED_ANNOTATION}: "true" on the Secret, or tls.caSecretRef'
        )
        for name, field in sent_unverified(resource.spec).items()
        if name in annotations and annotations[name].get(UNVERIFIED_ANNOTATION) != "true"
    }
