"""Keeps Python's cyclic garbage collector off the path of a process that reads a binlog.

Why it exists: a batch of transactions of one row is some 300,000 tracked tuples, which the
collector walks repeatedly while they are created: a quarter to a third of the reader's CPU
time, and it finds nothing, because the reader creates no cycles. Why it is right: reference
counting frees all of it. What a library or an exception's traceback leaves in cycles is collected
between batches, when little is alive, so nothing grows with time
(`tests/unit/spark/engine/test_collector.py`).

For a process of its own only: the collector belongs to the whole interpreter.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

#: seconds between two collections
EVERY = 60.0


class QuietCollector:
    """Switches the automatic collector off when it is created; `between_batches` collects when it
    is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + EVERY
        gc.collect()
        gc.freeze()
        gc.disable()

    def between_batches(self) -> None:
        if self._clock() >= self._due:
            gc.collect()
            self._due = self._clock() + EVERY
