"""GTID sets are sets: every operation agrees with Python's set of single transactions (rule R5,
membership is exact)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from cdcsync_core.positions.gtid import Gtid, GtidSet
from support.strategies import SOURCES, gtid_set, gtid_sets, gtids, sets_of_gtids

UNIVERSE = [Gtid(source, number) for source in SOURCES for number in range(1, 14)]


def members(found: GtidSet) -> set[Gtid]:
    return {g for g in UNIVERSE if g in found}


@given(sets_of_gtids)
def test_a_set_has_exactly_its_transactions(transactions: set[Gtid]) -> None:
    assert members(gtid_set(transactions)) == transactions


@given(sets_of_gtids, sets_of_gtids)
def test_union_is_the_union(a: set[Gtid], b: set[Gtid]) -> None:
    assert members(gtid_set(a).union(gtid_set(b))) == a | b


@given(sets_of_gtids, sets_of_gtids)
def test_intersection_is_the_intersection(a: set[Gtid], b: set[Gtid]) -> None:
    assert members(gtid_set(a).intersection(gtid_set(b))) == a & b


@given(sets_of_gtids, sets_of_gtids)
def test_covers_is_superset(a: set[Gtid], b: set[Gtid]) -> None:
    assert gtid_set(a).covers(gtid_set(b)) is (a >= b)


@given(sets_of_gtids, sets_of_gtids)
def test_with_gtids_adds_those_transactions(a: set[Gtid], b: set[Gtid]) -> None:
    assert gtid_set(a).with_gtids(b) == gtid_set(a | b)


@given(sets_of_gtids, sets_of_gtids)
def test_equality_and_hash_are_structural(a: set[Gtid], b: set[Gtid]) -> None:
    """Intervals are merged, so however a set came about, equal members make equal sets."""
    assert (gtid_set(a) == gtid_set(b)) is (a == b)
    if a == b:
        assert hash(gtid_set(a)) == hash(gtid_set(b))


@given(gtid_sets)
def test_text_comes_back_as_the_same_set(given_set: GtidSet) -> None:
    assert GtidSet.parse(str(given_set)) == given_set
    assert GtidSet.parse(str(given_set).upper().replace(",", ",\n")) == given_set


@given(gtids)
def test_the_text_of_one_transaction_comes_back(gtid: Gtid) -> None:
    assert Gtid.parse(str(gtid)) == gtid


@given(gtid_sets)
def test_intervals_are_sorted_apart_and_not_empty(given_set: GtidSet) -> None:
    for _source, intervals in given_set.items():  # noqa: PERF102 (no mapping)
        assert intervals
        assert all(first <= last for first, last in intervals)
        assert all(b[0] > a[1] + 1 for a, b in pairwise(intervals))
