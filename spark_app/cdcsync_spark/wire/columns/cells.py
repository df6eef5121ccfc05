"""One column of many row images: where its values lie in the buffer, before they are decoded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdcsync_spark.wire.columns.gather import Cursors, Flags, Lanes


class Cells(NamedTuple):
    """One column of many rows: `width` bytes at `at + shift`, or `lengths` bytes where they differ.
    `valid` is None where no row is NULL; a NULL has the length 0 and, for a fixed width, bytes that
    mean nothing."""

    lanes: Lanes
    at: Cursors
    shift: int
    width: int
    lengths: Cursors | None
    valid: Flags | None

    @property
    def starts(self) -> Cursors:
        return self.at + self.shift if self.shift else self.at

    @property
    def sizes(self) -> Cursors:
        """The length of every value."""
        if self.lengths is not None:
            return self.lengths
        if self.valid is None:
            return np.full(len(self.at), self.width, np.int64)
        return np.multiply(self.valid, self.width, dtype=np.int64)
