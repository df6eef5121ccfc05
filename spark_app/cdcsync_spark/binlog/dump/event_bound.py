"""The bound of what a compressed event may unpack to: one of a megabyte may hold a gigabyte."""

from __future__ import annotations

from cdcsync_spark.memory import memory_limit
from cdcsync_spark.wire.binlog.event import compression

#: of the memory, for one unpacked event: it is there twice while it is put together, and its rows
#: once more
_SHARE = 4
_LEAST = 64 * 2**20


def bound_unpacked_events() -> None:
    """For this process; called before it reads a binlog."""
    compression.BOUND.largest = max(_LEAST, min(compression.MAX_EVENT, memory_limit() // _SHARE))
