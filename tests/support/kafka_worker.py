"""A process that writes into topics until a gate stops it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WORKER = Path(__file__).parents[1] / "support" / "kafka_stream.py"


class Worker:
    """Starts runs of one sync, whose folder names its topics, as processes (`kafka_stream`)."""

    def __init__(self, brokers: str, folder: Path, seed: int, options: Sequence[str]) -> None:
        self.brokers, self.folder, self.seed, self.options = brokers, folder, seed, options
        self._number = 0

    def start(self, gate: str = "", role: str = "stream") -> subprocess.Popen[bytes]:
        """`gate` is `name:count:action`."""
        self._number += 1
        armed = {"CDCSYNC_GATE": f"{gate}:{self.fired}"} if gate else {}
        roots = os.pathsep.join([str(WORKER.parents[1]), *sys.path])
        command = [sys.executable, str(WORKER), self.brokers, str(self.folder), str(self.seed), role, *self.options]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": roots, **armed})

    @property
    def fired(self) -> Path:
        """Is there when the gate of the newest run has fired."""
        return self.folder / f"fired-{self._number}"


def wait_for_gate(fired: Path, process: subprocess.Popen[bytes]) -> None:
    while not fired.exists():
        assert process.poll() is None, "ended before it was stopped"
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
