"""A real Prometheus on loopback: rules, and targets that come and go as files."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cdcsync_demo.server_process import free_port

_ROOT = Path(__file__).resolve().parents[2] / ".cache" / "prometheus" / "usr" / "bin"
PROMETHEUS, PROMTOOL = _ROOT / "prometheus", _ROOT / "promtool"
_PORT_ATTEMPTS = 5


@dataclass(frozen=True)
class Prometheus:
    folder: Path
    port: int

    def scrape(self, job: str, port: int) -> None:
        """From now on, this port of loopback under this job."""
        file = self.folder / f"{port}.new"
        file.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"job": job}}]))
        file.rename(self.folder / f"{port}.json")

    def query(self, expression: str) -> list[dict[str, Any]]:
        return list(self._get("query", query=expression)["result"])

    def firing(self) -> list[dict[str, Any]]:
        return [alert for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"]

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=120) as answer:
            return dict(json.loads(answer.read())["data"])


@contextmanager
def prometheus(folder: Path, rules: dict[str, Any]) -> Iterator[Prometheus]:
    assert PROMETHEUS.exists(), "needed: Prometheus; remedy: tests/support/prometheus.sh .cache/prometheus"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    scrape = {
        "job_name": "files",
        "honor_labels": True,
        "file_sd_configs": [{"files": [f"{folder}/*.json"], "refresh_interval": "1s"}],
    }
    settings = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "500ms"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    process, port = _started(folder)
    try:
        yield Prometheus(folder, port)
    finally:
        process.kill()
        process.wait()


def _started(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """On another port where a process has taken the first one since."""
    for _ in range(_PORT_ATTEMPTS):
        port = free_port()
        command = [
            str(PROMETHEUS), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        if _is_ready(process, port):
            return process, port
    raise AssertionError(f"Prometheus ended at each start: {(folder / 'prometheus.log').read_text()[-2000:]}")


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10):
                return True
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise AssertionError("Prometheus was not ready in 180 s")
