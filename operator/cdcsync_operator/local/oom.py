"""Whether the kernel ended a process for want of memory, and how much there was.

The count is that of this process's control group, which a driver is in, too: a driver that another
program killed is no matter of memory, whatever the kernel did elsewhere on the machine. Where no
group is accounted, as in the root of cgroup v2, it is the machine's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("sys/fs/cgroup")
#: what cgroup v1 has where there is no limit is more than any machine has
_ACCOUNTS = ("memory.events", "memory.oom_control")
_LIMITS = ("memory.max", "memory.limit_in_bytes")


def oom_kills(root: Path = Path("/")) -> int:
    """How often it did; 0 where that is not known."""
    for path in (*_files(root, _ACCOUNTS), root / "proc/vmstat"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(_fields(path)["oom_kill"])
    return 0


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process and its drivers may use: the least of the group's limit and the
    machine's memory; 0 where neither is known."""
    limits = []
    for path in _files(root, _LIMITS):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    with contextlib.suppress(OSError, ValueError, KeyError):
        limits.append(1024 * int(_fields(root / "proc/meminfo")["MemTotal:"]))
    return min(limits, default=0)


def _files(root: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """The files of this process's group in cgroup v2 and v1. Below the path that the kernel gives,
    and, as a container sees it, where groups are mounted."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            mounted = root / _GROUPS / ("memory" if controllers else "")
            for folder in (mounted / group.lstrip("/"), mounted):
                yield from (folder / name for name in names)


def _fields(path: Path) -> dict[str, str]:
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1}
