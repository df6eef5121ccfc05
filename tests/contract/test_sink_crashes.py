"""Crash points of a sink: SIGKILL at each gate, and again at the next, and the table ends right and holds nothing twice.

The program that is killed is `crashing.py`; every run has a higher epoch than the one before, as the controller gives it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from cdcsync_spark.sinks.base import Sink
from cdcsync_spark.sinks.place import Place
from contract import crashing
from contract.sinkcase import ORDERS, content, in_order
from contract.stores import STORES

ROOT = Path(__file__).parents[2]
#: store, gate -> at which of its passings a run is killed. Killed before its commit a run makes no progress by itself: it passes once
#: or more. An undisturbed run passes table-created 2, staged 5,
#: before-commit and committed 13, data-written and vectors-written 6 times.
CHAINS = {
    ("local", "table-created"): 1,
    ("local", "staged"): 2,
    ("local", "before-commit"): 5,
    ("local", "data-written"): 3,
    ("local", "vectors-written"): 3,
    ("local", "entry-written"): 4,
    ("local", "committed"): 5,
    ("s3", "before-commit"): 5,
}


def run(place: Place, epoch: int, gate: str = "") -> int:
    """The program's exit code; negative is the signal that ended it."""
    environment = os.environ | {"EPOCH": str(epoch), "VECTORS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    environment |= {"CDCSYNC_GATE": gate} if gate else {}
    command = [sys.executable, "-W", "error", crashing.__file__, json.dumps(asdict(place))]
    return subprocess.run(command, env=environment, check=False, timeout=120).returncode


@pytest.mark.parametrize(
    ("place", "gate", "passing"), [(*c, n) for c, n in CHAINS.items() if c[0] in STORES], indirect=["place"]
)
def test_killed_at_a_gate_again_and_again(gate: str, passing: int, place: Place, sink: Sink, tmp_path: Path) -> None:
    """Run after run is killed a little further than the one before, until one ends by itself."""
    codes: list[int] = []
    while len(codes) < 20 and 0 not in codes:
        codes.append(run(place, len(codes) + 1, f"{gate}:{passing}:kill:{tmp_path / f'once-{len(codes)}'}"))
    assert codes[-1] == 0
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1)
    assert len(codes) > 2
    assert content(sink.target(ORDERS.id)) == in_order(crashing.EXPECTED)


def test_an_undisturbed_run_and_one_more(sink: Sink) -> None:
    for epoch in (1, 2):
        crashing.run(sink, epoch)
        assert content(sink.target(ORDERS.id)) == in_order(crashing.EXPECTED)
