"""AWS Glue for tests: moto's, behind a server that judges signatures, and that changes a table of
the version that the request names alone, as AWS' own does and moto does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Self

from moto.server import ThreadedMotoServer

from support.signature import AccessKey, SigningServer


class GlueServer(SigningServer):
    """Use as a context manager. With the next change of a table it does as `fault` says: `before`
    (it answers 500 and does nothing), `after` (500, but it is done), `conflict after` (it is done,
    and a conflict answered). `checks_versions` is False for what looks like Glue and is not."""

    def __init__(self, key: AccessKey) -> None:
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        host, port = self._moto.get_host_and_port()
        super().__init__(f"http://{host}:{port}", key)
        self.fault, self.checks_versions = "", True
        self._one = threading.Lock()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._moto.stop()

    def __enter__(self) -> Self:
        return super().__enter__()

    def refusal(self) -> tuple[int, bytes]:
        return _error(400, "InvalidSignatureException")

    def passed_on(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        asked = {name.lower(): value for name, value in headers.items()}
        if asked["x-amz-target"] != "AWSGlue.UpdateTable":
            return super().passed_on(method, path, headers, body)
        with self._one:
            return self._update(method, path, headers, body)

    def _update(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        update = json.loads(body)
        named = {"DatabaseName": update["DatabaseName"], "Name": update["TableInput"]["Name"]}
        get = {**{n: v for n, v in headers.items() if n.lower() != "x-amz-target"}, "X-Amz-Target": "AWSGlue.GetTable"}
        status, found = super().passed_on(method, path, get, json.dumps(named).encode())
        if status != 200:
            return status, found
        if self.checks_versions and json.loads(found)["Table"]["VersionId"] != update["VersionId"]:
            return _error(400, "ConcurrentModificationException")
        fault, self.fault = self.fault, ""
        if fault == "before":
            return _error(500, "InternalServiceException")
        answer = super().passed_on(method, path, headers, body)
        if fault == "after":
            return _error(500, "InternalServiceException")
        return _error(400, "ConcurrentModificationException") if fault else answer


def _error(status: int, kind: str) -> tuple[int, bytes]:
    body: dict[str, Any] = {"__type": kind, "Message": f"it is {kind}"}
    return status, json.dumps(body).encode()
