"""Runs a command and charges it with all that it starts: `python accounted.py RESULT COMMAND ...`.

Why it exists: Spark's worker daemon ignores SIGCHLD, so the kernel reaps its forked workers at once
and their CPU time is in no parent's rusage (getrusage(2), wait(2)). A figure of RUSAGE_CHILDREN
leaves them out. Here the command runs in a control group of its own, which the kernel charges for
every process in it, whether or not one waits for it. Where no control group can be made, the
counters of the living processes are sampled instead, which misses what a process does after its
last sample.

The command's process tree is waited for: orphans are adopted (Linux: a subreaper, prctl(2)). RESULT
gets `cpu` in seconds, `memory` and `working_set` in MiB, `wall` in seconds until the command itself
ended, its `exit` code, and `counted`, how the CPU time was counted. `memory` is the peak of the
tree's proportional set size (PSS: a page that n processes share counts 1/n for each); `working_set`
is the peak of what a kubelet sees of a pod: the group's usage less its inactive file pages, 0
without a group. `parts` are the CPU seconds by kind of process (`part_of`), sampled: a sum below
`cpu`.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
_SAMPLE_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1 << 20


@dataclass(frozen=True)
class Group:
    """A control group: the folders of its CPU and memory accounts, one and the same in cgroup
    v2."""

    cpu_folder: Path
    memory_folder: Path | None

    def enter(self) -> None:
        """Puts the calling process into the group."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def cpu(self) -> float:
        """Seconds."""
        nanoseconds = self.cpu_folder / "cpuacct.usage"
        if nanoseconds.exists():
            return int(nanoseconds.read_text()) / 1e9
        return account_fields(self.cpu_folder / "cpu.stat")["usage_usec"] / 1e6

    def working_set(self) -> int:
        """Bytes in use, without file pages that can be dropped at once."""
        folder = self.memory_folder
        if folder is None:
            return 0
        stat = account_fields(folder / "memory.stat")
        current = next(p for p in (folder / "memory.usage_in_bytes", folder / "memory.current") if p.exists())
        return int(current.read_text()) - stat.get("total_inactive_file", stat["inactive_file"])

    def remove(self) -> None:
        for folder in self._folders:
            with suppress(OSError):  # a process that is just ending keeps it; it is empty and harmless
                folder.rmdir()

    @property
    def _folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(f for f in (self.cpu_folder, self.memory_folder) if f))


def make_group() -> Group | None:
    """A new group below this process's own; None where that is not allowed or there is no account
    of CPU time."""
    made: dict[str, Path] = {}
    own = _own_groups()
    for controller in ("cpuacct", "memory") if "cpuacct" in own else ("",):
        parent = own.get(controller)
        if parent is None:
            continue
        folder = parent / f"cdcsync-bench-{os.getpid()}"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            made[controller] = folder
    cpu, memory = made.get("cpuacct") or made.get(""), made.get("memory") or made.get("")
    if memory is not None and not (memory / "memory.stat").exists():
        memory = None
    return Group(cpu, memory) if cpu else None


def _own_groups() -> dict[str, Path]:
    """This process's group by controller, "" for cgroup v2 (cgroups(7): /proc/self/cgroup and
    /proc/self/mountinfo)."""
    mounted: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind == "cgroup2":
            mounted[""] = Path(fields[4])
        elif kind == "cgroup":
            mounted |= {name: Path(fields[4]) for name in options}
    groups: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups |= {name: mounted[name] / path.lstrip("/") for name in controllers.split(",") if name in mounted}
    return {name: folder for name, folder in groups.items() if name in ("cpuacct", "memory", "") and folder.is_dir()}


@dataclass
class Samples:
    """What sampling found: CPU ticks by process (id and start time, so that a reused id is another
    process) and its kind, and peaks in bytes."""

    ticks: dict[tuple[int, int], int] = field(default_factory=dict)
    kinds: dict[tuple[int, int], str] = field(default_factory=dict)
    pss: int = 0
    working_set: int = 0

    def take(self, group: Group | None) -> None:
        pss = 0
        for pid in _descendants(os.getpid()):
            with suppress(OSError, StopIteration):  # it has just ended
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.ticks[pid, int(fields[19])] = int(fields[11]) + int(fields[12])
                self.kinds[pid, int(fields[19])] = part_of(pid)
                pss += _proportional_set_size(pid)
        self.pss = max(self.pss, pss)
        if group is not None:
            self.working_set = max(self.working_set, group.working_set())

    def cpu(self) -> float:
        return sum(self.ticks.values()) / _TICKS

    def parts(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for process, ticks in self.ticks.items():
            found[self.kinds[process]] = found.get(self.kinds[process], 0.0) + ticks / _TICKS
        return found


def part_of(pid: int) -> str:
    """What a process of the product is: `jvm`, the name that a forked process gives itself, or the
    program's or module's; `?` for another."""
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    if name.startswith("cdcsync-"):
        return name
    if name == "java":
        return "jvm"
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return Path(next((word for word in words if "cdcsync" in word or word.startswith("pyspark.")), "?")).name


def _descendants(root: int) -> Iterator[int]:
    for task in Path(f"/proc/{root}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def _proportional_set_size(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])


def account_fields(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


@contextmanager
def _sampled(group: Group | None) -> Iterator[Samples]:
    """Samples in the background, and once more at the end."""
    samples, ended = Samples(), threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            samples.take(group)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def account(command: list[str], group: Group | None) -> dict[str, float | str | dict[str, float]]:
    """Runs `command` to the end of its process tree; the figures of the module's docstring."""
    started = time.monotonic()
    with _sampled(group) as samples:
        process = subprocess.Popen(command, preexec_fn=group.enter if group else None)  # noqa: PLW1509 (no thread of ours holds a lock)
        _, code = _wait_for(process.pid)
        wall = time.monotonic() - started
        _wait_for_the_rest()
    return {
        "cpu": group.cpu() if group else samples.cpu(),
        "counted": "control group" if group else "samples",
        "memory": samples.pss / _MIB,
        "working_set": samples.working_set / _MIB,
        "wall": wall,
        "exit": code,
        "parts": samples.parts(),
    }


def _wait_for(pid: int) -> tuple[int, int]:
    _, status = os.waitpid(pid, 0)
    return pid, os.waitstatus_to_exitcode(status)


def _wait_for_the_rest() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def main(result: str, command: list[str]) -> int:
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    group = None if os.environ.get("CDCSYNC_BENCH_ACCOUNT") == "samples" else make_group()
    try:
        figures = account(command, group)
    finally:
        if group is not None:
            group.remove()
    Path(result).write_text(json.dumps(figures))
    return int(str(figures["exit"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
