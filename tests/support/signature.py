"""Judges AWS' signatures of requests, by botocore, and passes requests on that are signed as they
should be: what a catalog of AWS does before its own work."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.error import HTTPError

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=(\w{64})"
)
_ALWAYS = {"host", "x-amz-date"}


@dataclass(frozen=True)
class AccessKey:
    """The key that a service in a region knows."""

    id: str
    secret: str
    region: str
    service: str

    def fault(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> str:
        """Why the request is refused; empty for one that is signed as it should be."""
        headers = {name.lower(): value for name, value in headers.items()}
        given = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if given is None:
            return "no signature"
        key, day, region, service, names, signature = given.groups()
        if (key, region, service) != (self.id, self.region, self.service) or not headers["x-amz-date"].startswith(day):
            return "another scope"
        signed_at = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(datetime.now(UTC) - signed_at) > timedelta(minutes=5):
            return "another time"
        payload = hashlib.sha256(body).hexdigest()  # which the signature has where no header has it
        if headers.get("x-amz-content-sha256", payload) != payload:
            return "another body"
        signed = names.split(";")
        needed = _ALWAYS | {n for n in headers if n.startswith("x-") or n == "content-type"}
        if not needed <= set(signed):
            return "a header that is not signed"
        return "" if signature == self._signature(method, url, {n: headers[n] for n in signed}, body) else "no match"

    def _signature(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> str:
        request = AWSRequest(method, url, headers=dict(headers), data=body)
        request.context["timestamp"] = headers["x-amz-date"]
        auth = SigV4Auth(Credentials(self.id, self.secret), self.service, self.region)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        return str(auth.signature(text, request))


class SigningServer:
    """Use as a context manager. Passes requests that `key` signed on to the server at `uri`, and
    refuses the others; `passed` and `refused` count them, `faults` say why."""

    def __init__(self, uri: str, key: AccessKey) -> None:
        self._uri, self._key = uri, key
        self.passed, self.faults = 0, list[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        if fault := self._key.fault(method, self.uri + path, headers, body):
            self.faults.append(fault)
            return self.refusal()
        self.passed += 1
        return self.passed_on(method, path, headers, body)

    def refusal(self) -> tuple[int, bytes]:
        error = {"message": "The request signature does not match", "type": "ForbiddenException", "code": 403}
        return 403, json.dumps({"error": error}).encode()

    def passed_on(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        sent = {n: v for n, v in headers.items() if n.lower() not in ("host", "connection", "content-length")}
        request = urllib.request.Request(self._uri + path, body or None, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return int(answer.status), answer.read()
        except HTTPError as error:
            return error.code, error.read()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(server: SigningServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = server.answer(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            with suppress(OSError):
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler
