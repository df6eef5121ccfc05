"""The comparison of digests finds exactly the keys that are not once on both sides with the same
row."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cdcsync_spark.verify.spool import Records, RecordSpool, compare, partitions_for
from support.traced import traced


def records(rows: dict[int, int] | list[tuple[int, int]]) -> Records:
    """Key -> row as records; keys that are equal in their first half come with 1000 and more."""
    pairs = list(rows.items()) if isinstance(rows, dict) else rows
    return np.array([(k % 1000, k, r, r + 1) for k, r in pairs], np.uint64).reshape(-1, 4)


def differing(source: Records, target: Records) -> list[int]:
    return sorted(int(k[1]) for k in compare(source, target).candidates)


def test_equal_sides_in_any_order_have_no_candidates() -> None:
    rows = {k: k * 7 for k in range(2000)}
    assert differing(records(rows), records(list(rows.items())[::-1])) == []


def test_missing_extra_different_and_doubled_keys_are_candidates() -> None:
    source = {k: k for k in range(3000)}
    target = [(k, k) for k in range(3000) if k != 5] + [(4000, 1), (7, 7)]
    target[target.index((9, 9))] = (9, 10)
    assert differing(records(source), records(target)) == [5, 7, 9, 4000]


def test_a_doubled_row_in_place_of_a_lost_one_is_found() -> None:
    # the counts agree, and so would a checksum by exclusive or
    assert differing(records({1: 1, 2: 2, 3: 3}), records([(1, 1), (1, 1), (3, 3)])) == [1, 2]


def test_two_changed_rows_do_not_cancel() -> None:
    assert differing(records({1: 1, 2: 2}), records({1: 2, 2: 1})) == [1, 2]


def test_keys_that_agree_in_their_first_half_are_kept_apart() -> None:
    rows = {k: k for k in (7, 1007, 2007, 3007)}
    assert differing(records(rows), records(rows)) == []
    assert differing(records(rows), records(rows | {1007: 8})) == [1007]
    assert differing(records(rows), records({7: 7, 1007: 1007, 2007: 2007, 4007: 3007})) == [3007, 4007]


def test_an_empty_side_is_all_candidates() -> None:
    assert differing(records({}), records({1: 1, 2: 2})) == [1, 2]
    assert differing(records({1: 1, 2: 2}), records({})) == [1, 2]
    assert differing(records({}), records({})) == []


@pytest.mark.parametrize("partitions", [1, 2, 16])
def test_partitions_on_disk_give_the_same(tmp_path: Path, partitions: int) -> None:
    spool = RecordSpool(tmp_path, partitions)
    source, target = records({k: k for k in range(5000)}), records({k: k for k in range(1, 5001)})
    for writer_of, side in ((spool.source, source), (spool.target, target)):
        for start in range(0, 5000, 600):
            with writer_of() as writer:
                writer.add(side[start : start + 600, :2], side[start : start + 600, 2:])
    found = spool.compare(most=2)
    assert (found.source_rows, found.target_rows) == (5000, 5000)
    assert sorted(int(k[1]) for k in found.candidates) == [0, 5000]


def test_a_large_partition_is_compared_in_pieces_and_many_differences_are_counted(tmp_path: Path) -> None:
    """Neither the rows of a partition nor the keys that differ must be in memory together."""
    both = np.random.default_rng(1).integers(0, 2**64, (20_000, 4), dtype=np.uint64)
    target = both.copy()
    target[::10, 3] += np.uint64(1)
    spool = RecordSpool(tmp_path, 2)
    for writer_of, side in ((spool.source, both), (spool.target, target[::-1])):
        with writer_of() as writer:
            writer.add(side[:, :2], side[:, 2:])
    changed = {key.tobytes() for key in both[::10, :2]}
    whole, pieces, few = spool.compare(5000), spool.compare(5000, rows_in_memory=700), spool.compare(30, 700)
    for found in (whole, pieces):
        assert (found.source_rows, found.target_rows, found.uncounted) == (20_000, 20_000, 0)
        assert {key.tobytes() for key in found.candidates} == changed
        assert len(found.candidates) == len(changed)
    assert (len(few.candidates), few.uncounted) == (30, len(changed) - 30)
    assert {key.tobytes() for key in few.candidates} < changed

    def compare_in_pieces() -> int:
        spool.compare(30, 700)
        return tracemalloc.get_traced_memory()[1]

    assert traced(compare_in_pieces) < 20_000 * 32, "less than one side"


@pytest.mark.parametrize(("rows", "expected"), [(0, 1), (1_000_000, 1), (1_000_001, 2), (10**8, 128), (10**12, 256)])
def test_partitions_are_bounded_and_fit_in_memory(rows: int, expected: int) -> None:
    assert partitions_for(rows) == expected
