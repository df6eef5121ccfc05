"""What is unpacked is bounded by the memory that there is, before anything is unpacked."""

from __future__ import annotations

import zlib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_spark.binlog import memory
from cdcsync_spark.wire.binlog import columns, compression
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Lanes

LONG = 1 << 20


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression.BOUND, "largest", LONG)


def mariadb(length: int) -> bytes:
    """0x80: compressed by zlib; 4 bytes of length, big endian."""
    return bytes([0x84]) + length.to_bytes(4, "big") + zlib.compress(bytes(length))


def payload(length: int) -> bytes:
    """Fields 2 (zstd) and 1 (the payload's length), then one event whose header states `length`."""
    event = bytes(9) + length.to_bytes(4, "little") + bytes(length - 13)
    packed = pa.compress(event, codec="zstd", asbytes=True)
    size = len(packed).to_bytes(3, "little")
    return b"\x02\x01\x00" + b"\x01\x04\xfd" + size + b"\x00" + packed


def test_what_fits_is_unpacked() -> None:
    assert compression.unpack_mariadb(mariadb(LONG)) == bytes(LONG)
    assert [len(e) for e in compression.unpack_payload(payload(LONG))] == [LONG]


def test_what_does_not_fit_is_refused_by_the_length_that_it_states() -> None:
    for unpack in (
        lambda: compression.unpack_mariadb(mariadb(LONG + 1)),
        lambda: list(compression.unpack_payload(payload(LONG + 1))),
        lambda: compression.unpack_column(mariadb(LONG + 1)),
    ):
        with pytest.raises(DecodeError, match=r"spec\.driver\.memory"):
            unpack()


def test_the_values_of_a_column_are_bounded_together() -> None:
    """Each of them fits."""
    for count, fits in ((2, True), (3, False)):
        parts = [mariadb(LONG // 2)] * count
        lengths = np.array([len(part) for part in parts], np.int64)
        cells = Cells(Lanes(parts), np.cumsum(lengths) - lengths, 0, 0, lengths, None)
        with nullcontext() if fits else pytest.raises(DecodeError, match=r"spec\.driver\.memory"):
            columns._unpacked(cells)


def test_no_event_beyond_the_length_that_a_transaction_states_is_unpacked() -> None:
    """A few kilobytes unpack to millions of events."""
    event = bytes(9) + (19).to_bytes(4, "little") + bytes(6)
    packed = pa.compress(event * 100_000, codec="zstd", asbytes=True)
    head = b"\x02\x01\x00" + b"\x01\x04\xfd" + len(packed).to_bytes(3, "little") + b"\x03\x01\x26" + b"\x00"
    events = compression.unpack_payload(head + packed)
    assert [next(events), next(events)] == [event] * 2
    with pytest.raises(DecodeError, match="unpacks to more"):
        next(events)


def test_the_bound_is_a_part_of_what_the_container_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, none = tmp_path / "memory.max", tmp_path / "none"
    given.write_text("1073741824\n")
    none.write_text("max\n")
    assert memory.memory_limit([none, given, tmp_path / "missing"]) == 2**30
    assert memory.memory_limit([none]) > 2**28
    monkeypatch.setattr(memory, "memory_limit", lambda: 2**30)
    memory.bound_unpacked_events()
    assert compression.BOUND.largest == 2**28
