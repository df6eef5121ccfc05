"""Declared keys in a batch: what a unique index would refuse stops the table, all else folds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.upsert import Upserts, fold
from cdcsync_spark.rows.changes import ChangeKind, changes_schema

TEXT = SourceType.parse("varchar(20)", "utf8mb4")
TABLE = Capture(
    SourceTable(TableId("shop", "log"), (Column("id", TEXT, False), Column("v", SourceType.parse("int"), False))),
    ("id",),
    declared=True,
)
SCHEMA = changes_schema(pa.schema([("id", pa.string()), ("v", pa.int32())]))
INSERT, BEFORE, AFTER, DELETE = ChangeKind
Image = tuple[ChangeKind, str, int]


def folded(images: list[Image], scratch: Path | None = None, rows_in_memory: int = 1_000_000) -> Upserts:
    pieces = [images[at : at + 3] for at in range(0, len(images), 3)]
    tables = [
        pa.table([[i[0] for i in p], [0] * len(p), [i[1] for i in p], [i[2] for i in p]], schema=SCHEMA) for p in pieces
    ]
    changes = Changelog(pa.concat_tables([SCHEMA.empty_table(), *tables]), scratch=scratch)
    return fold(changes, ["id"], declared=TABLE, in_memory_bytes=0 if scratch else 2**30, rows_in_memory=rows_in_memory)


def moved(one: str, other: str, v: int) -> list[Image]:
    return [(BEFORE, one, v), (AFTER, other, v)]


@pytest.mark.parametrize(
    ("images", "upserts", "deletes", "new"),
    [
        ([], [], [], []),
        ([(INSERT, "a", 1)], [("a", 1)], [], [True]),
        ([(DELETE, "a", 1)], [], ["a"], [False]),
        ([(BEFORE, "a", 1), (AFTER, "a", 2)], [("a", 2)], [], [False]),
        # the key must not be there before, although nothing of it is left
        ([(INSERT, "a", 1), (DELETE, "a", 1)], [], ["a"], [True]),
        ([(DELETE, "a", 1), (INSERT, "a", 2)], [("a", 2)], [], [False]),
        (moved("a", "b", 1), [("b", 1)], ["a"], [True, False]),
        # keys are bytes, whatever the collation
        ([(INSERT, "a", 1), (INSERT, "A", 2)], [("a", 1), ("A", 2)], [], [True, True]),
        # two keys change places by way of a third
        ([*moved("a", "x", 1), *moved("b", "a", 2), *moved("x", "b", 1)], [("a", 2), ("b", 1)], ["x"], [0, 0, 1]),
    ],
)
def test_what_a_unique_index_would_allow(
    images: list[Image], upserts: list[tuple[str, int]], deletes: list[str], new: list[bool]
) -> None:
    changes = folded(images)
    assert [tuple(row.values()) for row in changes.upserts.to_pylist()] == upserts
    assert changes.deletes["id"].to_pylist() == deletes
    assert changes.new is not None
    assert changes.new.tolist() == [bool(n) for n in new]


@pytest.mark.parametrize(
    ("images", "key"),
    [
        ([(INSERT, "a", 1), (INSERT, "a", 2)], "a"),
        ([(INSERT, "a", 1), *moved("b", "a", 2)], "a"),
        ([(BEFORE, "a", 1), (AFTER, "a", 2), (INSERT, "a", 3)], "a"),
        ([(DELETE, "a", 1), (DELETE, "a", 2)], "a"),
        ([(DELETE, "a", 1), (BEFORE, "a", 2), (AFTER, "a", 3)], "a"),
        # UPDATE t SET id = id + 1: the last images alone would lose a row
        ([*moved("1", "2", 1), *moved("2", "3", 2), *moved("3", "4", 3)], ""),
        # the first fault in the order of the binlog is named
        ([(INSERT, "b", 1), (INSERT, "a", 1), (INSERT, "b", 2), (INSERT, "a", 2)], "b"),
    ],
)
def test_two_rows_of_one_key(images: list[Image], key: str) -> None:
    if not key:
        # each key is taken from the first row before it is given again, so this order is no fault
        # within the batch; the target, where `2` and `3` are, refuses it
        changes = folded(images)
        assert changes.new is not None
        assert changes.new.any()
        return
    with pytest.raises(CdcError) as refused:
        folded(images)
    assert refused.value.reason is Reason.KEY_NOT_UNIQUE
    assert f"id='{key}'" in refused.value.found
    assert refused.value.table == "shop.log"


def _history(rng: Random, length: int, *, allowed: bool) -> tuple[list[Image], bool]:
    """Random changes of rows in a bag, and whether two of them had one key at a time."""
    rows: list[tuple[str, int]] = []
    images: list[Image] = []
    twice = False
    for _ in range(length):
        row = (str(rng.randrange(12)), rng.randrange(99))
        gone = rows.pop(rng.randrange(len(rows))) if rows and rng.random() < 0.6 else None
        ends = gone is not None and rng.random() < 0.4
        if not ends and any(key == row[0] for key, _ in rows):
            if allowed:
                twice = True
            else:
                rows += [gone] if gone else []
                continue
        if gone is not None:
            images.append((DELETE if ends else BEFORE, *gone))
        if not ends:
            images.append((INSERT if gone is None else AFTER, *row))
            rows.append(row)
    return images, twice


@pytest.mark.parametrize("in_parts", [False, True])
def test_random_histories_stop_if_and_only_if_two_rows_have_one_key(in_parts: bool, tmp_path: Path) -> None:
    """In parts: keys of a few images are in memory at a time."""
    stopped = 0
    for seed in range(60):
        images, twice = _history(Random(seed), 40, allowed=seed % 2 == 0)
        scratch, rows = (tmp_path, 4) if in_parts else (None, 1_000_000)
        if twice:
            with pytest.raises(CdcError) as refused:
                folded(images, scratch, rows)
            assert refused.value.reason is Reason.KEY_NOT_UNIQUE
            stopped += 1
            continue
        changes = folded(images, scratch, rows)
        left: dict[str, int] = {}
        first: dict[str, bool] = {}
        for kind, key, v in images:
            first.setdefault(key, kind in (INSERT, AFTER))
            left.pop(key, None)
            left |= {key: v} if kind in (INSERT, AFTER) else {}
        assert dict(tuple(row.values()) for row in changes.upserts.to_pylist()) == left
        keys = [*changes.upserts["id"].to_pylist(), *changes.deletes["id"].to_pylist()]
        assert changes.new is not None
        assert dict(zip(keys, changes.new.tolist(), strict=True)) == first
    assert stopped > 20
