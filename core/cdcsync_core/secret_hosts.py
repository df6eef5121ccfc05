"""For which hosts a Secret is: its annotation `cdcsync.io/hosts`.

Why it exists: who may create a CdcSync may name any labelled Secret of the namespace, and a host of
his own. The owner of a Secret says by the annotation where its content may be sent. Why it is
right: it is compared before anything connects, as text, with the host of the spec; names and
addresses are not resolved, so no answer of a name server widens it. A Secret with an annotation
that names nothing is for no host.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcsync_core.spec import CdcSync

HOSTS_ANNOTATION = "cdcsync.io/hosts"


def admits(hosts: str, host: str) -> bool:
    """Whether `hosts`, separated by commas or blanks, name `host`: literally, or as `*.example.com`
    for all below it."""
    wanted = host.lower().rstrip(".")
    return any(_matches(pattern.lower().rstrip("."), wanted) for pattern in hosts.replace(",", " ").split())


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern


def misdirected(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase per Secret that the source names and that is not for its host; `annotations` are
    those of Secrets, by name."""
    source = resource.spec.source
    pair = source.tls.client_cert_secret_ref
    found = {}
    for name in (source.credentials_secret_ref.name, *((pair.name,) if pair else ())):
        hosts = annotations.get(name, {}).get(HOSTS_ANNOTATION)
        if hosts is not None and not admits(hosts, source.host):
            found[name] = (
                f"Secret {name} is not for the host {source.host} (its annotation {HOSTS_ANNOTATION}: {hosts[:200] or 'empty'}); "
                "needed: a Secret without that annotation, or one that names the host"
            )
    return found
