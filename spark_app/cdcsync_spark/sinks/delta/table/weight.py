"""What of a Delta log may be in memory: a part of what this process may have.

Why it exists: who may write to a table's folder may write an entry that parses to twenty times its
size, or more files than there is memory for, and the run would be ended for want of memory instead
of by its table's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from sys import getsizeof
from typing import Any

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.peer_json import size_beyond
from cdcsync_core.quoting import quoted
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.lake.storage.store import LARGEST_READ

#: bytes that a live file takes at least, that it takes beside its action, and of one that was taken
#: away
FILE, _BESIDE, GONE = 2048, 512, 256


@dataclass(frozen=True)
class ViewBounds:
    """Bytes: of one entry once it is parsed, and of all files of a table's view."""

    entry: int
    view: int


@cache
def bounds() -> ViewBounds:
    memory = memory_limit()
    return ViewBounds(entry=min(LARGEST_READ, memory // 4), view=memory // 2)


def file_size(add: Any) -> int:
    """The bytes in memory of a live file with this `add` action."""
    size, values = _BESIDE, [add]
    while values:
        value = values.pop()
        size += getsizeof(value)
        if isinstance(value, dict):
            values += value.keys()
            values += value.values()
        elif isinstance(value, list):
            values += value
    return max(FILE, size)


def refuse_heavy_entry(path: str, text: str) -> None:
    """Before it is parsed; and before one of our own is written. Raises SinkConflict."""
    most = bounds().entry
    if (size := size_beyond(text, most)) is not None:
        raise _too_heavy(f"the entry {quoted(path)} takes {size} bytes of memory once it is parsed", most)


def refuse_heavy_view(folder: str, held: int) -> None:
    """Raises SinkConflict."""
    most = bounds().view
    if held > most:
        raise _too_heavy(f"the files of {quoted(folder)} take {held} bytes of memory as its Delta log names them", most)


def _too_heavy(found: str, most: int) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        found,
        needed=f"at most {most} bytes, a part of the driver's memory",
        remedy="raise spec.driver.memory, or spec.stream.driver.memory; or, where another program wrote that, restore "
        f"the Delta log, {RUN_AGAIN}",
    )
