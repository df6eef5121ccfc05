"""Rows in the order of their key: all of them, each once, however they are cut and wherever they
lie; and in memory a block of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.sinks.lake.keys.ordered import in_order, order_of
from cdcsync_spark.sinks.lake.keys.scratch import Scratch

SCHEMA = pa.schema([("k", pa.int64()), ("l", pa.string()), ("v", pa.string())])


def batch(keys: list[tuple[int, str]]) -> pa.RecordBatch:
    return pa.record_batch([[k for k, _ in keys], [t for _, t in keys], [f"{k} {t}" for k, t in keys]], SCHEMA)


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.lists(st.tuples(st.integers(-9, 9), st.sampled_from("abc")), max_size=9), max_size=6),
    block_bytes=st.integers(1, 400),
    in_memory_bytes=st.integers(0, 200),
)
def test_all_rows_come_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[list[tuple[int, str]]],
    block_bytes: int,
    in_memory_bytes: int,
) -> None:
    scratch = Scratch(tmp_path_factory.getbasetemp(), in_memory=2)
    rows = scratch.table(SCHEMA, map(batch, pieces), in_memory_bytes)
    assert rows.to_pylist() == pa.Table.from_batches(map(batch, pieces), SCHEMA).to_pylist()
    ordered = pa.Table.from_batches(in_order(rows, order_of(rows.select(["k", "l"])), block_bytes), SCHEMA)
    keys = sorted(key for piece in pieces for key in piece)
    assert ordered.to_pylist() == pa.Table.from_batches([batch(keys)]).to_pylist()


def test_memory_is_that_of_a_block(tmp_path: Path) -> None:
    """64 MiB of rows that lie in scratch space."""
    keys = np.random.default_rng(1).permutation(64 * 1024)
    text = pa.repeat("t" * 1000, 1024)
    pieces = (pa.record_batch([pa.array(piece), text, text.slice(0, 1024)], SCHEMA) for piece in np.split(keys, 64))
    held = pa.total_allocated_bytes()
    table = Scratch(tmp_path).table(SCHEMA, pieces, 2**20)
    peak = first = 0
    for block in in_order(table, order_of(table.select(["k"])), 2**20):
        peak = max(peak, pa.total_allocated_bytes() - held)
        assert block["k"].to_pylist() == list(range(first, first + block.num_rows))
        first += block.num_rows
    assert first == len(keys)
    assert table.nbytes > 64 * 2**20
    assert peak < 8 * 2**20
