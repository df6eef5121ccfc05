"""The chart as helm renders it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
HELM = ROOT / ".cache" / "node" / "helm"
CHART = ROOT / "helm" / "cdcsync"


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    assert HELM.exists(), "needed: helm; remedy: make test-kube"
    given = [part for k, v in (values or {}).items() for part in ("--set-json", f"{k}={json.dumps(v)}")]
    return subprocess.run([HELM, *arguments, *given], capture_output=True, text=True, check=False)


def rendered(values: dict[str, Any], release: str = "cdcsync") -> list[dict[str, Any]]:
    more = ["--api-versions", "monitoring.coreos.com/v1", "--kube-version", "1.35.0"]
    result = helm("template", release, str(CHART), "--namespace", "cdc", *more, values=values)
    assert result.returncode == 0, result.stderr
    return [d for d in yaml.load_all(result.stdout, Loader=yaml.CSafeLoader) if d]
