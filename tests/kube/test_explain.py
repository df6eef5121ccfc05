"""What the manual promises of `kubectl explain`, by the kubectl of the node and a real API server:
what a field does, its unit and its default."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from cdcsync_kube.client import Api
from support.apiserver import NODE, kubeconfig


def explain(api: Api, field: str, folder: Path) -> str:
    """The words of its answer. The API server publishes a new CRD's schema a moment after its
    resources are served, so an answer that does not know the resource yet is asked for again."""
    config = folder / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(api)))
    command = [str(NODE), "kubectl", "--kubeconfig", str(config), "explain", field]
    deadline = time.monotonic() + 300
    while True:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)
        if found.returncode == 0:
            return " ".join(found.stdout.split())
        if time.monotonic() > deadline:
            raise AssertionError(found.stderr)
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("field", "answer"),
    [
        ("snapshot.chunkSize", "Rows of a split, the key range that one task reads. Default: 50000."),
        ("source.heartbeatInterval", "a duration like 30s, or seconds as a number, between 1s and 10m. Default: 30s."),
    ],
)
def test_explain_answers_meaning_unit_and_default(api: Api, tmp_path: Path, field: str, answer: str) -> None:
    assert answer in explain(api, f"cdcsync.spec.{field}", tmp_path)
