"""A store's client connects to checked addresses only."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from cdcsync_core.resource.networks import VARIABLE
from cdcsync_lake.checked_proxy import CheckedProxy, proxied
from cdcsync_lake.proxy_process import ProxyProcess


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


def connected(proxy: CheckedProxy | ProxyProcess) -> socket.socket:
    parts = urlsplit(proxy.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), 60)


def test_a_tunnel_carries_bytes_both_ways() -> None:
    with echo_server() as port, CheckedProxy(tuple) as proxy, connected(proxy) as client:
        client.sendall(b"CONNECT localhost:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"bytes of TLS")
        assert client.recv(4096) == b"bytes of TLS"
    assert proxy.take_refusal() is None


def test_a_plain_request_is_passed_on_as_it_is() -> None:
    with echo_server() as port, CheckedProxy(tuple) as proxy, connected(proxy) as client:
        request = b"GET http://127.0.0.1:%d/bucket HTTP/1.1\r\nHost: x\r\n\r\n" % port
        client.sendall(request)
        assert client.recv(4096) == request


@pytest.mark.parametrize("request_line", ["CONNECT localhost:{}", "GET http://2130706433:{}/x"])
def test_an_address_of_a_refused_network_is_not_connected_with(request_line: str) -> None:
    with echo_server() as port, CheckedProxy(lambda: ("127.0.0.0/8",)) as proxy, connected(proxy) as client:
        client.sendall(f"{request_line.format(port)} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
    refusal = proxy.take_refusal()
    assert refusal is not None
    assert "is at 127.0.0.1, in the network 127.0.0.0/8" in refusal.message


@pytest.mark.parametrize("head", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000])
def test_what_is_no_request_ends_the_connection(head: bytes) -> None:
    with CheckedProxy(tuple) as proxy, connected(proxy) as client:
        client.sendall(head)
        with suppress(ConnectionResetError):
            assert client.recv(4096) == b""
    assert proxy.take_refusal() is None


def test_a_proxy_of_the_environment_gets_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It resolves the name itself; its own address is checked."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    request = b"CONNECT store.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    with echo_server() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@localhost:{port}")
        with CheckedProxy(tuple, through_proxies=True) as proxy, connected(proxy) as client:
            client.sendall(request)
            line, login, rest = client.recv(4096).split(b"\r\n", 2)
            assert line + b"\r\n" + rest == request
            assert login == b"Proxy-Authorization: Basic " + base64.b64encode(b"user:p@ss")
        with CheckedProxy(lambda: ("127.0.0.0/8",), through_proxies=True) as proxy, connected(proxy) as client:
            client.sendall(request)
            assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
        assert proxy.take_refusal() is not None
        assert proxy.take_refusal() is None
        monkeypatch.setenv("NO_PROXY", "localhost")
        with CheckedProxy(tuple, through_proxies=True) as proxy, connected(proxy) as client:
            client.sendall(b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_network_of_no_proxy_is_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "example.com, 127.0.0.0/8")
    with echo_server() as port, CheckedProxy(tuple, through_proxies=True) as proxy, connected(proxy) as client:
        client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_proxy_that_is_reached_by_tls_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "https://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with CheckedProxy(tuple, through_proxies=True) as proxy, connected(proxy) as client:
        client.sendall(b"CONNECT store.example:443 HTTP/1.1\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
    refusal = proxy.take_refusal()
    assert refusal is not None
    assert "HTTPS_PROXY" in refusal.message


KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}


@pytest.mark.parametrize(
    ("options", "excludes"),
    [
        ({}, True),
        ({"AWS_REGION": "eu-central-1"}, True),
        ({"AWS_REGION": "evil.example/?"}, False),
        ({"AWS_ENDPOINT_URL": "http://evil.example"}, False),
        ({"AWS_ENDPOINT": "http://evil.example"}, False),
        ({"AWS_ENDPOINT_URL_S3": "http://evil.example"}, False),
        (KEYS, False),
    ],
)
def test_only_the_clouds_own_endpoints_may_ask_for_the_pods_identity(options: dict[str, str], excludes: bool) -> None:
    """A server that a tenant names could send its client to the addresses past the proxy."""
    assert ("proxy_excludes" in proxied("http://127.0.0.1:1", options)) is excludes


def test_a_proxy_in_its_own_process_serves_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, "127.0.0.2/32")
    proxy = ProxyProcess()
    try:
        with echo_server() as port, connected(proxy) as client:
            client.sendall(b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert proxy.take_refusal() is None
        with connected(proxy) as client:
            client.sendall(b"CONNECT 127.0.0.2:1 HTTP/1.1\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
        refusal = proxy.take_refusal()
        assert refusal is not None
        assert "127.0.0.2" in refusal.message
        assert not proxy.ended
    finally:
        proxy.close()
    assert proxy.ended
    assert proxy.take_refusal() is None
