"""Whether an address is in one of a policy's networks.

Why it is right: an address is judged by its value, not by its spelling. An IPv4 address that is
written within IPv6 (mapped, 6to4, NAT64) counts as what it stands for; a zone (`fe80::1%eth0`), a
dot at the end, and the forms that a resolver takes for an IPv4 address (`2852039166`, `0xa9fea9fe`,
`0251.0376.1`) do not hide one.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from cdcsync_core.errors import Reason, fail

#: the variable by which the operator's policy reaches the processes of a run, in their pods
VARIABLE = "CDCSYNC_REFUSED_NETWORKS"
#: the variable that names the file of those that the operator changes while the run goes on
FILE_VARIABLE = "CDCSYNC_REFUSED_NETWORKS_FILE"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_IPV4_BYTES = 4
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,8}|0[0-7]{0,11}|[1-9][0-9]{0,9}")
#: RFC 6052, RFC 8215
_NAT64 = tuple(ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48"))


@lru_cache(maxsize=8)
def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Raises ValueError naming the text."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def networks_of_the_run(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The networks that the pod's operator refuses now; none outside of a cluster. Raises OSError
    where they cannot be read."""
    path = environment.get(FILE_VARIABLE)
    listed = Path(path).read_text() if path else ""
    return (*environment.get(VARIABLE, "").split(), *listed.split())


def refuse_addresses(field: str, host: str, addresses: Iterable[str], networks: tuple[Network, ...]) -> None:
    """Raises SpecInvalid where one of `addresses`, which `host` of the spec's `field` has, is in a
    network of `networks`."""
    for address in addresses:
        if network := refusing(address, networks):
            raise fail(
                Reason.SPEC_INVALID,
                f"{field}: {host} is at {address}, in the network {network} that the operator's policy refuses",
                needed="a server outside of the cluster's own and link-local addresses",
                remedy=f"another {field}, or the chart's value policy.refusedSourceNetworks",
            )


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `host` writes, in any form that a resolver takes for one; None for a
    name."""
    text = host.partition("%")[0].strip("[]").rstrip(".")
    with suppress(ValueError):
        return ipaddress.ip_address(text)
    return _short_form(text)


def _short_form(text: str) -> ipaddress.IPv4Address | None:
    """An IPv4 address of one to four numbers, each decimal, octal or hexadecimal, the last one for
    all bytes that are left. Source: POSIX, `inet_addr`."""
    parts = text.split(".")
    if len(parts) > _IPV4_BYTES or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    *first, last = (int(part, 16 if part[:2] in ("0x", "0X") else 8 if part[0] == "0" else 10) for part in parts)
    left = 8 * (_IPV4_BYTES - len(first))
    if any(number > 255 for number in first) or last >= 1 << left:
        return None
    value = last
    for place, number in enumerate(first):
        value |= number << 8 * (_IPV4_BYTES - 1 - place)
    return ipaddress.IPv4Address(value)


def refusing(host: str, networks: tuple[Network, ...]) -> Network | None:
    """The network that the address `host` is in; None for none. Raises ValueError for what is no
    address."""
    address = address_of(host)
    if address is None:
        raise ValueError(host)
    written = (address, *_within(address))
    return next((n for n in networks if any(a in n for a in written)), None)


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    yield from (a for a in (address.ipv4_mapped, address.sixtofour) if a is not None)
    if any(address in prefix for prefix in _NAT64):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
