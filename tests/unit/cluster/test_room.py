"""What the operator keeps for many: one namespace never takes the room of another one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdcsync_operator.cluster.quota.room import Room, RoomBounds, has_room

BOUNDS = RoomBounds(total=100, own=10, reserved=40)


def test_a_namespace_has_its_own_and_beyond_that_what_leaves_room() -> None:
    assert has_room({}, "a", 60, BOUNDS)
    assert not has_room({}, "a", 61, BOUNDS)
    assert not has_room({"a": 60}, "a", 1, BOUNDS)
    assert has_room({"a": 60}, "b", 10, BOUNDS)
    assert not has_room({"a": 60}, "b", 11, BOUNDS), "beyond its own it leaves as much to others as the first one did"
    assert not has_room({"a": 60, "b": 10, "c": 10, "d": 10, "e": 10}, "f", 1, BOUNDS)


def test_a_namespace_that_has_more_than_it_could_get_takes_nothing_from_others() -> None:
    room = Room(BOUNDS)
    room.hold("a", "run", 10_000)
    assert room.put("b", "run", 10)
    assert not room.put("a", "another", 1)


def test_what_is_freed_or_grows_smaller_is_there_for_others() -> None:
    room = Room(BOUNDS)
    assert room.put("a", 1, 60)
    assert not room.put("a", 2, 5)
    assert room.put("a", 1, 50), "less always fits"
    assert room.put("a", 2, 5)
    assert not room.put("a", 2, 11)
    assert room.held("a") == 55, "it has what it had"
    room.free("a", 1)
    room.free("a", 1)
    assert room.put("a", 2, 60)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 120)), max_size=60))
def test_the_total_holds_and_one_namespace_leaves_what_is_reserved(puts: list[tuple[str, int, int]]) -> None:
    room = Room(BOUNDS)
    for namespace, holder, size in puts:
        room.put(namespace, holder, size)
        held = [room.held(n) for n in "abc"]
        assert sum(held) <= BOUNDS.total
        assert max(held) <= BOUNDS.total - BOUNDS.reserved
