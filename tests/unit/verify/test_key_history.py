"""What the binlog says of a key decides whether rows that differ are right all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_core.positions.position import FilePosition, LogOffset, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.batch import TableBatch, Transactions, write_transactions
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.verify.confirm import explained
from cdcsync_spark.verify.digest import Digesters, DigestSet
from cdcsync_spark.verify.key_history import Watched

TABLE = Capture(
    SourceTable(
        TableId("d", "t"),
        (Column("k", SourceType.parse("int")), Column("v", SourceType.parse("varchar(9)", "utf8mb4"))),
    ),
    ("k",),
)
DIGESTERS = Digesters.of(TABLE, bytes(32))
INSERT, BEFORE, AFTER, DELETE = ChangeKind


def position(end: int) -> FilePosition:
    return FilePosition(LogOffset("binlog.000001", end))


def row(key: int, value: str) -> bytes:
    batch = pa.RecordBatch.from_pylist([{"k": key, "v": value}], captured_schema(TABLE))
    return DIGESTERS.rows.of(batch)[0].tobytes()


def rows(value: str | None) -> list[bytes] | None:
    return None if value is None else [row(1, value)]


def history(tmp_path: Path, target_at: int, changes: list[tuple[int, ChangeKind, int, str]], until: int = 0) -> Watched:
    """`changes`: (number of the transaction, kind, key, value); transaction n ends at 100 * (n +
    1). Only key 1 is watched; `until` is where a target that is stretched ends."""
    schema = changes_schema(captured_schema(TABLE))
    key = DIGESTERS.keys.of(pa.RecordBatch.from_pylist([{"k": 1, "v": ""}], captured_schema(TABLE)))
    watched = Watched(TABLE, DIGESTERS, DigestSet(key), position(target_at), position(until or target_at))
    data = [dict(zip(schema.names, (kind, number, k, v), strict=True)) for number, kind, k, v in changes]
    file, transactions = tmp_path / "changes.arrow", tmp_path / "transactions.json"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for entry in data:  # a batch each: a transaction may span batches
            writer.write_batch(pa.RecordBatch.from_pylist([entry], schema))
    ends = [LogOffset("binlog.000001", 100 * (n + 1)) for n in range(1 + max(c[0] for c in changes))]
    write_transactions(str(transactions), Transactions([TransactionId(e) for e in ends], [None] * len(ends)))
    watched.take(TableBatch("d.t", str(file), len(data), 0, position(10_000)), str(transactions))
    return watched


WALK = [
    (0, BEFORE, 1, "a"),
    (0, AFTER, 1, "b"),
    (1, BEFORE, 1, "b"),
    (1, AFTER, 1, "never seen"),
    (1, BEFORE, 1, "never seen"),
    (1, AFTER, 1, "c"),
    (2, DELETE, 1, "c"),
    (3, INSERT, 1, "d"),
    (4, BEFORE, 1, "d"),
    (4, AFTER, 2, "d"),
]


@pytest.mark.parametrize(
    ("target_at", "expected"),
    [(50, "a"), (100, "b"), (199, "b"), (200, "c"), (300, None), (400, "d"), (500, None), (900, None)],
)
def test_a_target_must_have_what_its_last_covered_transaction_left(
    tmp_path: Path, target_at: int, expected: str | None
) -> None:
    (known,) = history(tmp_path, target_at, WALK).histories.values()
    for value in ("a", "b", "c", "d", None, "never seen"):
        assert explained(rows("a"), rows(value), known) is (value == expected)


def test_a_target_that_is_stretched_may_have_what_a_transaction_in_between_left(tmp_path: Path) -> None:
    (known,) = history(tmp_path, 150, WALK, until=300).histories.values()
    seen = {value: explained(rows("a"), rows(value), known) for value in ("a", "b", "c", None, "d", "never seen")}
    assert seen == {"a": False, "b": True, "c": True, None: True, "d": False, "never seen": False}


def test_a_source_may_have_what_a_transaction_left_and_nothing_else(tmp_path: Path) -> None:
    (known,) = history(tmp_path, 50, WALK).histories.values()
    seen = {value: explained(rows(value), rows("a"), known) for value in ("a", "b", "c", "d", None, "never seen", "x")}
    assert seen == {"a": True, "b": True, "c": True, "d": True, None: True, "never seen": False, "x": False}


def test_an_update_is_no_moment_without_the_row(tmp_path: Path) -> None:
    (known,) = history(tmp_path, 50, [(0, BEFORE, 1, "a"), (0, AFTER, 1, "b")]).histories.values()
    assert not explained(None, rows("a"), known)


def test_a_key_that_comes_by_a_key_change_was_not_there_before(tmp_path: Path) -> None:
    (known,) = history(tmp_path, 50, [(0, BEFORE, 2, "a"), (0, AFTER, 1, "a")]).histories.values()
    assert explained(rows("a"), None, known)
    assert not explained(rows("a"), rows("a"), known)


def test_a_key_twice_in_the_target_is_never_right(tmp_path: Path) -> None:
    (known,) = history(tmp_path, 50, WALK).histories.values()
    assert not explained(rows("b"), [row(1, "a"), row(1, "a")], known)


def test_without_a_change_in_the_log_a_difference_is_one(tmp_path: Path) -> None:
    watched = history(tmp_path, 50, [(0, INSERT, 2, "other key")])
    assert watched.histories == {}
    assert not explained(rows("a"), rows("b"), None)
    assert not np.any([explained(rows(None), rows("a"), None), explained(rows("a"), None, None)])
