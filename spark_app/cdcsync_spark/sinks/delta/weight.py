"""What of a Delta log may be in memory: a part of what this process may have.

Why it exists: who may write to a table's folder may write an entry that parses to twenty times its
size, or more files than there is memory for, and the run would be ended for want of memory instead
of by its table's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.lake.store import LARGEST_READ

#: bytes of one of the least JSON values as an object of Python, with its place in what holds it
_VALUE = 80
#: bytes of a live file with paths and statistics of a usual length, and of one that was taken away
FILE, GONE = 2048, 256


@dataclass(frozen=True)
class Bounds:
    """Bytes: of one entry once it is parsed, and of all files of a table's view."""

    entry: int
    view: int


@cache
def bounds() -> Bounds:
    memory = memory_limit()
    return Bounds(entry=min(LARGEST_READ, memory // 4), view=memory // 2)


def parsed_size(text: str) -> int:
    """About the bytes that the values of a JSON text take, never much less."""
    return 2 * len(text) + _VALUE * (text.count(",") + text.count("{") + text.count("["))


def refuse_heavy_entry(path: str, text: str) -> None:
    """Before it is parsed. Raises SinkConflict."""
    size, most = parsed_size(text), bounds().entry
    if size > most:
        raise _too_heavy(f"the file {quoted(path)} takes {size} bytes of memory once it is parsed", most)


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
