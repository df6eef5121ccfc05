"""The client of the API server: pages, refusals, a connection that the server closed, bounds of an
answer, and what is never shown."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import SSLError

from cdcsync_kube import client, timed_pool
from cdcsync_kube.client import ANNOTATIONS, LABELS, Api, ApiError
from cdcsync_operator.cluster.objects.run_objects import (
    KIND_LABEL,
    PART_LABEL,
    PLANNED,
    RUN_LABEL,
    STOP_ASKED,
    SYNC_LABEL,
)
from support.logins import by_token
from support.secure_kafka import Authority


class ScriptedApiServer(ThreadingHTTPServer):
    """Answers by `answers`, one after the other, a status of 0 by closing the connection; keeps
    what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = []
        self.asked: list[tuple[str, str, str]] = []
        self.connections = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: object, client_address: object) -> None:
        self.connections += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedApiServer

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization", "")))
        status, body = self.server.answers.pop(0)
        if status == 0:
            self.close_connection = True
            return
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def running(server: ScriptedApiServer) -> Iterator[ScriptedApiServer]:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server() -> Iterator[ScriptedApiServer]:
    with running(ScriptedApiServer()) as started:
        yield started


@pytest.fixture
def api(server: ScriptedApiServer) -> Iterator[Api]:
    made = Api(by_token(f"http://127.0.0.1:{server.server_port}", "a-token"))
    yield made
    made.close()


def test_a_list_is_read_page_by_page(api: Api, server: ScriptedApiServer) -> None:
    server.answers = [(200, {"items": [{"n": 1}], "metadata": {"continue": "x"}}), (200, {"items": [{"n": 2}]})]
    assert [o["n"] for o in api.items("/things", labelSelector="a=b")] == [1, 2]
    assert "continue=x" in server.asked[1][1]
    assert {a for *_, a in server.asked} == {"Bearer a-token"}


def test_a_page_of_large_objects_is_read_in_smaller_ones(
    api: Api, server: ScriptedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdcsync_kube.client.ANSWER_BYTES", 250)
    large = {"text": "x" * 150}
    server.answers = [
        (200, {"items": [large, large]}),
        (200, {"items": [large], "metadata": {"continue": "x"}}),
        (200, {"items": [large]}),
    ]
    assert list(api.items("/things", page=8)) == [large, large]
    assert [path.partition("limit=")[2] for _, path, _ in server.asked] == ["8", "1", "1&continue=x"]


def test_an_object_above_the_bound_is_an_error_that_names_it(
    api: Api, server: ScriptedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdcsync_kube.client.ANSWER_BYTES", 100)
    server.answers = [(200, {"text": "x" * 150}), (200, {"n": 1})]
    with pytest.raises(ApiError, match=r"/things/a: .* more than 100 bytes") as caught:
        api.get("/things/a")
    assert caught.value.unreadable
    assert api.get("/things/b") == {"n": 1}


def test_metadata_is_kept_without_what_a_tenant_can_make_large(api: Api, server: ScriptedApiServer) -> None:
    about = {
        "name": "a", "uid": "u", "managedFields": [{"manager": "x" * 1000}], "finalizers": ["x/y"] * 1000,
        "labels": {f"cdcsync.io/l{n}": "x" for n in range(1000)} | {"cdcsync.io/run": "r"},
        "annotations": {"cdcsync.io/planned": "7", "cdcsync.io/stop-asked": "x" * 5000, "cdcsync.io/note": "x"},
        "ownerReferences": [{"uid": str(n), "kind": "K", "name": "n", "x": "y" * 100} for n in range(1000)],
    }  # fmt: skip
    server.answers = [(200, {"items": [{"metadata": about}]})]
    (kept,) = api.metadata("/things")
    assert kept["labels"] == {"cdcsync.io/run": "r"}
    assert kept["annotations"] == {"cdcsync.io/planned": "7"}
    assert len(kept["ownerReferences"]) == 32
    assert kept["ownerReferences"][0] == {"kind": "K", "name": "n", "uid": "0"}
    assert len(json.dumps(kept)) < 2500
    assert set(LABELS) == {SYNC_LABEL, RUN_LABEL, PART_LABEL, KIND_LABEL}
    assert set(ANNOTATIONS) == {STOP_ASKED, PLANNED}


def test_a_refusal_has_the_servers_reason_and_message(api: Api, server: ScriptedApiServer) -> None:
    server.answers = [(409, {"reason": "AlreadyExists", "message": "it is there"})]
    with pytest.raises(ApiError) as caught:
        api.create("/things", {})
    assert (caught.value.conflict, caught.value.reason, caught.value.message) == (True, "AlreadyExists", "it is there")


def test_what_is_gone_counts_as_deleted(api: Api, server: ScriptedApiServer) -> None:
    server.answers = [(404, {"reason": "NotFound"}), (403, {"reason": "Forbidden"})]
    api.delete("/things/a")
    with pytest.raises(ApiError):
        api.delete("/things/a")


def test_a_call_whose_connection_was_closed_is_repeated_but_a_creation_is_not(
    api: Api, server: ScriptedApiServer
) -> None:
    server.answers = [(200, {}), (0, {}), (200, {"a": 1}), (0, {})]
    api.get("/one")
    assert api.get("/two") == {"a": 1}
    with pytest.raises(ApiError) as caught:
        api.create("/three", {})
    assert (caught.value.status, caught.value.transient) == (0, True)
    assert [path for _, path, _ in server.asked] == ["/one", "/two", "/two", "/three"]


def test_a_server_that_is_away_is_a_transient_error_without_the_token() -> None:
    with pytest.raises(ApiError) as caught:
        Api(by_token("http://127.0.0.1:1", "a-token")).get("/")
    assert caught.value.transient
    assert "a-token" not in str(caught.value)


def test_threads_share_connections(api: Api, server: ScriptedApiServer) -> None:
    server.answers = [(200, {})] * 20
    for _ in range(20):
        thread = threading.Thread(target=api.get, args=("/x",))
        thread.start()
        thread.join()
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirection_is_an_error_and_is_not_followed(api: Api, server: ScriptedApiServer, status: int) -> None:
    server.answers = [(status, {"message": "go elsewhere"}), (200, {})]
    with pytest.raises(ApiError, match="go elsewhere") as caught:
        api.get("/x")
    assert caught.value.status == status
    assert [path for _, path, _ in server.asked] == ["/x"]


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b"{", b"\xff\xfe", b"[1]"])
def test_an_answer_that_is_no_object_or_nests_too_deeply_is_an_error(
    api: Api, server: ScriptedApiServer, body: bytes
) -> None:
    server.answers = [(200, body), (200, {"n": 1})]
    with pytest.raises(ApiError, match="/x: the API server's answer is no") as caught:
        api.get("/x")
    assert caught.value.unreadable
    assert api.get("/y") == {"n": 1}


