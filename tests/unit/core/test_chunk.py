"""Splits and finished intervals: half open, adjacent by equality of bounds, never ordered by Python
(rule R3)."""

from __future__ import annotations

import pytest

from cdcsync_core.positions.chunk import WHOLE, Intervals, Split


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(ValueError, match="empty split"):
        Split((7,), (7,))


def test_a_bound_that_looks_like_another_is_another() -> None:
    """The number 10 and the text 10 are keys of different columns; 1 and True do not meet in a
    plan."""
    assert Split((10,), ("10",)).end == ("10",)


def test_bounds_are_not_compared_by_order() -> None:
    """Under a collation 'Z' may sort before 'a' or after it; only the server knows."""
    assert Split(("5a",), ("41",)) != Split(("41",), ("5a",))
    assert Intervals().add(Split(None, ("5a",))).add(Split(("5a",), ("41",))).frontier == ("41",)


def test_a_table_of_one_split_is_complete_after_it() -> None:
    assert Intervals().add(WHOLE).complete
    assert list(Intervals().add(WHOLE).gaps()) == []


def test_nothing_can_be_added_to_a_complete_table() -> None:
    done = Intervals().add(WHOLE)
    for split in (WHOLE, Split(None, (1,)), Split((1,), None)):
        with pytest.raises(ValueError, match=r"finished already|touches no finished part"):
            done.add(split)


def test_composite_bounds_are_compared_as_a_whole() -> None:
    found = Intervals().add(Split(None, (1, "61")))
    with pytest.raises(ValueError, match="touches no finished part"):
        found.add(Split((1, "62"), None))
    assert found.add(Split((1, "61"), None)).complete


def test_a_part_between_two_others_joins_them() -> None:
    apart = Intervals((Split(None, (10,)), Split((20,), None)))
    assert list(apart.gaps()) == [Split((10,), (20,))]
    assert apart.add(Split((10,), (20,))).complete


def test_before_the_beginning_only_the_open_start_may_be_added() -> None:
    late = Intervals((Split((5,), (9,)),))
    assert late.frontier is None
    assert late.add(Split(None, (5,))).parts == (Split(None, (9,)),)
