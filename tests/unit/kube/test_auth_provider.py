"""The `auth-provider` of a kubeconfig's user: renewed by the official client, within a bound of
time."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.errors import PermanentError
from cdcsync_kube import bounded_program
from cdcsync_kube.access import by_kubeconfig
from support.semisync import until

_LATER = "2999-01-01T00:00:00Z"


def _kubeconfig(folder: Path, name: str, config: dict[str, Any], **user: Any) -> Path:
    path = folder / "config"
    user = {"auth-provider": {"name": name, "config": config}} | user
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://x"}}],
        "contexts": [{"name": "k", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        "current-context": "k",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _stored(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    return config


def _command(folder: Path, script: str) -> str:
    program = folder / "gcloud"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def _jwt(end: float, name: str) -> str:
    parts = [{"alg": "none"}, {"exp": int(end), "sub": name}]
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts), "c2ln"])


@contextmanager
def _issuer(answer: dict[str, Any] | None) -> Iterator[str]:
    """An issuer of tokens; None: one whose first answer does not end, though each of its bytes
    comes soon."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if answer is None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
                while not closing.wait(0.2):
                    self.wfile.write(b"x")
            else:
                self._say({"token_endpoint": f"{url}/token"})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say(answer)

        def _say(self, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    closing = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield url
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _oidc(url: str) -> dict[str, str]:
    return {
        "client-id": "i", "client-secret": "s", "id-token": _jwt(1, "old"), "idp-issuer-url": url,
        "refresh-token": "r1",
    }  # fmt: skip


def test_a_token_of_gcp_that_has_ended_is_printed_again_and_stored(tmp_path: Path) -> None:
    printed = json.dumps({"credential": {"access_token": "new", "token_expiry": _LATER}})
    config = {
        "access-token": "old", "expiry": "2001-01-01T00:00:00Z", "cmd-path": _command(tmp_path, f"echo '{printed}'"),
        "cmd-args": "config helper",
    }  # fmt: skip
    path = _kubeconfig(tmp_path, "gcp", config, token="not this one")
    access = by_kubeconfig(path).login.access()
    assert (access.authorization, access.ends > time.time()) == ("Bearer new", True)
    assert _stored(path)["access-token"] == "new"


def test_a_token_that_holds_is_taken_as_it_is(tmp_path: Path) -> None:
    path = _kubeconfig(tmp_path, "gcp", {"access-token": "t", "expiry": _LATER})
    before = path.stat().st_mtime_ns, path.read_text()
    assert by_kubeconfig(path).login.access().authorization == "Bearer t"
    assert (path.stat().st_mtime_ns, path.read_text()) == before


def test_a_token_of_an_issuer_that_has_ended_is_renewed_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    new = _jwt(time.time() + 3600, "new")
    with _issuer({"access_token": "a", "token_type": "Bearer", "id_token": new, "refresh_token": "r2"}) as url:
        path = _kubeconfig(tmp_path, "oidc", _oidc(url))
        assert by_kubeconfig(path).login.access().authorization == f"Bearer {new}"
    assert (_stored(path)["id-token"], _stored(path)["refresh-token"]) == (new, "r2")


def test_an_issuer_whose_answer_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_program, "SECONDS", 4.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with _issuer(None) as url:
        path = _kubeconfig(tmp_path, "oidc", _oidc(url))
        before = path.read_text()
        with pytest.raises(PermanentError, match="auth-provider oidc failed: it did not end within 4 s"):
            by_kubeconfig(path)
    assert path.read_text() == before


def test_a_command_that_does_not_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it started holds the pipe of the test open."""
    monkeypatch.setattr(bounded_program, "SECONDS", 4.0)
    os.mkfifo(tmp_path / "held")
    reading = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    command = _command(tmp_path, f"exec 3> {tmp_path}/held; sleep 3600 & sleep 3600")
    try:
        with pytest.raises(PermanentError, match="auth-provider gcp failed: it did not end within 4 s"):
            by_kubeconfig(_kubeconfig(tmp_path, "gcp", {"cmd-path": command}))
        until(lambda: _has_no_writer(reading), "the command and its child have ended")
    finally:
        os.close(reading)


def _has_no_writer(reading: int) -> bool:
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


def test_the_error_of_a_command_is_without_its_arguments(tmp_path: Path) -> None:
    config = {"cmd-path": _command(tmp_path, "echo log in again >&2; exit 3"), "cmd-args": "--key a-secret"}
    with pytest.raises(PermanentError, match=r"gcp failed: .*returned 3.*log in again") as caught:
        by_kubeconfig(_kubeconfig(tmp_path, "gcp", config))
    assert "a-secret" not in str(caught.value)


def test_a_provider_that_has_no_way_to_a_token_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="auth-provider gcp failed"):
        by_kubeconfig(_kubeconfig(tmp_path, "gcp", {}))
