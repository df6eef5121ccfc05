"""A proxy on loopback through which a store's client connects to checked addresses only.

Why it exists: the operator checks stores that tenants name, and a name, a redirect or a variable of
a Secret may lead to a server that the operator reaches and the tenant does not. Why it is right:
every connection of the client comes through here, the name is resolved here once, each of its
addresses is checked, and the connection goes to an address that was checked, so no later answer of
a name server counts. What the client sends further on the same connection goes to that server,
whatever host it names. Source: RFC 9110, CONNECT; RFC 9112, absolute-form.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.networks import parse_networks, refusing

#: bytes of a request's line and headers, and of what is copied at once
_HEAD, _BLOCK = 64 * 2**10, 64 * 2**10
#: seconds to connect, and without any byte in either direction
_CONNECT, _SILENT = 5.0, 30.0


class CheckedProxy:
    """Serves until `close`; `url` is the client's proxy. No address in `refused_networks` is
    connected with; `refusal` is the error of the first connection that asked for one."""

    def __init__(self, refused_networks: tuple[str, ...]) -> None:
        self._refused = parse_networks(refused_networks)
        self.refusal: CdcError | None = None
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

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError, ValueError):
            stack.enter_context(client)
            client.settimeout(_SILENT)
            head = _read_head(client)
            tunnel, host, port = _target(head)
            try:
                server = stack.enter_context(self._connect(host, port))
            except CdcError as error:
                self.refusal = self.refusal or error
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            except OSError:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            if tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(head)
            _copy(client, server)

    def _connect(self, host: str, port: int) -> socket.socket:
        """Raises OSError; SpecInvalid for an address that is refused."""
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        for address in addresses:
            if network := refusing(address, self._refused):
                raise fail(
                    Reason.SPEC_INVALID,
                    f"the store's host {host} is at {address}, in the network {network} that the operator's policy refuses",
                    needed="a store outside of the cluster's own and link-local addresses",
                    remedy="another options.endpoint of spec.sink, or the chart's value policy.refusedSourceNetworks",
                )
        last = OSError(f"no address of {host}")
        for address in addresses:
            try:
                return socket.create_connection((address, port), _CONNECT)
            except OSError as error:
                last = error
        raise last


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
    while ready := select.select([client, server], [], [], _SILENT)[0]:
        for side in ready:
            block = side.recv(_BLOCK)
            if not block:
                return
            other[side].sendall(block)
