"""A driver that the kernel ended for want of memory says so; one that another program killed does
not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench.accounted import Group, make_group
from cdcsync_core.runs.run import Report
from cdcsync_operator.decision.observed import Exit
from cdcsync_operator.local import driver_process
from cdcsync_operator.local.driver_process import DriverProcess, RunFiles
from cdcsync_operator.local.oom import memory_limit, oom_kills

_LIMIT = 192 << 20
#: what a driver may be: its arguments are the work and the file with the descriptor for reports
_DRIVER = """
import os, signal, sys
work, config = sys.argv[1:]
print("reading keys into the index", flush=True)
if work == "hungry":
    held = [b"x" * (1 << 20) for _ in range(4096)]
if work == "reported":
    os.write(int(open(config).read()), b'{"run": "r", "exit": {"code": 1, "reason": "InternalError", "message": "m"}}\\n')
    sys.exit(1)
if work == "heap":
    print("java.lang.OutOfMemoryError: Java heap space", flush=True)
    sys.exit(3)
os.kill(os.getpid(), signal.SIGKILL)
"""


def exit_of(work: str, folder: Path) -> Exit:
    files, ended = RunFiles(folder / "run", folder / "log"), threading.Event()
    files.folder.mkdir()
    reports: list[Report] = []
    command = [sys.executable, "-c", _DRIVER, work]
    driver: list[DriverProcess] = []

    def write(descriptor: int) -> None:
        files.config.write_text(str(descriptor))

    driver.append(DriverProcess(command, files, write, reports.append, ended.set))
    driver[0]._watcher.join(120)
    assert driver[0].exit is not None
    return driver[0].exit


@pytest.mark.parametrize(
    ("work", "kills", "reason", "message"),
    [
        ("killed", 0, "DriverLost", "was ended by SIGKILL without an exit report"),
        ("killed", 1, "OutOfMemory", 'for want of memory: there are 1024 MiB; the last line of its log: "reading keys'),
        ("reported", 0, "InternalError", "m"),
        ("reported", 1, "OutOfMemory", "the kernel ended it, or a process of it"),
        ("heap", 0, "OutOfMemory", "the heap of its JVM is full"),
    ],
)
def test_how_a_driver_ended(
    work: str, kills: int, reason: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([5, 5 + kills])
    monkeypatch.setattr(driver_process, "oom_kills", lambda: next(counts))
    monkeypatch.setattr(driver_process, "memory_limit", lambda: 1 << 30)
    ended = exit_of(work, tmp_path)
    assert ended.reason == reason
    assert message in ended.message
    assert (reason == "OutOfMemory") == ("spec.stream.driver.memory" in ended.message)


def test_the_kernel_ends_a_driver_in_a_small_group(tmp_path: Path) -> None:
    """The controller is in the group, too, as on a laptop or in a container."""
    group = limited_group()
    if group is None:
        pytest.skip("no control group with a limit can be made here")
    code = (
        "import sys; from pathlib import Path; from unit.local.test_out_of_memory import exit_of, as_json; "
        "print(as_json(exit_of('hungry', Path(sys.argv[1]))))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env=environment, preexec_fn=group.enter, capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
    finally:
        group.remove()
    found = json.loads(done.stdout)
    assert found["reason"] == "OutOfMemory"
    assert f"there are {_LIMIT >> 20} MiB" in found["message"]


def as_json(ended: Exit) -> str:
    return json.dumps({"reason": ended.reason, "message": ended.message})


def limited_group() -> Group | None:
    group = make_group()
    for name in ("memory.max", "memory.limit_in_bytes"):
        if group is not None and group.memory_folder is not None and (group.memory_folder / name).exists():
            (group.memory_folder / name).write_text(str(_LIMIT))
            return group
    return None


@pytest.mark.parametrize(
    ("files", "kills", "limit"),
    [
        ({}, 0, 0),
        ({"proc/vmstat": "pgfault 9\noom_kill 3\n", "proc/meminfo": "MemTotal: 2048 kB\n"}, 3, 2 << 20),
        (
            {
                "proc/self/cgroup": "0::/user.slice/a\n",
                "proc/vmstat": "oom_kill 9\n",
                "proc/meminfo": "MemTotal: 8192 kB\n",
                "sys/fs/cgroup/user.slice/a/memory.events": "low 0\noom 4\noom_kill 2\n",
                "sys/fs/cgroup/user.slice/a/memory.max": "4194304\n",
            },
            2,
            4 << 20,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/b\n",
                "proc/meminfo": "MemTotal: 8192 kB\n",
                "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            1,
            8 << 20,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0, 0),
    ],
    ids=["nothing", "machine", "cgroup v2", "cgroup v1 in a container", "no limit"],
)
def test_what_the_kernel_tells(files: dict[str, str], kills: int, limit: int, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert (oom_kills(tmp_path), memory_limit(tmp_path)) == (kills, limit)
