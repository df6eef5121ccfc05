"""What keeps a snapshot from loading its source beyond the bounds of `spec.snapshot`.

Why it is right: it waits between waves only. What was read is committed then, no transaction or
lock of the run is open on the source (at most the idle connection of a plan that the driver makes
by itself), and the next LOW is taken afterwards; so a wait costs nothing but time, and a run that
is asked to stop stops at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.tables.capture import Capture

#: between two questions for the load, and the longest wait at once
_AGAIN_SECONDS = 1.0
#: for which the load is too high before it is reported
_SHOWN_SECONDS = 5.0


@dataclass
class Throttle:
    """`excess` says what load is too much for reading these tables, empty where none is; `report`
    gets that once it lasts, and an empty text when it is over; `wait` gets seconds; `clock` counts
    them."""

    spec: SnapshotSpec
    excess: Callable[[Sequence[Capture]], str]
    report: Callable[[str], None]
    wait: Callable[[float], None]
    clock: Callable[[], float] = time.monotonic
    _next: float = field(default=float("-inf"), init=False)
    _began: float = field(default=0.0, init=False)
    #: in bytes, of the largest split so far
    _split_size: int = field(default=0, init=False)

    @property
    def splits_a_wave(self) -> int:
        """As many as have the bytes of a second if each is as large as the largest so far; one in
        the first wave, which shows how large that is."""
        most, size = self.spec.splits_a_wave, self.spec.max_bytes_per_second
        if size is None:
            return most
        return max(min(most, size // self._split_size), 1) if self._split_size else 1

    def before_wave(self, tables: Sequence[Capture]) -> None:
        """Returns when a wave of these tables may be read."""
        while (left := self._next - self.clock()) > 0:
            self.wait(min(left, _AGAIN_SECONDS))
        if self.spec.max_load.is_set:
            self.wait_while(lambda: self.excess(tables))
        self._began = self.clock()

    def after_wave(self, rows: int, sizes: Sequence[int]) -> None:
        """`sizes` are in bytes, of the splits' rows as the source sent them."""
        self._split_size = max(self._split_size, *sizes)
        bounds = ((rows, self.spec.max_rows_per_second), (sum(sizes), self.spec.max_bytes_per_second))
        self._next = self._began + max((count / most for count, most in bounds if most is not None), default=0.0)

    def wait_while(self, question: Callable[[], str]) -> None:
        """Returns when the answer is empty; until then it says what is waited for."""
        since, shown = self.clock(), False
        try:
            while answer := question():
                if not shown and self.clock() - since >= _SHOWN_SECONDS:
                    self.report(answer)
                    shown = True
                self.wait(_AGAIN_SECONDS)
        finally:
            if shown:
                self.report("")
