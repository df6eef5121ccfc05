"""Whether an address is in one of a policy's networks.

Why it is right: an IPv4 address that is written within IPv6 counts as what it stands for, and a
zone (`fe80::1%eth0`) does not hide one.
"""

from __future__ import annotations

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Raises ValueError naming the text."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def refusing(address: str, networks: tuple[Network, ...]) -> Network | None:
    """The network that `address` is in; None for none. Raises ValueError for what is no address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    within = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return next((n for n in networks if any(a in n for a in (found, within) if a is not None)), None)
