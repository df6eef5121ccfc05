"""Declared keys of the rows that a snapshot reads: two rows of one key, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.lake.keys.key_codes import Codes, KeyCodec
from cdcsync_spark.snapshot.splits.declared_key import once_a_key

COLUMNS = (
    Column("n", SourceType.parse("int"), False),
    Column("word", SourceType.parse("varchar(20)", "utf8mb4"), False),
)


def declared(*key: str) -> Capture:
    return Capture(SourceTable(TableId("shop", "log"), COLUMNS), key, declared=True)


def batches(table: Capture, rows: list[tuple[Any, ...]], size: int = 7) -> Iterator[pa.RecordBatch]:
    schema = captured_schema(table)
    for at in range(0, len(rows), size):
        columns = zip(*rows[at : at + size], strict=True)
        yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def passed(table: Capture, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Through blocks of a few rows in scratch space."""
    read = once_a_key(table, batches(table, rows), in_memory=4, block=8)
    return [tuple(row.values()) for batch in read for row in batch.to_pylist()]


@pytest.mark.parametrize("key", [("n",), ("word",), ("word", "n")])
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_one_row_more_is_met_among_many(key: tuple[str, ...], order: str) -> None:
    table = declared(*key)
    rows: list[tuple[Any, ...]] = [(n, f"w{n:03}") for n in range(100)]
    rows = rows[::-1] if order == "descending" else rows
    if order == "shuffled":
        Random(1).shuffle(rows)
    assert passed(table, rows) == rows
    for at in (0, 7, 55, 100):
        doubled = [*rows[:at], (42, "w042"), *rows[at:]]
        with pytest.raises(CdcError) as refused:
            passed(table, doubled)
        assert refused.value.reason is Reason.KEY_NOT_UNIQUE
        assert ("n=42" in refused.value.found, "word='w042'" in refused.value.found) == ("n" in key, "word" in key)


def test_no_rows_and_one_row() -> None:
    assert passed(declared("word"), []) == []
    assert passed(declared("n"), [(1, "a")]) == [(1, "a")]


def test_keys_are_bytes() -> None:
    rows = [(1, "a"), (2, "A"), (3, "a "), (4, "ä")]
    assert passed(declared("word"), rows) == rows


def test_keys_whose_hashes_meet_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All codes are one, and the rows of a key are apart."""
    monkeypatch.setattr(KeyCodec, "codes", lambda _, keys: np.zeros(keys.num_rows, np.uint64) + np.uint64(7))
    rows = [(n, f"w{n}") for n in range(40)]
    assert passed(declared("word"), rows) == rows
    with pytest.raises(CdcError) as refused:
        passed(declared("word"), [*rows, (77, "w0")])
    assert refused.value.reason is Reason.KEY_NOT_UNIQUE


def test_a_key_of_the_source_is_its_own_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: KeyCodec, keys: pa.RecordBatch) -> Codes:
        raise AssertionError(keys)

    monkeypatch.setattr(KeyCodec, "codes", refuse)
    table = Capture(SourceTable(TableId("shop", "log"), COLUMNS), ("n",))
    assert passed(table, [(1, "a"), (1, "a")]) == [(1, "a"), (1, "a")]
