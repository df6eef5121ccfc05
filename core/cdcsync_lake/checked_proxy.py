"""A proxy on loopback through which a store's client connects to checked addresses only.

Why it exists: the operator and drivers reach stores that tenants name, and a name, a redirect or a
variable of a Secret may lead to a server that their pods reach and the tenant does not. Why it is
right:
every connection of the client comes through here, the name is resolved here once, each of its
addresses is checked, and the connection goes to an address that was checked, so no later answer of
a name server counts. What the client sends further on the same connection goes to that server,
whatever host it names. Where the environment names a proxy for the host, that one is connected
with, its address is checked, and what is beyond it is its own to refuse. Source: RFC 9110, CONNECT;
RFC 9112, absolute-form.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.networks import Network, parse_networks, refuse_addresses

#: bytes of a request's line and headers, and of what is copied at once
_HEAD, _BLOCK = 64 * 2**10, 64 * 2**10
#: seconds to connect, and without any byte in either direction
_CONNECT, _SILENT = 5.0, 120.0
#: seconds for which a refusal explains an error of the client
_RECENT = 120.0

#: where a cloud gives a pod the credentials of its own identity
_IDENTITY = "169.254.169.254,169.254.170.2,169.254.170.23,fd00:ec2::254,fd00:ec2::23"


#: a region is a part of the name of the cloud's endpoint
_REGION = re.compile(r"[a-z0-9-]+")


#: options of a store's client that a Secret may give where connections are checked: others turn the
#: proxy off, or have the client send a file of its machine to a host that they name. The key of
#: SSE-C would go with each request to whatever endpoint the spec names
_OPTIONS = frozenset(
    f"AWS_{name}" for name in (
        "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "TOKEN", "REGION", "DEFAULT_REGION", "ENDPOINT_URL",
        "ENDPOINT_URL_S3", "ENDPOINT", "ALLOW_HTTP", "VIRTUAL_HOSTED_STYLE_REQUEST", "SERVER_SIDE_ENCRYPTION",
        "SSE_KMS_KEY_ID", "SSE_BUCKET_KEY_ENABLED", "CHECKSUM_ALGORITHM", "UNSIGNED_PAYLOAD", "REQUEST_PAYER",
        "DISABLE_TAGGING", "SKIP_SIGNATURE", "S3_EXPRESS",
    )
)  # fmt: skip


def allowed_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a client takes where it connects by the proxy."""
    return {name: value for name, value in options.items() if name in _OPTIONS}


