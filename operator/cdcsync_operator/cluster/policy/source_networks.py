"""Which networks the operator's policy keeps sources out of: those that the operator reaches and
tenants should not.

Why it is right: an address in the spec is refused before anything connects. A name is refused when
it is resolved, with every address that it has then (`cdcsync_mysql.sessions.question`), so no name
server gets around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdcsync_core.resource.networks import parse_networks, refusing
from cdcsync_core.resource.sinks.kind import Endpoint
from cdcsync_core.resource.spec import Spec

#: this machine, link-local addresses, what is no address of a server, and where clouds answer with
#: a machine's metadata and credentials: AWS (link-local, fd00:ec2::254), Alibaba, Azure
DEFAULT_REFUSED = (
    "127.0.0.0/8",
    "169.254.0.0/16",
    "0.0.0.0/8",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "::1/128",
    "::/128",
    "fe80::/10",
    "fd00:ec2::254/128",
)


def refused_networks(chosen: tuple[str, ...] | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The settings' `chosen` ones, None for the default; the addresses of the API server and of the
    operator's own node are always among them. Raises ValueError."""
    servers = f"{environment.get('KUBERNETES_SERVICE_HOST', '')},{environment.get('CDCSYNC_NODE_ADDRESSES', '')}"
    networks = DEFAULT_REFUSED if chosen is None else chosen
    return (*map(str, parse_networks(networks)), *(server for server in servers.split(",") if server))


def refused_hosts(spec: Spec, networks: tuple[str, ...]) -> Iterator[str]:
    """A phrase per host of the spec that is an address in one of them; a store's endpoint, too,
    which the operator asks, and the sink's servers."""
    refused = parse_networks(networks)
    field = "spec.source.hosts" if spec.source.hosts else "spec.source.host"
    source = [Endpoint(field, host) for host in spec.source.servers]
    if spec.source.snapshot_host is not None:
        source.append(Endpoint("spec.source.snapshotHost", spec.source.snapshot_host))
    for server in (*source, *spec.sink.kind.endpoints()):
        host = server.host
        try:
            network = refusing("127.0.0.1" if host.lower().rstrip(".") == "localhost" else host, refused)
        except ValueError:
            continue  # a name
        if network:
            yield f"{server.field}: {host} is in the network {network}, which the operator's policy refuses"
