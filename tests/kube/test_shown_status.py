"""What people see of a table's schema changes by `kubectl describe` and `cdcsync status`: of the
status that an operator stored on a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cdcsync_core.runs.report import TableReport
from cdcsync_core.runs.run import RunKind
from support.apiserver import NODE, kubeconfig
from support.in_process_sync import InProcessSync, place

STATEMENT = "ALTER TABLE a ADD n INT NOT NULL DEFAULT 7"
SCHEMA = {
    "version": 3,
    "at": "2026-01-01T00:00:00+00:00",
    "statement": STATEMENT,
    "step": "fill",
    "proof": "Rows",
}


def test_schema_changes_are_shown(sync: InProcessSync, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(sync.api)))
    controller = sync.create().operator()
    sync.to_streaming(controller)
    entries = [
        TableReport(name="shop.a", phase="Streaming", position=place(400), schema=SCHEMA),
        TableReport(
            name="shop.b", phase="Failed", position=place(400), reason="SchemaChangeRefused", message="'ALTER'"
        ),
    ]
    sync.driver(RunKind.STREAM).report(epoch=2, tables=entries)
    sync.until(controller, lambda s: any(t.schema_ and t.schema_.version == 3 for t in s.table_status))
    sync.until(controller, lambda s: any(t.resnapshot and t.resnapshot.reason for t in s.table_status))

    where = ["--kubeconfig", str(config), "-n", sync.namespace]
    described = shown([str(NODE), "kubectl", *where, "describe", "cdcsync", "shop"], config)
    assert f"Statement: {STATEMENT}" in described
    assert "Step: fill" in described
    assert "Proof: Rows" in described
    assert "Reason: SchemaChangeRefused" in described
    listed = shown([sys.executable, "-m", "cdcsync_operator", "status", "shop", "-n", sync.namespace], config)
    assert f"3: fill (not confirmed): {STATEMENT}" in listed
    assert "resnapshot: SchemaChangeRefused" in listed


def shown(command: list[str], config: Path) -> str:
    """What it prints, with single spaces."""
    environment = os.environ | {"KUBECONFIG": str(config), "COLUMNS": "300"}
    found = subprocess.run(
        command, env=environment, cwd=config.parent, capture_output=True, text=True, check=True, timeout=120
    )
    return " ".join(found.stdout.split())
