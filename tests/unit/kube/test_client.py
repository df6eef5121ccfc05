"""The client of the API server: pages, refusals, a connection that the server closed, and what is
never shown."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_kube.access import by_kubeconfig
from cdcsync_kube.client import Api, ApiError


class Server(ThreadingHTTPServer):
    """Answers by `answers`, one after the other; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = []
        self.asked: list[tuple[str, str, str]] = []
        self.hang_up = False
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization", "")))
        status, body = self.server.answers.pop(0)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.server.hang_up  # without a header that announces it

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    made = Api(f"http://127.0.0.1:{server.server_port}", None, lambda: "a-token")
    yield made
    made.close()


def test_a_list_is_read_page_by_page(api: Api, server: Server) -> None:
    server.answers = [(200, {"items": [{"n": 1}], "metadata": {"continue": "x"}}), (200, {"items": [{"n": 2}]})]
    assert [o["n"] for o in api.items("/things", labelSelector="a=b")] == [1, 2]
    assert "continue=x" in server.asked[1][1]
    assert {a for *_, a in server.asked} == {"Bearer a-token"}


def test_a_page_of_large_objects_is_read_in_smaller_ones(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch
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
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdcsync_kube.client.ANSWER_BYTES", 100)
    server.answers = [(200, {"text": "x" * 150}), (200, {"n": 1})]
    with pytest.raises(ApiError, match="more than 100 bytes"):
        api.get("/things/a")
    assert api.get("/things/b") == {"n": 1}


def test_metadata_is_kept_without_what_a_tenant_can_make_large(api: Api, server: Server) -> None:
    about = {
        "name": "a", "uid": "u", "managedFields": [{"manager": "x" * 1000}], "finalizers": ["x/y"] * 1000,
        "labels": {"cdcsync.io/run": "r"} | {f"l{n}": "x" for n in range(1000)},
        "annotations": {"cdcsync.io/planned": "7", "cdcsync.io/large": "x" * 5000, "note": "x" * 5000},
        "ownerReferences": [{"uid": str(n), "kind": "K", "name": "n", "x": "y" * 100} for n in range(1000)],
    }  # fmt: skip
    server.answers = [(200, {"items": [{"metadata": about}]})]
    (kept,) = api.metadata("/things")
    assert kept["labels"] == {"cdcsync.io/run": "r"}
    assert kept["annotations"] == {"cdcsync.io/planned": "7"}
    assert len(kept["ownerReferences"]) == 32
    assert kept["ownerReferences"][0] == {"kind": "K", "name": "n", "uid": "0"}
    assert len(json.dumps(kept)) < 2500


def test_a_refusal_has_the_servers_reason_and_message(api: Api, server: Server) -> None:
    server.answers = [(409, {"reason": "AlreadyExists", "message": "it is there"})]
    with pytest.raises(ApiError) as caught:
        api.create("/things", {})
    assert (caught.value.conflict, caught.value.reason, caught.value.message) == (True, "AlreadyExists", "it is there")


def test_what_is_gone_counts_as_deleted(api: Api, server: Server) -> None:
    server.answers = [(404, {"reason": "NotFound"}), (403, {"reason": "Forbidden"})]
    api.delete("/things/a")
    with pytest.raises(ApiError):
        api.delete("/things/a")


def test_a_closed_connection_is_opened_again_but_a_creation_is_not_repeated(api: Api, server: Server) -> None:
    server.hang_up = True
    server.answers = [(200, {}), (200, {"a": 1}), (200, {})]
    api.get("/one")
    assert api.get("/two") == {"a": 1}
    with pytest.raises(ApiError) as caught:
        api.create("/three", {})
    assert (caught.value.status, caught.value.transient) == (0, True)
    assert [path for _, path, _ in server.asked] == ["/one", "/two"]


def test_a_server_that_is_away_is_a_transient_error_without_the_token() -> None:
    with pytest.raises(ApiError) as caught:
        Api("http://127.0.0.1:1", None, lambda: "a-token").get("/")
    assert caught.value.transient
    assert "a-token" not in str(caught.value)


def test_a_kubeconfig_that_logs_in_by_a_program_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config"
    entry = (
        "clusters: [{name: c, cluster: {server: 'https://x'}}]\ncontexts: [{name: k, context: {cluster: c, user: u}}]\n"
    )
    path.write_text(entry + "users: [{name: u, user: {exec: {command: login}}}]\ncurrent-context: k\n")
    with pytest.raises(PermanentError, match="logs in by a program"):
        by_kubeconfig(path)
    with pytest.raises(PermanentError, match="no usable kubeconfig"):
        by_kubeconfig(tmp_path / "none")


def test_the_connection_of_a_thread_ends_with_it(api: Api, server: Server) -> None:
    server.answers = [(200, {})] * 20
    for _ in range(20):
        thread = threading.Thread(target=api.get, args=("/x",))
        thread.start()
        thread.join()
    gc.collect()
    assert len(api._opened) == 0
