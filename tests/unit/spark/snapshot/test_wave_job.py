"""Pieces of a split and counts of a wave: bounded memory, and sums that stand still while they are
examined."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.position import FilePosition, Place, position_to_dict
from cdcsync_spark.sinks.contract.changes import StagedPart
from cdcsync_spark.snapshot.splits.split_read import Row, pieces
from cdcsync_spark.snapshot.wave_job import SplitResult, _CountsSum, _parse, run_wave

MIB = 1 << 20


def sizes(found: list[list[Row]]) -> list[int]:
    return [len(piece) for piece in found]


def test_narrow_rows_come_by_the_thousand() -> None:
    assert sizes(list(pieces((b"1", None) for _ in range(4500)))) == [2000, 2000, 500]


def test_wide_rows_come_in_small_pieces_from_the_first_on() -> None:
    """Two thousand rows of a megabyte are more than an Arrow array of text can hold."""
    wide = b"x" * MIB
    assert sizes(list(pieces((b"1", wide) for _ in range(20)))) == [8, 8, 4]


def test_rows_that_grow_wide_in_the_middle_do_not_surprise() -> None:
    rows = [(b"1", b"x")] * 2500 + [(b"1", b"x" * MIB)] * 10
    found = list(pieces(rows))
    assert max(sum(len(c) for r in p for c in r if c) for p in found) <= 9 * MIB
    assert [r for p in found for r in p] == rows


def test_one_row_may_be_wider_than_a_piece() -> None:
    assert sizes(list(pieces([(b"x" * (20 * MIB),), (b"1",)]))) == [1, 1]


def test_no_rows_are_no_piece() -> None:
    assert list(pieces([])) == []


@given(st.lists(st.tuples(st.none() | st.binary(max_size=5), st.binary(max_size=5)), max_size=50))
def test_all_rows_come_once_and_in_order(rows: list[Row]) -> None:
    assert [r for p in pieces(rows) for r in p] == rows


def test_counts_add_up_by_table_and_leave_what_was_seen_alone() -> None:
    """The driver adds a wave's counts up while a thread of Spark's adds to them."""
    total = _CountsSum()
    first = total.addInPlace(total.zero({}), {0: (1, 10)})
    second = total.addInPlace(first, {0: (1, 5), 1: (1, 7)})
    assert first == {0: (1, 10)}
    assert second == {0: (2, 15), 1: (1, 7)}


def test_a_tasks_result_comes_back_as_it_was() -> None:
    error = fail(Reason.SOURCE_UNREACHABLE, "gone", table="shop.orders")
    failed = _parse(json.dumps({"error": error.to_json(), "rows": 3, "size": 9}))
    returned = failed.error
    assert returned is not None
    assert (type(returned), returned.message, failed.rows, failed.size) == (type(error), error.message, 3, 9)
    assert _parse(
        '{"staged": [{"kind": "memory", "rows": 2, "body": "a"}], "rows": 2, "nulled": 1, "size": 9}'
    ) == SplitResult((StagedPart("memory", 2, "a"),), 2, 1, size=9)
    position = FilePosition(Place("binlog.000001", 4, "server"))
    text = json.dumps({"staged": [], "rows": 0, "nulled": 0, "size": 0, "position": position_to_dict(position)})
    assert _parse(text) == SplitResult(position=position)


class SlowSpark:
    """Its job begins late: the first cancellations find nothing to cancel, one fails, the fourth
    ends it."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.ended = threading.Event()
        self.sparkContext = self

    def accumulator(self, value: object, _: object) -> Any:
        return SimpleNamespace(value=value)

    def range(self, *_: int) -> Any:
        return SimpleNamespace(mapInArrow=lambda *_: SimpleNamespace(collect=self.collect))

    def collect(self) -> None:
        assert self.ended.wait(600)

    def cancelAllJobs(self) -> None:
        self.cancelled += 1
        if self.cancelled == 2:
            raise RuntimeError("stopped")
        if self.cancelled == 4:
            self.ended.set()


def test_a_wave_that_is_given_up_ends_its_job_however_late_that_begins() -> None:
    def progress(_: object) -> None:
        raise KeyError("draining")

    spark: Any = SlowSpark()
    with pytest.raises(KeyError, match="draining"):
        run_wave(spark, [], progress)
    assert spark.cancelled >= 4
