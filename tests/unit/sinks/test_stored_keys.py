"""Stored keys are compared value by value, and the pages of those that are asked for are read side
by side before the first is needed."""

from __future__ import annotations

from decimal import Decimal
from mmap import MADV_WILLNEED, PAGESIZE
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_spark.sinks.lake.keys import scratch
from cdcsync_spark.sinks.lake.keys.scratch import Scratch, read_ahead, read_whole
from cdcsync_spark.sinks.lake.keys.stored_keys import StoredKeys

_Ranges = list[tuple[int, int]]


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> _Ranges:
    """Pages that the system was asked to read, each range by its first and the one behind it."""
    ranges: _Ranges = []

    def note(address: int, size: int, advice: int) -> None:
        if advice == MADV_WILLNEED:
            ranges.append((address // PAGESIZE, -(-(address + size) // PAGESIZE)))

    monkeypatch.setattr(scratch, "_advise", note)
    return ranges


def stored(folder: Path, keys: pa.Table) -> StoredKeys:
    with Scratch(folder, 16).writing() as written, pa.ipc.new_file(written.file, keys.schema) as writer:
        writer.write_table(keys, max_chunksize=100)
    return StoredKeys(written.content)


COLUMNS = {
    "text": pa.array([f"{'key' * (n % 40)} {n}" for n in range(1000)]),
    "bytes": pa.array([bytes([n % 256]) * (n % 5) for n in range(1000)], pa.binary()),
    "empty": pa.array([""] * 1000),
    "bool": pa.array([n % 2 == 0 for n in range(1000)]),
    "decimal": pa.array([Decimal(n) for n in range(1000)], pa.decimal128(38, 3)),
    "int": pa.array(range(1000), pa.int16()),
}


@pytest.mark.parametrize("names", [*((name,) for name in COLUMNS), ("text", "bool", "decimal")])
def test_rows_are_compared_with_keys_of_every_type(names: tuple[str, ...], tmp_path: Path) -> None:
    keys = pa.table({name: COLUMNS[name] for name in names})
    rows = np.array([999, 0, 100, 99, 512, 0], np.uint32)
    asked = keys.take(pa.array([999, 0, 101, 99, 512, 1])).combine_chunks().to_batches()[0]
    plain, wanted = keys.to_pylist(), asked.to_pylist()
    equal = stored(tmp_path, keys).equal(rows, asked)
    assert equal.tolist() == [plain[row] == key for row, key in zip(rows, wanted, strict=True)]
    assert equal[0]


def test_the_pages_of_stored_keys_are_read_ahead(tmp_path: Path, advised: _Ranges) -> None:
    keys = pa.table({"k": [f"<{n:038}>" for n in range(1000)]})
    held = stored(tmp_path, keys)
    asked = keys.take(pa.array([5, 950])).combine_chunks().to_batches()[0]
    assert held.equal(np.array([5, 950], np.uint32), asked).all()
    first, pages = held.content.address // PAGESIZE, -(-held.size // PAGESIZE)
    text = held.content.to_pybytes()
    for key in (5, 950):
        page = (held.content.address + text.index(f"<{key:038}>".encode())) // PAGESIZE
        assert any(begin <= page < end for begin, end in advised)
    assert sum(end - begin for begin, end in advised) < pages
    assert all(first <= begin < end <= first + pages for begin, end in advised)


def test_pages_are_asked_for_once_and_neighbours_together(advised: _Ranges) -> None:
    places = np.array([8, 16, PAGESIZE - 4, 5 * PAGESIZE, 9 * PAGESIZE - 1])
    read_ahead(places, 8)
    assert advised == [(0, 2), (5, 6), (8, 10)]
    read_ahead(places[:0], 8)
    assert len(advised) == 3


def test_a_column_of_entries_is_read_as_they_lie(advised: _Ranges) -> None:
    entries = np.zeros(3 * PAGESIZE, [("code", np.uint64), ("row", np.uint64)])
    assert read_whole(entries["code"]) is not None
    (begin, end), pages = advised[0], -(-entries.nbytes // PAGESIZE)
    assert pages - 1 <= end - begin <= pages + 1
    read_whole(entries["code"][:0])
    assert len(advised) == 1
