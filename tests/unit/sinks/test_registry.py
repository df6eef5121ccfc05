"""The client of a schema registry: what each answer means, and that nothing is waited for without
end."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from support.hostile import Hostile

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
Answer = tuple[int, bytes]


class ScriptedRegistry(ThreadingHTTPServer):
    """Gives each answer once, then the last one again; notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str | None, object]] = []
        self.delay = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: ScriptedRegistry

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: object) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        time.sleep(self.server.delay)
        status, text = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[ScriptedRegistry]:
    registry = ScriptedRegistry()
    thread = threading.Thread(target=registry.serve_forever)
    thread.start()
    yield registry
    registry.shutdown()
    thread.join()
    registry.server_close()


def refusal(client: Registry) -> CdcError:
    with pytest.raises(CdcError) as found:
        client.register("topic-value", SCHEMA)
    return found.value


def test_a_schema_is_registered_once_per_process(server: ScriptedRegistry) -> None:
    server.answers = [(200, b'{"id": 7}')]
    client = Registry(server.url)
    assert [client.register("a/b-value", SCHEMA) for _ in range(3)] == [7, 7, 7]
    assert server.asked == [("/subjects/a%2Fb-value/versions", None, {"schema": json.dumps(SCHEMA)})]


def test_the_account_is_read_for_each_request_and_in_no_error(server: ScriptedRegistry, tmp_path: Path) -> None:
    user, password = tmp_path / "username", tmp_path / "password"
    user.write_text("cdc")
    password.write_text("a secret")
    server.answers = [(401, b'{"message": "who are you"}'), (200, b'{"id": 1}')]
    client = Registry(server.url, (user, password))
    error = refusal(client)
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert "a secret" not in error.message
    password.write_text("another\n")
    assert client.register("topic-value", SCHEMA) == 1
    sent = [header and base64.b64decode(header.removeprefix("Basic ")) for _, header, _ in server.asked]
    assert sent == [b"cdc:a secret", b"cdc:another"]


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_no_proxy_of_the_environment_gets_the_account(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        server.answers = [(200, b'{"id": 7}')]
        assert Registry(server.url).register("topic-value", SCHEMA) == 7


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, Reason.AUTHENTICATION_FAILED),
        (403, Reason.PRIVILEGE_MISSING),
        (404, Reason.SPEC_INVALID),
        (409, Reason.SINK_CONFLICT),
        (422, Reason.SINK_CONFLICT),
        (302, Reason.SPEC_INVALID),
    ],
)
def test_a_refusal_is_told_in_the_registrys_words_and_not_tried_again(
    server: ScriptedRegistry, status: int, reason: Reason
) -> None:
    server.answers = [(status, b'{"error_code": 1, "message": "the old one has more"}')]
    error = refusal(Registry(server.url))
    assert error.reason is reason
    assert "the old one has more" in error.found
    assert [path for path, _, _ in server.asked] == ["/subjects/topic-value/versions"]


@pytest.mark.parametrize("body", [b"an internal page", b'{"message": "an internal page"}', b'["an internal page"]'])
def test_the_text_of_a_server_that_is_no_registry_is_not_shown(server: ScriptedRegistry, body: bytes) -> None:
    server.answers = [(403, body)]
    error = refusal(Registry(server.url))
    assert "it answered 403" in error.message
    assert "internal" not in error.message


def test_a_password_that_a_registry_repeats_is_not_shown(server: ScriptedRegistry, tmp_path: Path) -> None:
    """The account's name, too, where its key may be that of any secret."""
    for key, text in {"username": "cdc", "other": "other-secret", "password": "pw"}.items():
        (tmp_path / key).write_text(text)
    for key, shown in {"username": '"cdc: not ***"', "other": '"***: not ***"'}.items():
        name = (tmp_path / key).read_text()
        server.answers = [(401, json.dumps({"error_code": 40101, "message": f"{name}: not pw"}).encode())]
        assert shown in refusal(Registry(server.url, (tmp_path / key, tmp_path / "password"))).message


def test_a_schema_is_asked_for_once_per_process(server: ScriptedRegistry) -> None:
    server.answers = [(200, json.dumps({"schema": json.dumps(SCHEMA)}).encode())]
    client = Registry(server.url)
    assert [client.schema(7) for _ in range(3)] == [SCHEMA] * 3
    assert server.asked == [("/schemas/ids/7", None, None)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, b'{"error_code": 40403, "message": "Schema 7 not found"}'), Reason.SINK_CONFLICT),
        ((403, b"{}"), Reason.PRIVILEGE_MISSING),
        ((200, b"{}"), Reason.SPEC_INVALID),
        ((200, b'{"schema": "no JSON"}'), Reason.SPEC_INVALID),
        ((200, b'{"schema": 7}'), Reason.SPEC_INVALID),
    ],
)
def test_a_schema_that_the_registry_does_not_give(server: ScriptedRegistry, answer: Answer, reason: Reason) -> None:
    server.answers = [answer]
    with pytest.raises(CdcError) as refused:
        Registry(server.url).schema(7)
    assert refused.value.reason is reason
    assert "did not give the schema 7" in refused.value.found


