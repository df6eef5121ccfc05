"""How much memory this process may use: its container's limit, else the machine's.

Why it exists: a compressed event of a megabyte may hold a gigabyte, so the unpacked size is bounded
by the memory that there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from cdcsync_spark.wire.binlog import compression

#: cgroups of version 2 and 1, as a container sees its own
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
#: of the memory, for one unpacked event: it is there twice while it is put together, and its rows
#: once more
_SHARE = 4
_LEAST = 64 * 2**20


def memory_limit(files: Iterable[Path] = _LIMITS) -> int:
    """Bytes."""
    found = [int(psutil.virtual_memory().total)]
    for file in files:
        with suppress(OSError, ValueError):  # "max": none is set
            found.append(int(file.read_text()))
    return min(found)


def bound_unpacked_events() -> None:
    """For this process; called before it reads a binlog."""
    compression.BOUND.largest = max(_LEAST, min(compression.MAX_EVENT, memory_limit() // _SHARE))
