"""A schema registry that a test session owns: Apicurio's, whose API is Confluent's
(`tests/support/registry.sh`), fetched when it is needed first; its storage is in its memory. With
an authority it is served by TLS, too, at this machine, and its certificate names `localhost` only:
so it has an address that is in its certificate, and one that is not."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cdcsync_demo.server_process import LOOPBACK, ServerProcess, free_port
from support.secure_kafka import Authority

REGISTRY = Path(__file__).parents[2] / ".cache" / "apicurio-2.6.13"
_API = "/apis/ccompat/v7"


class SchemaRegistry:
    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        if not REGISTRY.is_dir():
            subprocess.run([str(Path(__file__).parent / "registry.sh"), str(REGISTRY)], check=True)
        self._secure = 0
        self._tls = _tls_options(folder, authority) if authority else []
        self._process = ServerProcess(self._command, folder / "registry.log", _serves)

    def start(self) -> SchemaRegistry:
        self._process.start(self._process.port)
        return self

    def kill(self) -> None:
        self._process.kill()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._process.port}{_API}"

    def secure(self, host: str = "localhost") -> str:
        """Its url by TLS."""
        return f"https://{host}:{self._secure}{_API}"

    def schema(self, number: int) -> dict[str, Any]:
        """The schema that has this id."""
        return json.loads(_asked(f"{self.url}/schemas/ids/{number}")["schema"])

    def _command(self, port: int) -> Sequence[str]:
        """Called again with other ports where one of them is taken."""
        (program,) = (REGISTRY / "app").glob("apicurio-registry-app-*-runner.jar")
        java = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
        address = (f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}")
        tls = self._tls
        if tls:
            self._secure = free_port()
            tls = [*tls, f"-Dquarkus.http.ssl-port={self._secure}"]
        return [*java, *address, *tls, "-jar", str(program)]

    def versions(self, subject: str) -> list[int]:
        return _asked(f"{self.url}/subjects/{subject}/versions")

    def demand(self, subject: str, compatibility: str) -> None:
        """The rule for new versions of the subject."""
        body = json.dumps({"compatibility": compatibility}).encode()
        request = urllib.request.Request(
            f"{self.url}/config/{subject}", body, {"Content-Type": "application/json"}, method="PUT"
        )
        with urllib.request.urlopen(request, timeout=300):
            pass


def _tls_options(folder: Path, authority: Authority) -> list[str]:
    certificate, key = authority.pair("localhost")
    (folder / "registry.crt").write_text(certificate)
    (folder / "registry.key").write_text(key)
    tls = "-Dquarkus.http.ssl.certificate"
    return [
        f"{tls}.files={folder / 'registry.crt'}",
        f"{tls}.key-files={folder / 'registry.key'}",
    ]


def _serves(port: int) -> bool:
    try:
        return isinstance(_asked(f"http://{LOOPBACK}:{port}{_API}/subjects"), list)
    except (OSError, urllib.error.HTTPError):
        return False


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)