def test_an_account_that_cannot_be_read(server: ScriptedRegistry, tmp_path: Path) -> None:
    """No registry is asked without it."""
    server.answers = [(200, b'{"id": 1}')]
    error = refusal(Registry(server.url, (tmp_path / "username", tmp_path / "password")))
    assert error.reason is Reason.SPEC_INVALID
    assert "no readable credential" in error.found
    assert "schemaRegistry" in error.message
    assert server.asked == []


def test_a_check_asks_and_changes_nothing(server: ScriptedRegistry) -> None:
    server.answers = [(200, b'{"compatibilityLevel": "BACKWARD"}')]
    Registry(server.url).check()
    server.answers = [(401, b"")]
    with pytest.raises(CdcError) as refused:
        Registry(server.url).check()
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    assert [(path, body) for path, _, body in server.asked] == [("/config", None)] * 2


def test_what_passes_is_tried_again_within_a_bound(server: ScriptedRegistry) -> None:
    server.answers = [(503, b""), (500, b"oops"), (200, b'{"id": 3}')]
    assert Registry(server.url, pause=0.0).register("topic-value", SCHEMA) == 3
    server.answers, server.asked = [(503, b"down")], []
    error = refusal(Registry(server.url, pause=0.0))
    assert (error.reason, len(server.asked)) == (Reason.SINK_UNREACHABLE, 3)
    assert "503" in error.found


def test_one_that_hangs_or_is_not_there_ends_in_time(server: ScriptedRegistry) -> None:
    server.answers, server.delay = [(200, b'{"id": 3}')], 1.0
    assert refusal(Registry(server.url, seconds=0.2, pause=0.0)).reason is Reason.SINK_UNREACHABLE
    assert refusal(Registry("http://127.0.0.1:9", seconds=0.2, pause=0.0)).reason is Reason.SINK_UNREACHABLE


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"id": "x"}', b'"' + b"x" * (2 << 20) + b'"'])
def test_what_is_no_registry_is_said(server: ScriptedRegistry, body: bytes) -> None:
    server.answers = [(200, body)]
    assert refusal(Registry(server.url)).reason is Reason.SPEC_INVALID


DEEP = b"[" * 400_000


@pytest.mark.parametrize("body", [DEEP, b'{"id": true}', b'{"id": -1}', b'{"id": 4294967296}', b'{"id": 1e999}'])
def test_an_answer_that_no_record_can_name_is_refused(server: ScriptedRegistry, body: bytes) -> None:
    """A record has four bytes for its schema's id."""
    server.answers = [(200, body)]
    assert refusal(Registry(server.url)).reason is Reason.SPEC_INVALID


def test_a_deep_answer_is_refused_wherever_it_is(server: ScriptedRegistry) -> None:
    server.answers = [(409, DEEP)]
    assert refusal(Registry(server.url)).reason is Reason.SINK_CONFLICT
    server.answers = [(200, json.dumps({"schema": DEEP.decode()}).encode())]
    with pytest.raises(CdcError, match="its answer has no schema"):
        Registry(server.url).schema(7)


def dripping_headers(server: Hostile, client: socket.socket) -> None:
    client.recv(65536)
    server.send(client, b"HTTP/1.1 200 OK\r\nX-Long: ")
    server.drip(client)


def dripping_body(server: Hostile, client: socket.socket) -> None:
    client.recv(65536)
    server.send(client, b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    server.drip(client)


def dripping_refusal(server: Hostile, client: socket.socket) -> None:
    client.recv(65536)
    server.send(client, b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 100000\r\n\r\n")
    server.drip(client)


def never_final(server: Hostile, client: socket.socket) -> None:
    """An answer is to follow each of these."""
    client.recv(65536)
    while not server.ending.wait(0.01):
        server.send(client, b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", [dripping_headers, dripping_body, dripping_refusal, never_final])
def test_one_that_drips_ends_in_time(way: Callable[[Hostile, socket.socket], None]) -> None:
    """A timeout of the socket does not end it: a byte comes before each."""
    with Hostile(way).listening() as port:
        error = refusal(Registry(f"http://127.0.0.1:{port}", seconds=0.3, pause=0.0))
    assert error.reason is Reason.SINK_UNREACHABLE
    assert "0.3 s" in error.found


@pytest.mark.timeout(240)
def test_a_tls_handshake_that_drips_ends_in_time() -> None:
    def dripping_handshake(server: Hostile, client: socket.socket) -> None:
        client.recv(4096)
        server.send(client, b"\x16\x03\x03\x3f\xff")
        server.drip(client)

    with Hostile(dripping_handshake).listening() as port:
        error = refusal(Registry(f"https://127.0.0.1:{port}", seconds=0.3, pause=0.0))
    assert error.reason is Reason.SINK_UNREACHABLE
