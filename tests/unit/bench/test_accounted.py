"""The benchmark charges a command with processes for which nothing waits, as Spark's forked workers
are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import accounted

_BURNED = 0.6

#: as pyspark/daemon.py: SIGCHLD ignored, a fork that works, and no wait for it
_DAEMON = f"""
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
done, ready = os.pipe()
if os.fork() == 0:
    ballast = bytearray(64 << 20)
    while time.process_time() < {_BURNED}:
        pass
    time.sleep(2)  # long enough for a sample
    os.write(ready, b"x")
    os._exit(0)
os.read(done, 1)
sys.exit(3)
"""

_WAYS = ["samples"] + (["control group"] if os.access("/sys/fs/cgroup", os.W_OK) else [])


def _run(folder: Path, way: str, program: str) -> dict[str, Any]:
    result = folder / "figures.json"
    command = [sys.executable, accounted.__file__, str(result), sys.executable, "-c", program]
    code = subprocess.run(command, env=os.environ | {"CDCSYNC_BENCH_ACCOUNT": way}, timeout=600, check=False).returncode
    figures = json.loads(result.read_text())
    assert code == figures["exit"]
    return figures


@pytest.mark.parametrize("way", _WAYS)
def test_a_process_that_nothing_waits_for_is_charged(tmp_path: Path, way: str) -> None:
    figures = _run(tmp_path, way, _DAEMON)
    assert figures["exit"] == 3
    assert figures["cpu"] >= 0.9 * _BURNED
    assert figures["memory"] >= 64


def test_a_process_is_counted_by_the_name_that_it_gives_itself(tmp_path: Path) -> None:
    program = f"""
import time
with open("/proc/self/comm", "w") as own:
    own.write("cdcsync-source")
while time.process_time() < {_BURNED}:
    pass
time.sleep(2)
"""
    parts = _run(tmp_path, "", program)["parts"]
    assert parts["cdcsync-source"] >= 0.9 * _BURNED


def test_an_orphan_is_waited_for_and_charged(tmp_path: Path) -> None:
    program = f"""
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        while time.process_time() < {_BURNED}:
            pass
        time.sleep(2)
    os._exit(0)
os.wait()
"""
    figures = _run(tmp_path, "", program)
    assert figures["exit"] == 0
    assert figures["cpu"] >= 0.9 * _BURNED


def test_the_group_is_removed_with_the_run(tmp_path: Path) -> None:
    command = [sys.executable, accounted.__file__, str(tmp_path / "figures.json"), sys.executable, "-c", "pass"]
    process = subprocess.Popen(command)
    process.wait(600)
    name = f"cdcsync-bench-{process.pid}"
    assert not [folder for folder in accounted._own_groups().values() if (folder / name).exists()]
