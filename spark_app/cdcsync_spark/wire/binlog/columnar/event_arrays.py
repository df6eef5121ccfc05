"""The headers of many events as columns, and the checksums of those that are asked for.

Why it exists: a transaction of one row is four or five events, and a step of Python for each costs
more than decoding its row. Here a header is an item of a few arrays, and only the checksum is a
call for each event. Why it is right: nothing is decided here. An event whose length or checksum is
wrong is marked, and left to the parser of single events, which names the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import ne
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cdcsync_spark.wire.binlog.event.header import CRC, HEADER
from cdcsync_spark.wire.columns.gather import Cursors, Flags

_FIELDS = np.dtype(
    [("timestamp", "<u4"), ("kind", "u1"), ("server", "<u4"), ("length", "<u4"), ("log_pos", "<u4"), ("flags", "<u2")]
)
assert _FIELDS.itemsize == HEADER.size


class EventArrays(NamedTuple):
    """Events of `data`: `starts[i]` is where the header of one begins, `bodies[i]` and `ends[i]`
    where its body does and where that ends, before the checksum. `whole`: its header gives its
    length."""

    data: bytes
    starts: Cursors
    bodies: Cursors
    ends: Cursors
    times: npt.NDArray[np.uint32]
    kinds: npt.NDArray[np.uint8]
    servers: npt.NDArray[np.uint32]
    places: Cursors
    whole: Flags

    def numbers(self, at: Cursors, form: str) -> npt.NDArray[Any]:
        """One number of numpy's type `form` at each of the places, which lie in `data` with all
        their bytes."""
        return np.ndarray((len(self.data) - np.dtype(form).itemsize + 1,), form, buffer=self.data, strides=(1,))[at]

    def bytes(self, starts: Cursors, ends: Cursors) -> list[bytes]:
        data = self.data
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def damaged(self, chosen: Cursors) -> Cursors:
        """The `chosen` events whose checksum is wrong."""
        ends = self.ends[chosen]
        expected = self.numbers(ends, "<u4").tolist()
        checksums = list(map(crc32, self.bytes(self.starts[chosen], ends)))
        if checksums == expected:
            return chosen[:0]
        return chosen[np.fromiter(map(ne, checksums, expected), bool, len(chosen))]


def event_columns(data: bytes, starts: Sequence[int] | Cursors, ends: Sequence[int] | Cursors) -> EventArrays | None:
    """The columns of the events at `data[starts[i]:ends[i]]`, each with its checksum; None where
    one is too short for a header and a checksum."""
    begin, after = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    if not len(begin) or int((after - begin).min()) < HEADER.size + CRC.size:
        return None
    window = np.ndarray((len(data) - HEADER.size + 1,), f"V{HEADER.size}", buffer=data, strides=(1,))
    fields = window[begin].view(_FIELDS)
    return EventArrays(
        data,
        begin,
        begin + HEADER.size,
        after - CRC.size,
        fields["timestamp"],
        fields["kind"],
        fields["server"],
        fields["log_pos"].astype(np.int64),
        fields["length"] == after - begin,
    )
