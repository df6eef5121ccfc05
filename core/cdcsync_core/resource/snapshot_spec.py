"""The section `snapshot` of the resource: how tables are read, and how much of the source that may
take.

Why it is right: a bound is checked before each wave, and limits what the wave reads. One wave has
at most as many rows as may be read in a second, of which a split has all where that is few; the
next begins when their time is over, and nothing is open on the source meanwhile. How many bytes a
split has is known once it is read, so a bound on bytes chooses the splits of a wave by the largest
split before.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Literal

from pydantic import Field

from cdcsync_core.resource.schedule_spec import Window
from cdcsync_core.resource.spec_part import Flag, Part, Seconds, Size, Whole

#: windows within which the end of a snapshot is computed
_MOST_WINDOWS = 1000
#: splits of a wave for each one that is read at once: enough to keep the readers busy, little to
#: lose
_WAVE_FACTOR = 2


class MaxLoad(Part):
    """What the server on which rows are read may have meanwhile, by its own counts; None: that is
    not asked. `replica_lag` in seconds is that of a replica; a primary has none."""

    threads_running: Annotated[Whole, Field(ge=1, le=100_000)] | None = None
    history_list_length: Annotated[Whole, Field(ge=1, le=2**53)] | None = None
    replica_lag: Annotated[Seconds, Field(ge=1, le=86_400)] | None = None

    @property
    def is_set(self) -> bool:
        return self != MaxLoad()


class SnapshotSpec(Part):
    """`delivery` consistent: rows are shown as of one position; early: as soon as they are read.
    `max_rows_per_second` and `max_bytes_per_second` None: as fast as the source gives them; bytes
    are those of the rows as the source sends them; `windows` are when it may read,
    at any time where there are none."""

    chunk_size: Annotated[Whole, Field(ge=1, le=10_000_000)] = 50_000
    parallelism: Annotated[Whole, Field(ge=1, le=1024)] = 8
    max_split_seconds: Annotated[Whole, Field(ge=1, le=3600)] = 60
    max_rows_per_second: Annotated[Whole, Field(ge=100, le=2**31)] | None = None
    max_bytes_per_second: Annotated[Size, Field(ge=2**16, le=2**40)] | None = None
    max_load: MaxLoad = MaxLoad()
    windows: Annotated[tuple[Window, ...], Field(max_length=16)] = ()
    only: Flag = False
    delivery: Literal["consistent", "early"] = "consistent"

    @property
    def rows_a_split(self) -> int:
        """At most what may be read in a second."""
        return min(self.chunk_size, self.max_rows_per_second or self.chunk_size)

    @property
    def splits_a_wave(self) -> int:
        """What is read between two checks of a bound: a second's rows, and with a maximum load one
        split for each reader."""
        if self.max_rows_per_second is not None:
            return min(self.parallelism, self.max_rows_per_second // self.rows_a_split)
        return self.parallelism if self.max_load.is_set else _WAVE_FACTOR * self.parallelism

    def closed_until(self, now: float) -> float | None:
        """When the next window begins; None while one is open, or where there are none."""
        if not self.windows or any(window.open_until(now) for window in self.windows):
            return None
        return min(window.next_after(now) for window in self.windows)

    def elapsed(self, seconds: float, now: float) -> float:
        """How long it takes from `now` on to read for so many seconds, with the times between the
        windows; infinity where a thousand of them do not suffice."""
        if not self.windows:
            return seconds
        at, left = now, seconds
        for _ in range(_MOST_WINDOWS):
            at = self.closed_until(at) or at
            end = max(window.open_until(at) or at for window in self.windows)
            if left <= end - at:
                return at + left - now
            at, left = end, left - (end - at)
        return inf
