"""For which hosts a Secret is: its annotation `cdcsync.io/hosts`.

Why it exists: who may create a CdcSync may name any labelled Secret of the namespace, and a host of
his own. The owner of a Secret says by the annotation where its content may be sent. Why it is
right: it is compared before anything connects, as text, with the hosts of the spec; names and
addresses are not resolved, so no answer of a name server widens it. A Secret with an annotation
that names nothing is for no host.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcsync_core.spec import CdcSync, Spec

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


def destinations(spec: Spec) -> dict[str, tuple[str, ...]]:
    """Secret name -> the hosts that get it, of those that may be for some hosts only."""
    source, pair = spec.source, spec.source.tls.client_cert_secret_ref
    found = dict(spec.sink.kind.secret_hosts())
    for name in (source.credentials_secret_ref.name, *((pair.name,) if pair else ())):
        found[name] = (source.host, *found.get(name, ()))
    return found


def misdirected(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase per Secret that is not for all hosts that would get it; `annotations` are those of
    Secrets, by name."""
    found = {}
    for name, wanted in destinations(resource.spec).items():
        hosts = annotations.get(name, {}).get(HOSTS_ANNOTATION)
        refused = [] if hosts is None else [host for host in wanted if not admits(hosts, host)]
        if refused:
            found[name] = (
                f"Secret {name} is not for the host {refused[0]} (its annotation {HOSTS_ANNOTATION}: {(hosts or '')[:200] or 'empty'}); "
                "needed: a Secret without that annotation, or one that names the host"
            )
    return found
