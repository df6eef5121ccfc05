"""R2: a before image is left out only where its after image has the same key, byte for byte; both
decoders leave out the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.rows import batches, decode
from support.images import KINDS, Stored, image, rows_event, table_of

INT, TEXT, LONG_TEXT = (
    next(k for k in KINDS if (k.declared, k.code) == found)
    for found in (("int", types.LONG), ("varchar(12)", types.VARCHAR), ("longtext", types.BLOB))
)
INSERT, BEFORE, AFTER, DELETE = 0, 1, 2, 3


def _event(table_map: TableMap, rows: Sequence[Stored], operation: Operation = Operation.UPDATE) -> RowsEvent:
    return rows_event(table_map, b"".join(image(table_map, row) for row in rows), operation)


def _kept(table: Capture, events: Sequence[RowsEvent]) -> list[tuple[object, ...]]:
    """The rows of both decoders, without the transaction."""
    numbers = list(range(len(events)))
    found, expected = (
        decode(table, events, numbers, d, befores=False) for d in (Decoder.VECTORIZED, Decoder.REFERENCE)
    )
    assert found.batch.equals(expected.batch)
    whole = decode(table, events, numbers)
    assert found.images == expected.images == whole.images == whole.batch.num_rows
    assert found.nulled == expected.nulled == whole.nulled
    return [tuple(row.values()) for row in found.batch.drop_columns(["_cdc_transaction"]).to_pylist()]


def _number(n: int) -> bytes:
    return n.to_bytes(4, "little")


def test_a_before_image_stays_where_the_key_changes() -> None:
    table, table_map = table_of([INT, TEXT])
    events = [
        _event(table_map, [[_number(1), b"a"], [_number(2), b"b"]], Operation.WRITE),
        _event(table_map, [[_number(1), b"a"], [_number(1), b"c"], [_number(2), b"b"], [_number(3), b"b"]]),
        _event(table_map, [[_number(3), b"b"]], Operation.DELETE),
        _event(table_map, [[_number(1), b"c"], [_number(1), None]]),
    ]
    assert _kept(table, events) == [
        (INSERT, 1, "a"),
        (INSERT, 2, "b"),
        (AFTER, 1, "c"),
        (BEFORE, 2, "b"),
        (AFTER, 3, "b"),
        (DELETE, 3, "b"),
        (AFTER, 1, None),
    ]


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([b"a", None, _number(1), b"x"], [b"b", None, _number(1), b"x"]),
        ([b"a", None, _number(1), b"x"], [b"a", None, _number(2), b"x"]),
        ([b"a", None, _number(1), b"x"], [b"ab", None, _number(1), b"x"]),
        ([b"a", None, _number(1), b"x"], [b"a ", None, _number(1), b"x"]),
        ([b"", None, _number(1), b"x"], [None, None, _number(1), b"x"]),
        ([b"a", None, _number(0), b"x"], [b"a", None, None, b"x"]),
        ([None, None, _number(1), b"x"], [b"", None, _number(1), b"x"]),
    ],
)
def test_each_column_of_the_key_counts(before: Stored, after: Stored, copies: int) -> None:
    """The first and the third column; NULL is no value, not even an empty one."""
    table, table_map = table_of([TEXT, LONG_TEXT, INT, TEXT])
    table = replace(table, key=("c2", "c0"))
    same = [*before[:1], b"other", *before[2:3], b"another"]
    events = [_event(table_map, [before, after]), _event(table_map, [before, same])] * copies
    assert [row[0] for row in _kept(table, events)] == [BEFORE, AFTER, AFTER] * copies


def test_the_images_of_an_update_are_not_parted() -> None:
    """Rows are decoded in slices of some megabytes; here three rows fill one."""
    table, table_map = table_of([INT, LONG_TEXT])
    rows: list[Stored] = [[_number(i // 2), b"x" * (3 << 19)] for i in range(20)]
    events = [_event(table_map, rows[:1], Operation.WRITE), _event(table_map, rows)]
    parts = list(batches(table, events, [0, 0], befores=False))
    assert len(parts) > 2
    assert [k for p in parts for k in p.batch["_cdc_kind"].to_pylist()] == [INSERT, *[AFTER] * 10]
    assert sum(p.images for p in parts) == 21


def test_an_image_that_is_left_out_must_be_whole_all_the_same() -> None:
    table, table_map = table_of([INT, TEXT])
    pair = image(table_map, [_number(1), b"abc"]) * 2
    for cut in (pair[:-1], pair[:10], pair + b"\0"):
        for decoder in Decoder:
            with pytest.raises(DecodeError):
                decode(table, [rows_event(table_map, cut, Operation.UPDATE)], [0], decoder, befores=False)
