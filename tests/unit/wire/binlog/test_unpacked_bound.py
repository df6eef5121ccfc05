"""What is unpacked is bounded by the memory that there is, before anything is unpacked."""

from __future__ import annotations

import zlib
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from cdcsync_core.errors import DecodeError
from cdcsync_core.runs.run import Decoder
from cdcsync_spark.binlog.dump import event_bound
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.event import compression
from cdcsync_spark.wire.binlog.facts import Operation
from cdcsync_spark.wire.binlog.rows import batches, decode
from support.images import BINARY, ImageType, image, rows_event, table_of

LONG = 1 << 20


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression.BOUND, "largest", LONG)


def mariadb(length: int) -> bytes:
    """0x80: compressed by zlib; 4 bytes of length, big endian."""
    return bytes([0x84]) + length.to_bytes(4, "big") + zlib.compress(bytes(length))


def payload(length: int, missing: int = 0) -> bytes:
    """Fields 2 (zstd) and 1 (the payload's length), then one event whose header states `length`, of
    which the last `missing` bytes are not there."""
    event = bytes(9) + length.to_bytes(4, "little") + bytes(length - 13 - missing)
    packed = pa.compress(event, codec="zstd", asbytes=True)
    size = len(packed).to_bytes(3, "little")
    return b"\x02\x01\x00" + b"\x01\x04\xfd" + size + b"\x00" + packed


def test_what_fits_is_unpacked() -> None:
    assert compression.unpack_mariadb(mariadb(LONG)) == bytes(LONG)
    assert [len(e) for e in compression.unpack_payload(payload(LONG)) if isinstance(e, bytes)] == [LONG]


def test_what_does_not_fit_is_refused_by_the_length_that_it_states() -> None:
    for unpack in (
        lambda: compression.unpack_mariadb(mariadb(LONG + 1)),
        lambda: compression.unpack_column(mariadb(LONG + 1)),
    ):
        with pytest.raises(DecodeError, match=r"spec\.driver\.memory"):
            unpack()


def test_an_inner_event_that_does_not_fit_is_passed_over() -> None:
    """Its header and 8 bytes stay; the length that the transaction states counts it whole."""
    (oversized,) = compression.unpack_payload(payload(LONG + 1))
    assert isinstance(oversized, compression.OversizedEvent)
    assert (len(oversized.beginning), oversized.length) == (19 + 8, LONG + 1)
    assert "spec.driver.memory" in oversized.refusal.message
    with pytest.raises(DecodeError, match="ends inside an event"):
        list(compression.unpack_payload(payload(LONG + 1, missing=1)))


@pytest.mark.parametrize("decoder", list(Decoder))
@pytest.mark.parametrize(("rows", "columns", "bounded"), [(2, 1, True), (9, 2, True), (1, 3, False), (9, 3, False)])
def test_the_compressed_values_of_a_row_are_bounded_together(
    decoder: Decoder, rows: int, columns: int, bounded: bool
) -> None:
    """Each of them fits; rows that do not fit together are unpacked in turns."""
    packed = ImageType("longblob", types.BLOB_COMPRESSED, 4, st.none(), BINARY)
    table, table_map = table_of([ImageType("int", types.LONG, 0, st.none()), *[packed] * columns])
    keys = [row.to_bytes(4, "little") for row in range(rows)]
    body = b"".join(image(table_map, (key, *[mariadb(LONG // 2)] * columns)) for key in keys)
    with nullcontext() if bounded else pytest.raises(DecodeError, match=r"spec\.driver\.memory"):
        batch = decode(table, [rows_event(table_map, body)], [0], decoder).batch
        assert batch.column("c0").to_pylist() == list(range(rows))
        assert batch.column("c1").to_pylist() == [bytes(LONG // 2)] * rows


@pytest.mark.parametrize("decoder", list(Decoder))
@pytest.mark.parametrize("befores", [True, False])
def test_a_block_that_unpacks_to_more_than_the_bound_is_read_in_pieces(decoder: Decoder, befores: bool) -> None:
    """A short value before one that takes all there is; updates, of which none changes the key."""
    packed = ImageType("longblob", types.BLOB_COMPRESSED, 4, st.none(), BINARY)
    table, table_map = table_of([ImageType("int", types.LONG, 0, st.none()), packed])
    lengths = [9, LONG, LONG, 0, LONG // 2, LONG]
    pairs = [(n.to_bytes(4, "little"), mariadb(length)) for n, length in enumerate(lengths)]
    body = b"".join(image(table_map, pair) * 2 for pair in pairs)
    events = [rows_event(table_map, body, Operation.UPDATE)] * 2
    parts = list(batches(table, events, [3, 4], decoder, befores=befores))
    assert len(parts) > 1
    assert sum(part.images for part in parts) == 2 * 2 * len(lengths)
    rows = [row for part in parts for row in part.batch.to_pylist()]
    times = 2 if befores else 1
    assert [(row["c0"], len(row["c1"])) for row in rows] == [
        pair for _ in events for pair in enumerate(lengths) for _ in range(times)
    ]
    assert [row["_cdc_transaction"] for row in rows] == [n for n in (3, 4) for _ in lengths * times]


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
    assert event_bound.memory_limit([none, given, tmp_path / "missing"]) == 2**30
    assert event_bound.memory_limit([none]) > 2**28
    monkeypatch.setattr(event_bound, "memory_limit", lambda: 2**30)
    event_bound.bound_unpacked_events()
    assert compression.BOUND.largest == 2**28
