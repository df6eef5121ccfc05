"""How much memory this process may use: its container's limit, else the machine's.

Why it exists: what a peer sends may take many times its size once it is unpacked or parsed, so that
is bounded by the memory that there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

#: cgroups of version 2 and 1, as a container sees its own
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_limit(files: Iterable[Path] = _LIMITS) -> int:
    """Bytes."""
    limits = [int(psutil.virtual_memory().total)]
    for file in files:
        with suppress(OSError, ValueError):  # "max": none is set
            limits.append(int(file.read_text()))
    return min(limits)