def test_a_refusal_that_nests_too_deeply_is_a_refusal(api: Api, server: ScriptedApiServer) -> None:
    server.answers = [(403, b'{"reason":' + b"[" * 1_000_000)]
    with pytest.raises(ApiError) as caught:
        api.get("/x")
    assert (caught.value.status, len(caught.value.message)) == (403, 500)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes well within the timeout of a step, which is half a minute."""
    monkeypatch.setattr("cdcsync_kube.client._STEPS", 0.05)
    end = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(head or b"HTTP/1.1 200 OK\r\nX: ")
            while not end.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        api = Api(by_token(f"http://127.0.0.1:{listener.getsockname()[1]}", "a-token"))
        with pytest.raises(ApiError, match=r"not all in 1\.5 s") as caught:
            api.get("/x")
        end.set()
        thread.join()
        api.close()
    assert caught.value.transient


def test_a_call_without_a_thread_for_its_deadline_is_a_transient_error(
    api: Api, server: ScriptedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a pod's processes, or an interpreter that ends, refuses threads."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server.answers = [(200, {"n": 1})]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Timer, "start", refuse)
        with pytest.raises(ApiError, match="can't start new thread") as caught:
            api.get("/x")
    assert caught.value.transient
    assert getattr(timed_pool._thread, "deadline", None) is None
    assert server.asked == []
    assert api.get("/x") == {"n": 1}


class _TlsServer(ScriptedApiServer):
    """Ends its first `ended` connections in the handshake."""

    def __init__(self, folder: Path, authority: Authority, ended: int) -> None:
        super().__init__()
        self._ended = ended
        certificate, key = authority.pair("localhost")
        (folder / "server.pem").write_text(certificate + key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "server.pem")

    def get_request(self) -> tuple[socket.socket, Any]:
        peer, address = super().get_request()
        self._ended -= 1
        if self._ended < 0:
            return self._context.wrap_socket(peer, server_side=True), address
        with peer, suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        raise ConnectionAbortedError


@pytest.mark.parametrize("ended", [1, 2])
def test_a_call_whose_connection_tls_ends_is_repeated_once(tmp_path: Path, ended: int) -> None:
    authority = Authority("of the test")
    (tmp_path / "authority.pem").write_text(authority.certificate)
    with running(_TlsServer(tmp_path, authority, ended)) as server:
        api = Api(by_token(f"https://localhost:{server.server_port}", "a-token", str(tmp_path / "authority.pem")))
        server.answers = [(200, {"n": 1})]
        if ended == 1:
            assert api.get("/x") == {"n": 1}
        else:
            with pytest.raises(ApiError, match="SSLError"):
                api.get("/x")
        assert api.calls == 2
        api.close()


@pytest.mark.parametrize(
    ("fault", "closed"),
    [(ssl.SSLEOFError(), True), (ssl.SSLZeroReturnError(), True), (ssl.SSLCertVerificationError(), False)],
)
def test_only_an_end_of_tls_is_a_closed_connection(fault: ssl.SSLError, closed: bool) -> None:
    assert client._was_closed(SSLError(fault)) is closed
