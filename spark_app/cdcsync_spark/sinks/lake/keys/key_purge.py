"""The merge that takes stale entries out of a key index, in steps between commits.

Why it is right: runs are immutable and serve lookups until the new one takes their place. An entry
that is stale never counts again (`key_index`), so that what was live when its block was merged is
all that a later lookup can need of it. The runs of a purge are in no other merge.

Why it bounds the index: it begins when more entries are stale than live, and at each step it reads
several times what has come since the step before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cdcsync_spark.sinks.lake.keys.key_runs import Hits, Keep, Run, merging
from cdcsync_spark.sinks.lake.keys.scratch import Scratch

#: runs of whole files stay if at most this share of their entries is stale: they are half as large
_STAYING = 0.25


class Purge:
    """Makes one run of `runs`, without the entries that `keep` refuses when they are read."""

    def __init__(self, runs: Sequence[Run], keep: Keep, scratch: Scratch, block: int) -> None:
        self._runs = tuple(runs)
        self._keep = keep
        self._read = 0
        self._steps = merging(self._runs, self._kept, scratch, block)

    def has(self, run: Run) -> bool:
        return any(run is one for one in self._runs)

    def advance(self, entries: int) -> Run | None:
        """Reads so many entries more; the run when all are read."""
        goal = self._read + entries
        try:
            while self._read < goal:
                next(self._steps)
        except StopIteration as ended:
            run: Run = ended.value
            return run
        return None

    def _kept(self, hits: Hits) -> npt.NDArray[np.bool_]:
        self._read += len(hits.query)
        return self._keep(hits)


def worth_purging(run: Run, live: npt.NDArray[np.int64]) -> bool:
    """Whether a run in scratch space has stale entries to speak of; `live` has the live rows of
    each file by its number."""
    if run.in_memory:
        return False
    return run.rows is not None or run.parts is None or int(live[run.parts.numbers].sum()) < (1 - _STAYING) * len(run)
