"""A forked worker finds nothing to collect of what its daemon imported, and reads no archives'
directories between tasks."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import gc, importlib, json, sys
from cdcsync_spark.engine import worker_preload

worker_preload.prepare_forks()
tracked = len(gc.get_objects())
before = [finder for finder in sys.meta_path if hasattr(finder, "invalidate_caches")]
calls = []
for finder in before:
    finder.invalidate_caches = lambda: calls.append(1)
importlib.invalidate_caches()
cycle = []
cycle.append(cycle)
del cycle
print(json.dumps({"frozen": gc.get_freeze_count(), "tracked": tracked, "calls": len(calls), "found": gc.collect()}))
"""


def test_a_fork_begins_with_a_frozen_heap_and_keeps_the_import_caches() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert found["frozen"] > 50_000, "what was imported is the bulk, and the collector passes over it"
    assert found["tracked"] < found["frozen"] / 100
    assert found["calls"] == 0
    assert found["found"] >= 1, "what a task leaves in cycles is collected as before"
