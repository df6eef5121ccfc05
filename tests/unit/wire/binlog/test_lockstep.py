"""Where rows begin, in events of every shape, and columns under NULL bitmaps of every shape."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.images.image import layout
from cdcsync_spark.wire.binlog.images.lockstep import rows, slices
from cdcsync_spark.wire.binlog.rows import batches, decode
from cdcsync_spark.wire.columns.gather import Lanes
from support.images import KINDS, Stored, image, rows_event, table_of

INT, TEXT, LONG_TEXT = (
    next(k for k in KINDS if (k.declared, k.code) == found)
    for found in (("int", types.LONG), ("varchar(12)", types.VARCHAR), ("longtext", types.BLOB))
)


def _row(i: int, width: int = 3) -> list[bytes | None]:
    """A number, a text of i % 5 characters, NULL in every third row, and another."""
    return [i.to_bytes(4, "little"), b"abcde"[: i % 5], None if i % 3 == 0 else b"x" * (i % 7)][:width]


def _same(table: Capture, events: Sequence[RowsEvent]) -> list[dict[str, object]]:
    numbers = list(range(len(events)))
    found, expected = (decode(table, events, numbers, d) for d in (Decoder.VECTORIZED, Decoder.REFERENCE))
    assert found.batch.equals(expected.batch)
    assert found.nulled == expected.nulled
    listed: list[dict[str, object]] = found.batch.to_pylist()
    return listed


@pytest.mark.parametrize(
    "shape",
    [
        [1],
        [3000],
        [1] * 300,
        [0, 1, 0, 0, 2, 0],
        [0],
        # many events in step, of which a few are walked to their ends
        [1, 2] * 100 + [500, 0, 700],
        [500, *[1] * 100, 500],
        list(range(100)),
    ],
)
def test_rows_are_found_in_events_of_every_shape(shape: list[int]) -> None:
    table, table_map = table_of([INT, TEXT, LONG_TEXT])
    numbers = iter(range(10_000))
    events = [rows_event(table_map, b"".join(image(table_map, _row(next(numbers))) for _ in range(n))) for n in shape]
    found = _same(table, events)
    assert [r["c0"] for r in found] == list(range(sum(shape)))
    assert [r["_cdc_transaction"] for r in found] == [i for i, n in enumerate(shape) for _ in range(n)]


def test_updates_are_pairs_wherever_they_stand() -> None:
    table, table_map = table_of([INT])
    events = [
        rows_event(table_map, b"".join(image(table_map, _row(i, 1)) for i in range(n)), operation)
        for operation, n in [
            (Operation.WRITE, 1),
            (Operation.UPDATE, 4),
            (Operation.DELETE, 3),
            (Operation.UPDATE, 2),
            (Operation.WRITE, 2),
        ]
    ]
    assert [r["_cdc_kind"] for r in _same(table, events)] == [0, 1, 2, 1, 2, 3, 3, 3, 1, 2, 0, 0]


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 16, 17, 500])
def test_nulls_of_every_shape(columns: int) -> None:
    """None, all, each alone, all but each, every other one."""
    kinds = [(INT, TEXT)[i % 2] for i in range(columns)]
    table, table_map = table_of(kinds)
    whole: list[bytes | None] = [b"\1\2\3\4" if i % 2 == 0 else b"ab" for i in range(columns)]
    shown = [{*()}, {*range(columns)}, {*range(0, columns, 2)}, {*range(1, columns, 2)}]
    ones = range(0, columns, max(1, columns // 6))
    shown += [{i} for i in ones] + [{*range(columns)} - {i} for i in ones]
    body = b"".join(image(table_map, [v if i in s else None for i, v in enumerate(whole)]) for s in shown)
    for events in ([rows_event(table_map, body)], [rows_event(table_map, body)] * 60):
        assert len(_same(table, events)) == len(shown) * len(events)


def _events(table_map: TableMap, found: Sequence[Stored], copies: int) -> list[RowsEvent]:
    return [rows_event(table_map, b"".join(image(table_map, row) for row in found))] * copies


@pytest.mark.parametrize("copies", [1, 100])
def test_every_cut_is_an_error(copies: int) -> None:
    """Byte by byte, and with trailing bytes; the other events are whole."""
    table, table_map = table_of([INT, TEXT, LONG_TEXT])
    body = image(table_map, [b"\1\0\0\0", b"abc", b"de"])
    others = [rows_event(table_map, body)] * (copies - 1)
    for cut in [body[:n] for n in range(1, len(body))] + [body + b"\0", body + body[:-1]]:
        for at in (0, len(others)):
            events = [*others[:at], rows_event(table_map, cut), *others[at:]]
            for decoder in Decoder:
                with pytest.raises(DecodeError) as caught:
                    decode(table, events, [0] * copies, decoder)
                assert caught.value.table == "shop.t"


def test_lengths_beyond_everything_are_errors() -> None:
    """The largest length of four bytes, of many columns: no read beyond the buffer, no memory for
    it."""
    table, table_map = table_of([LONG_TEXT] * 300)
    body = bytes(38) + b"\xff" * 1200
    for copies in (1, 100):
        with pytest.raises(DecodeError):
            decode(table, [rows_event(table_map, body)] * copies, [0] * copies)


def test_many_nulls_in_few_bytes_come_in_bounded_batches() -> None:
    """63 bytes stand for 500 values: 8,000 such rows are half a megabyte in the binlog and 32 MB as
    columns."""
    table, table_map = table_of([INT] * 500)
    body = image(table_map, [None] * 500) * 8000
    sizes = [b.batch.num_rows for b in batches(table, [rows_event(table_map, body)], [0])]
    assert sum(sizes) == 8000
    assert max(sizes) * 500 <= 1 << 20


def test_padded_values_come_in_bounded_batches() -> None:
    """A BINARY(255) of zeros is one byte in the binlog."""
    binary = next(k for k in KINDS if k.declared == "binary(255)")
    table, table_map = table_of([binary])
    body = image(table_map, [b""]) * 200_000
    sizes = [b.batch.nbytes for b in batches(table, [rows_event(table_map, body)], [0])]
    assert sum(sizes) > 200_000 * 255
    assert max(sizes) < 20 << 20


def test_long_rows_come_in_bounded_batches() -> None:
    table, table_map = table_of([LONG_TEXT])
    body = image(table_map, [b"x" * (1 << 20)]) * 12
    sizes = [b.batch.num_rows for b in batches(table, [rows_event(table_map, body)], [0])]
    assert sum(sizes) == 12
    assert max(sizes) <= 5


def test_rows_that_are_found_prove_their_ends() -> None:
    _, table_map = table_of([INT, TEXT])
    layouts = [layout(m) for m in table_map.columns]
    bodies = [image(table_map, _row(i, 2)) for i in range(1, 4)]
    found = rows(Lanes([b"".join(bodies[:2]), bodies[2]]), [len(bodies[0] + bodies[1]), len(bodies[2])], layouts)
    lengths = [len(b) for b in bodies]
    assert found.starts.tolist() == [0, lengths[0], sum(lengths[:2]), sum(lengths)]
    assert found.counts.tolist() == [2, 1]
    assert [(s.start, s.stop) for s in slices(found, 32, np.zeros(3, bool))] == [(0, 3)]


def test_one_event_of_very_many_rows_is_not_slower_by_the_row() -> None:
    """Rows of one event cannot be found in step. Bounded by a factor that only another order of
    growth reaches."""
    table, table_map = table_of([INT, TEXT])
    one = image(table_map, [b"\1\0\0\0", b"abc"])

    def seconds(events: list[RowsEvent]) -> float:
        began = time.process_time()
        decode(table, events, [0] * len(events))
        return time.process_time() - began

    many = seconds([rows_event(table_map, one * 100)] * 300)
    assert seconds([rows_event(table_map, one * 30_000)]) < 50 * max(many, 0.001)
