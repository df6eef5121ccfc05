"""What is finished of a key space: nothing is lost from it, nothing is in it twice (rules R4 and
R7)."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.positions.chunk import WHOLE, Bound, Intervals, Split


@st.composite
def plans(draw: st.DrawFn) -> list[Split]:
    """A whole key space cut into splits in key order; the bounds' values have no order of their own
    (collations)."""
    values = draw(st.lists(st.integers(-5, 50) | st.text("äBaz", max_size=3), unique_by=repr, max_size=12))
    bounds: list[Bound] = [None, *((v,) for v in values), None]
    return [Split(a, b) for a, b in pairwise(bounds)]


def finished(splits: list[Split]) -> Intervals:
    found = Intervals()
    for split in splits:
        found = found.add(split)
    return found


@given(plans(), st.data())
def test_splits_in_key_order_leave_one_interval(plan: list[Split], data: st.DataObject) -> None:
    """However many splits a table has, its state holds one interval while it grows."""
    done = data.draw(st.integers(0, len(plan)))
    found = finished(plan[:done])
    assert len(found.parts) == min(done, 1)
    assert found.complete is (done == len(plan))
    if 0 < done < len(plan):
        assert found.parts == (Split(None, plan[done - 1].end),)
        assert found.frontier == plan[done].start


@given(plans(), st.data())
def test_what_is_not_finished_is_exactly_the_gap(plan: list[Split], data: st.DataObject) -> None:
    done = data.draw(st.integers(0, len(plan)))
    gaps = list(finished(plan[:done]).gaps())
    if done == len(plan):
        assert gaps == []
    else:
        assert gaps == [Split(plan[done].start, None)]


@given(plans(), st.data())
def test_a_split_is_never_finished_twice(plan: list[Split], data: st.DataObject) -> None:
    """A wave that is committed again would add its rows again."""
    done = data.draw(st.integers(1, len(plan)))
    again = data.draw(st.sampled_from(plan[:done]))
    with pytest.raises(ValueError, match=r"finished already|touches no finished part"):
        finished(plan[:done]).add(again)


@given(plans(), st.data())
def test_a_split_that_leaves_a_gap_is_refused(plan: list[Split], data: st.DataObject) -> None:
    done = data.draw(st.integers(0, len(plan)))
    later = plan[done + 1 :]
    if later:
        with pytest.raises(ValueError, match="touches no finished part"):
            finished(plan[:done]).add(data.draw(st.sampled_from(later)))


@given(plans(), st.data())
def test_gaps_and_parts_together_are_the_key_space(plan: list[Split], data: st.DataObject) -> None:
    """Also for parts that are apart, as an older program or a hand might have left them."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(plan), max_size=len(plan)))
    parts = Intervals(_merged([s for s, k in zip(plan, kept, strict=True) if k]))
    pieces = sorted([*parts.parts, *parts.gaps()], key=lambda s: _place(plan, s))
    assert _merged(pieces) == (WHOLE,)
    for gap in parts.gaps():
        assert _place(plan, gap) not in {_place(plan, p) for p in parts.parts}


@given(plans(), st.data())
def test_filling_the_first_gap_again_and_again_completes(plan: list[Split], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(plan), max_size=len(plan)))
    found = Intervals(_merged([s for s, k in zip(plan, kept, strict=True) if k]))
    for _ in plan:
        for gap in list(found.gaps())[:1]:
            found = found.add(gap)
    assert found.complete


@given(plans(), st.data())
def test_intervals_come_back_from_the_state(plan: list[Split], data: st.DataObject) -> None:
    found = finished(plan[: data.draw(st.integers(0, len(plan)))])
    assert Intervals.from_list(json.loads(json.dumps(found.to_list()))) == found


def _place(plan: list[Split], split: Split) -> int:
    return [s.start for s in plan].index(split.start)


def _merged(splits: list[Split]) -> tuple[Split, ...]:
    merged: list[Split] = []
    for split in splits:
        if merged and merged[-1].end == split.start:
            merged[-1] = Split(merged[-1].start, split.end)
        else:
            merged.append(split)
    return tuple(merged)
