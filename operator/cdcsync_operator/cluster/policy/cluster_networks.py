"""The addresses of the cluster's nodes, and the ranges of its pods and Services, as they are now.

Why it exists: nodes come and go, so a list of the day on which the chart was installed lets sources
reach the nodes that came later. Why it is right: they are listed again and again, in bounded pages
of which only addresses stay, and no sync is reconciled before the first list. A list that fails
leaves the last one, and is tried again. How often is decided by how long a list takes, so that the
largest cluster costs little and a small one is followed at once.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from cdcsync_core.resource.networks import Network
from cdcsync_kube.client import Api, ApiError, Object

_log = structlog.get_logger()
#: nodes of one answer, each of which has 10 to 20 KiB
_PAGE = 100
_SERVICES = "/apis/networking.k8s.io/v1/servicecidrs"
#: seconds between two lists, and how many times as long as a list they are in between
_LEAST_PAUSE, _MOST_PAUSE, _PAUSES = 5.0, 60.0, 50.0


@dataclass
class ClusterNetworks:
    """`addresses` and `ranges` say which are listed. `current` is for any thread, `refresh` for
    one."""

    api: Api
    addresses: bool = False
    ranges: bool = False
    clock: Callable[[], float] = time.monotonic
    current: tuple[str, ...] = ()
    listed: bool = field(init=False)
    _due: float = float("-inf")

    def __post_init__(self) -> None:
        self.listed = not (self.addresses or self.ranges)

    def refresh(self) -> None:
        """Lists them where it is time to."""
        began = self.clock()
        if began < self._due or not (self.addresses or self.ranges):
            return
        try:
            self.current, self.listed = _joined(self._texts()), True
        except ApiError as error:
            _log.warning("the addresses of the cluster's nodes could not be listed", error=str(error))
        took = self.clock() - began
        self._due = began + took + min(_MOST_PAUSE, max(_LEAST_PAUSE, _PAUSES * took))

    def _texts(self) -> Iterator[str]:
        for node in self.api.items("/api/v1/nodes", page=_PAGE):
            if self.addresses:
                yield from _addresses(node)
            if self.ranges:
                yield from (node.get("spec") or {}).get("podCIDRs") or ()
        if self.ranges:
            yield from self._of_services()

    def _of_services(self) -> Iterator[str]:
        """None before Kubernetes 1.33."""
        try:
            for item in self.api.items(_SERVICES):
                yield from item["spec"]["cidrs"]
        except ApiError as error:
            if not error.gone:
                raise


def _addresses(node: Object) -> Iterator[str]:
    """Other types of addresses are names; a kubelet writes its own, which may be no network."""
    for entry in (node.get("status") or {}).get("addresses") or ():
        if str(entry.get("type")).endswith("IP"):
            with suppress(ValueError):
                yield str(ipaddress.ip_address(entry.get("address")))


def _joined(texts: Iterable[str]) -> tuple[str, ...]:
    """The fewest networks that have all of them and nothing else, the largest first."""
    networks: set[Network] = set()
    for text in texts:
        with suppress(ValueError):
            networks.add(ipaddress.ip_network(text, strict=False))
    joined: list[Network] = [
        *ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv4Network)),
        *ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv6Network)),
    ]
    return tuple(str(network) for network in sorted(joined, key=lambda n: n.prefixlen - n.max_prefixlen))
