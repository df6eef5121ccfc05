"""No client of brokers connects with an address that the operator's policy refuses, whatever the
brokers advertise.

Why it exists: brokers name each other, so one that means harm sends its clients anywhere, and names
resolve anew at each connection. Why it is right: librdkafka asks its resolve callback for the
addresses of every server, bootstrap or advertised, name or literal, and connects with what that
answers; here it answers with addresses that were checked, or with none. confluent-kafka has no way
to set one, so it is set by librdkafka's own functions, after the client is made without servers and
before it gets them: nothing was resolved before. (The connect callback holds a broker's lock, for
which a thread may wait that has Python's own.) Without a policy clients are made as ever.

Source: `rdkafka.h`, `rd_kafka_conf_set_resolve_cb`, `rd_kafka_brokers_add`; `confluent_kafka.h`,
`Handle`: the client's handle is the first field of each object. A handle whose name is not the
client's own is refused.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from confluent_kafka import cimpl

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.networks import parse_networks, refuse_addresses

_FIELD = "spec.sink.kafka.bootstrapServers"
#: of a Python object: its reference count and its type
_OBJECT_HEAD = 2 * ctypes.sizeof(ctypes.c_void_p)
#: in a sockaddr, by its family: where the address is, and its bytes
_ADDRESS = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
_LIBC = ctypes.CDLL(None)
#: of ctypes
Resolver: TypeAlias = Any
#: they live as long as the process: a thread of a client may outlive its object
_RESOLVERS: list[Resolver] = []


class _AddressInfo(ctypes.Structure):
    """`struct addrinfo` of glibc."""


_AddressInfo._fields_ = [
    *((name, ctypes.c_int) for name in ("flags", "family", "socktype", "protocol")),
    ("length", ctypes.c_uint32),
    ("address", ctypes.c_void_p),
    ("canonical_name", ctypes.c_char_p),
    ("next", ctypes.POINTER(_AddressInfo)),
]
_Answer: Any = ctypes.POINTER(_AddressInfo)
#: node, service, hints, answer, opaque
_CALLBACK: Any = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(_Answer), ctypes.c_void_p
)
_LIBC.getaddrinfo.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(_Answer)]
_LIBC.freeaddrinfo.argtypes, _LIBC.freeaddrinfo.restype = [_Answer], None


def resolver(networks: Callable[[], tuple[str, ...]], note: Callable[[CdcError], None]) -> Resolver:
    """One that any number of clients may have; `networks` are asked for each time. `note` gets the
    error of each server that is refused, in a thread of a client."""
    callback = _CALLBACK(_resolving(networks, note))
    _RESOLVERS.append(callback)
    return callback


def guard(client: Any, servers: str, resolver: Resolver) -> None:
    """Gives a client that was made without servers its `servers`, with addresses of the
    resolver."""
    library = _library()
    handle = ctypes.c_void_p.from_address(id(client) + _OBJECT_HEAD)
    name = library.rd_kafka_name(handle) if handle else None
    if name is None or not name.startswith(b"cdcsync#"):
        raise fail(
            Reason.INTERNAL_ERROR,
            "a client of the brokers that holds its handle elsewhere",
            needed="the version of confluent-kafka that is locked",
        )
    settings = library.rd_kafka_conf(handle)
    library.rd_kafka_conf_set_resolve_cb(settings, resolver)
    # a client that lost all brokers begins again with these
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", servers.encode(), None, 0)
    library.rd_kafka_brokers_add(handle, servers.encode())


def _resolving(networks: Callable[[], tuple[str, ...]], note: Callable[[CdcError], None]) -> Callable[..., int]:
    def resolve(node: bytes | None, service: bytes | None, hints: int | None, answer: Any, _opaque: object) -> int:
        """As getaddrinfo; without `node` it frees an answer."""
        if node is None:
            _LIBC.freeaddrinfo(answer[0])
            return 0
        failed: int = _LIBC.getaddrinfo(node, service, hints, answer)
        if failed:
            return failed
        try:
            server = f"the broker {node.decode(errors='replace')}:{(service or b'').decode(errors='replace')}"
            refuse_addresses(_FIELD, server, _addresses(answer[0]), parse_networks(networks()))
        except Exception as error:  # noqa: BLE001 (the caller is no Python: it would go on with what it has)
            _LIBC.freeaddrinfo(answer[0])
            if isinstance(error, CdcError):
                note(error)
            return socket.EAI_FAIL
        return 0

    return resolve


def _addresses(answer: Any) -> Iterator[str]:
    while answer:
        names = answer.contents
        at, length = _ADDRESS[names.family]
        yield str(ipaddress.ip_address(ctypes.string_at(names.address + at, length)))
        answer = names.next


def _library() -> Any:
    """librdkafka, as confluent-kafka has loaded it."""
    library: Any = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf.restype, library.rd_kafka_conf.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    library.rd_kafka_name.restype, library.rd_kafka_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    library.rd_kafka_conf_set_resolve_cb.argtypes = [ctypes.c_void_p, _CALLBACK]
    library.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    library.rd_kafka_brokers_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library
