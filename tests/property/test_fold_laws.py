"""Folding is what applying the changes one by one to the table would leave, for every kind of key
(rule R2)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.upsert import fold
from cdcsync_spark.rows.changes import ChangeKind, changes_schema

#: key columns: Arrow type and a few values of which some are alike
KEYS: dict[str, tuple[list[pa.DataType], list[tuple[Any, ...]]]] = {
    "int8": ([pa.int8()], [(-128,), (0,), (127,)]),
    "int64": ([pa.int64()], [(-(2**63),), (0,), (2**63 - 1,)]),
    "bigint unsigned": ([pa.decimal128(20, 0)], [(Decimal(0),), (Decimal(2**64 - 1),), (Decimal(7),)]),
    "text: bytes count, not the collation": ([pa.string()], [("a",), ("A",), ("a ",), ("",), ("ä",), ("a\u0308",)]),
    "binary": ([pa.binary()], [(b"",), (b"\0",), (b"\0\0",), (b"\xff",)]),
    "boolean": ([pa.bool_()], [(False,), (True,)]),
    "decimal": ([pa.decimal128(38, 30)], [(Decimal("0.1"),), (Decimal("-0.1"),), (Decimal(0),)]),
    "date": ([pa.date32()], [(date(1, 1, 1),), (date(9999, 12, 31),), (date(1970, 1, 1),)]),
    "datetime": ([pa.timestamp("us")], [(datetime(2024, 1, 1),), (datetime(2024, 1, 1, microsecond=1),)]),
    "timestamp": (
        [pa.timestamp("us", "UTC")],
        [(datetime(2024, 1, 1, tzinfo=UTC),), (datetime(2038, 1, 19, tzinfo=UTC),)],
    ),
    "two columns": ([pa.int32(), pa.string()], [(1, "1"), (1, "11"), (11, "1"), (11, "")]),
    "three columns": ([pa.int8(), pa.binary(), pa.date32()], [(1, b"x", date(2024, 1, 1)), (1, b"", date(2024, 1, 1))]),
}

Row = tuple[Any, ...]
Change = tuple[ChangeKind, int, Row]


@st.composite
def histories(draw: st.DrawFn, keys: list[tuple[Any, ...]]) -> tuple[dict[Row, Row], list[Change], dict[Row, Row]]:
    """A table before, a legal list of row images of its log, and the table after them; rows are
    (key, value)."""
    before = {k: (*k, draw(st.integers(0, 9))) for k in keys if draw(st.booleans())}
    table, changes = dict(before), []
    for transaction in range(draw(st.integers(0, 12))):
        for _ in range(draw(st.integers(1, 2))):
            changes += [(kind, transaction, row) for kind, row in _statement(draw, keys, table)]
    return before, changes, table


def _statement(draw: st.DrawFn, keys: list[tuple[Any, ...]], table: dict[Row, Row]) -> list[tuple[ChangeKind, Row]]:
    """One legal change of `table`, which it also makes: insert, delete, update, a changed key, or
    two keys swapped."""
    key, value = draw(st.sampled_from(keys)), draw(st.integers(0, 9))
    if key not in table:
        table[key] = (*key, value)
        return [(ChangeKind.INSERT, table[key])]
    other = draw(st.sampled_from(keys))
    old = table.pop(key)
    action = draw(st.sampled_from(("delete", "update", "move")))
    if action == "delete":
        return [(ChangeKind.DELETE, old)]
    if action == "update" or other == key:
        table[key] = (*key, value)
        return [(ChangeKind.UPDATE_BEFORE, old), (ChangeKind.UPDATE_AFTER, table[key])]
    if other not in table:
        table[other] = (*other, value)
        return [(ChangeKind.UPDATE_BEFORE, old), (ChangeKind.UPDATE_AFTER, table[other])]
    # one multi-table or ordered UPDATE leaves both old images before both new ones only in this
    # order of events
    swapped = table.pop(other)
    table[key], table[other] = (*key, swapped[-1]), (*other, old[-1])
    return [
        (ChangeKind.DELETE, old),
        (ChangeKind.UPDATE_BEFORE, swapped),
        (ChangeKind.UPDATE_AFTER, table[key]),
        (ChangeKind.INSERT, table[other]),
    ]


def arrow(types: list[pa.DataType], changes: list[Change], pieces: int = 1) -> pa.Table:
    schema = changes_schema(pa.schema([*((f"k{i}", t) for i, t in enumerate(types)), ("v", pa.int32())]))
    columns = [[c[0] for c in changes], [c[1] for c in changes]]
    columns += [[c[2][i] for c in changes] for i in range(len(types) + 1)]
    whole = pa.table([pa.array(v, f.type) for v, f in zip(columns, schema, strict=True)], schema=schema)
    step = max(1, -(-len(changes) // pieces))
    return pa.concat_tables([whole.slice(i, step) for i in range(0, len(changes), step)] or [whole])


def rows(found: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=25)
@given(data=st.data())
def test_fold_then_apply_is_the_table_after_all_changes(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Changed and swapped keys, delete and insert of one key, any number of images: the last image
    wins; and the same where the keys are looked through in parts."""
    types, keys = KEYS[name]
    before, changes, after = data.draw(histories(keys))
    images, key = arrow(types, changes, data.draw(st.integers(1, 3))), [f"k{i}" for i in range(len(types))]
    folded = fold(Changelog(images), key)
    assert _applied(before, folded, len(types)) == after
    many = Changelog(images, scratch=tmp_path_factory.getbasetemp())
    assert fold(many, key, in_memory_bytes=0, rows_in_memory=data.draw(st.integers(1, 4))) == folded


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_folded_batch_names_each_key_once(name: str, data: st.DataObject) -> None:
    """A merge with a key twice in its source is not defined."""
    types, keys = KEYS[name]
    _, changes, _ = data.draw(histories(keys))
    folded = fold(Changelog(arrow(types, changes)), [f"k{i}" for i in range(len(types))])
    named = [r[: len(types)] for r in (*rows(folded.upserts), *rows(folded.deletes))]
    assert len(named) == len(set(named))
    assert set(named) == {c[2][: len(types)] for c in changes}


@given(data=st.data())
def test_folding_twice_over_what_is_already_there_changes_nothing(data: st.DataObject) -> None:
    """Rule R2: the binlog from LOW on repeats what a split has already seen; the end is the same
    from any state in between."""
    types, keys = KEYS["two columns"]
    before, changes, after = data.draw(histories(keys))
    early = data.draw(st.integers(0, len(changes)))
    between = _applied(before, fold(Changelog(arrow(types, changes[:early])), ["k0", "k1"]), 2)
    assert _applied(between, fold(Changelog(arrow(types, changes)), ["k0", "k1"]), 2) == after


def _applied(before: dict[Row, Row], folded: Any, width: int) -> dict[Row, Row]:
    table = dict(before)
    for key in rows(folded.deletes):
        table.pop(key, None)
    for row in rows(folded.upserts):
        table[row[:width]] = row
    return table
