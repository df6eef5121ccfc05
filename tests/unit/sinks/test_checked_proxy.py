"""A store's client connects to checked addresses only."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from cdcsync_lake.checked_proxy import CheckedProxy


@contextmanager
def echo_server() -> Iterator[int]:
    """Sends back what its clients send; the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo(client: socket.socket) -> None:
        with client:
            while block := client.recv(4096):
                client.sendall(block)

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connected(proxy: CheckedProxy) -> socket.socket:
    parts = urlsplit(proxy.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), 60)


def test_a_tunnel_carries_bytes_both_ways() -> None:
    with echo_server() as port, CheckedProxy(()) as proxy, connected(proxy) as client:
        client.sendall(b"CONNECT localhost:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"bytes of TLS")
        assert client.recv(4096) == b"bytes of TLS"
    assert proxy.refusal is None


def test_a_plain_request_is_passed_on_as_it_is() -> None:
    with echo_server() as port, CheckedProxy(()) as proxy, connected(proxy) as client:
        request = b"GET http://127.0.0.1:%d/bucket HTTP/1.1\r\nHost: x\r\n\r\n" % port
        client.sendall(request)
        assert client.recv(4096) == request


@pytest.mark.parametrize("request_line", ["CONNECT localhost:{}", "GET http://2130706433:{}/x"])
def test_an_address_of_a_refused_network_is_not_connected_with(request_line: str) -> None:
    with echo_server() as port, CheckedProxy(("127.0.0.0/8",)) as proxy, connected(proxy) as client:
        client.sendall(f"{request_line.format(port)} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
    assert proxy.refusal is not None
    assert "is at 127.0.0.1, in the network 127.0.0.0/8" in proxy.refusal.message


@pytest.mark.parametrize("head", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000])
def test_what_is_no_request_ends_the_connection(head: bytes) -> None:
    with CheckedProxy(()) as proxy, connected(proxy) as client:
        client.sendall(head)
        with suppress(ConnectionResetError):
            assert client.recv(4096) == b""
    assert proxy.refusal is None


def test_a_proxy_of_the_environment_gets_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It resolves the name itself; its own address is checked."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    request = b"CONNECT store.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    with echo_server() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@localhost:{port}")
        with CheckedProxy((), through_proxies=True) as proxy, connected(proxy) as client:
            client.sendall(request)
            line, login, rest = client.recv(4096).split(b"\r\n", 2)
            assert line + b"\r\n" + rest == request
            assert login == b"Proxy-Authorization: Basic " + base64.b64encode(b"user:p@ss")
        with CheckedProxy(("127.0.0.0/8",), through_proxies=True) as proxy, connected(proxy) as client:
            client.sendall(request)
            assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
        assert proxy.take_refusal() is not None
        assert proxy.take_refusal() is None
        monkeypatch.setenv("NO_PROXY", "localhost")
        with CheckedProxy((), through_proxies=True) as proxy, connected(proxy) as client:
            client.sendall(b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