def proxied(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """What lets the client of a store, which has `options`, connect through the proxy `url`.

    One without keys asks the cloud for those of the pod's own identity, past the proxy. Only the
    cloud's own endpoints may lead it there: another one could by a redirect.
    """
    region = options.get("AWS_REGION") or options.get("AWS_DEFAULT_REGION") or "us-east-1"
    named = [name for name in options if "ENDPOINT" in name.upper()]
    if "AWS_ACCESS_KEY_ID" in options or named or not _REGION.fullmatch(region):
        return {"proxy_url": url}
    return {"proxy_url": url, "proxy_excludes": _IDENTITY}


def connect_checked(
    field: str, host: str, port: int, networks: tuple[Network, ...], seconds: float = _CONNECT
) -> socket.socket:
    """A connection to an address of `host`, which the spec's `field` names. Raises OSError;
    SpecInvalid where one of its addresses is in `networks`."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    refuse_addresses(field, host, addresses, networks)
    last = OSError(f"no address of {host}")
    for address in addresses:
        try:
            return socket.create_connection((address, port), seconds)
        except OSError as error:
            last = error
    raise last


class CheckedProxy:
    """Serves until `close`; `url` is the client's proxy. No address in `refused_networks()`, asked
    for each connection, is connected with; `take_refusal` gives the error of the last connection
    that asked for one, once, for two minutes. With `through_proxies` it goes on through the
    environment's."""

    def __init__(self, refused_networks: Callable[[], tuple[str, ...]], *, through_proxies: bool = False) -> None:
        self._refused = refused_networks
        self._through_proxies = through_proxies
        self._refusal: tuple[float, CdcError] | None = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> CheckedProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                try:
                    threading.Thread(target=self._serve, args=(client,), daemon=True).start()
                except RuntimeError:  # no memory for another thread
                    client.close()

    def take_refusal(self) -> CdcError | None:
        taken, self._refusal = self._refusal, None
        return taken[1] if taken and time.monotonic() - taken[0] < _RECENT else None

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError, ValueError):
            stack.enter_context(client)
            client.settimeout(_SILENT)
            head = _read_head(client)
            tunnel, host, port = _target(head)
            try:
                beyond = self._proxy_beyond(tunnel, host)
                server = stack.enter_context(self._connect(*(beyond or (host, port))[:2]))
            except CdcError as error:
                self._refusal = time.monotonic(), error
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            except OSError:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            server.settimeout(_SILENT)
            if tunnel and not beyond:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(_authorized(head, beyond[2]) if beyond else head)
            _copy(client, server)

    def _proxy_beyond(self, tunnel: bool, host: str) -> tuple[str, int, str] | None:
        """Host, port and login of the environment's proxy for `host`. Raises SpecInvalid for one
        that is reached by TLS."""
        proxies = getproxies_environment() if self._through_proxies else {}
        url = proxies.get("https" if tunnel else "http") or proxies.get("all")
        if not url or proxy_bypass_environment(host, proxies) or _in_networks(host, proxies.get("no", "")):
            return None
        if url.startswith("https:"):
            raise fail(
                Reason.SPEC_INVALID,
                "the variable HTTPS_PROXY or HTTP_PROXY of the pod names a proxy that is reached by https",
                needed="a proxy that is reached by http, through which TLS goes on to the store",
                remedy="name it as http://host:port in the podTemplate",
            )
        parts = urlsplit(url if "://" in url else f"//{url}")
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        return (parts.hostname, parts.port or 80, login) if parts.hostname else None

    def _connect(self, host: str, port: int) -> socket.socket:
        return connect_checked("options.endpoint of spec.sink", host, port, parse_networks(self._refused()))


def _in_networks(host: str, no_proxy: str) -> bool:
    """Whether `host` is an address in one of the networks that NO_PROXY lists beside names."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        for entry in no_proxy.split(","):
            with suppress(ValueError):
                if "/" in entry and address in ipaddress.ip_network(entry.strip(), strict=False):
                    return True
    return False


def _authorized(head: bytes, login: str) -> bytes:
    """A request with the login of the proxy that gets it."""
    if not login:
        return head
    line, rest = head.split(b"\r\n", 1)
    return b"%s\r\nProxy-Authorization: Basic %s\r\n%s" % (line, base64.b64encode(login.encode()), rest)


def _read_head(client: socket.socket) -> bytes:
    """The first bytes of a request, with all of its headers. Raises ValueError where they do not
    end."""
    head = b""
    while b"\r\n\r\n" not in head:
        block = client.recv(_BLOCK)
        if not block or len(head) > _HEAD:
            raise ValueError("no request")
        head += block
    return head


def _target(head: bytes) -> tuple[bool, str, int]:
    """Whether a tunnel is asked for, and to which host and port. Raises ValueError."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ", 2)
    tunnel = method == "CONNECT"
    parts = urlsplit(f"//{target}" if tunnel else target)
    if not parts.hostname:
        raise ValueError("no host")
    return tunnel, parts.hostname, parts.port or (443 if tunnel else 80)


def _copy(client: socket.socket, server: socket.socket) -> None:
    """Copies both ways until one side ends, or both are silent."""
    other = {client: server, server: client}
    with selectors.DefaultSelector() as ready:
        for side in other:
            ready.register(side, selectors.EVENT_READ)
        while keys := ready.select(_SILENT):
            for key, _ in keys:
                side = client if key.fileobj is client else server
                block = side.recv(_BLOCK)
                if not block:
                    return
                other[side].sendall(block)
