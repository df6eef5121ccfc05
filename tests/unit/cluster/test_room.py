"""What the operator keeps for many: one namespace never takes the room of another one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdcsync_operator.cluster.quota.room import SECRETS, Room, RoomBounds, has_room

BOUNDS = RoomBounds(total=100, own=10, namespaces=5)


def test_a_namespace_has_its_own_and_beyond_that_what_leaves_theirs_to_others() -> None:
    assert has_room({}, "a", 60, BOUNDS)
    assert not has_room({}, "a", 61, BOUNDS)
    assert not has_room({"a": 60}, "a", 1, BOUNDS)
    assert has_room({"a": 60}, "b", 10, BOUNDS)
    assert not has_room({"a": 60}, "b", 11, BOUNDS), "what is left is the own room of three others"
    assert not has_room({"a": 60, "b": 1, "c": 1, "d": 1, "e": 1}, "f", 1, BOUNDS), "those that are there grow"
    assert has_room({"a": 50, "b": 1, "c": 1, "d": 1, "e": 1}, "f", 10, BOUNDS), "what is left over is a sixth one's"


def test_any_number_of_small_namespaces_have_room() -> None:
    room = Room(SECRETS)
    assert all(room.put(f"team-{n}", "login", 1024) for n in range(1000))
    assert room.put("team-999", "another", SECRETS.own - 1024)
    assert not room.put("team-0", "too much", SECRETS.most)


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


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 5), st.integers(0, 120)), max_size=60))
def test_no_namespaces_take_the_room_of_another_one(puts: list[tuple[str, int, int]]) -> None:
    """Whatever all but one of them hold, and however it came, that one gets its own."""
    room = Room(BOUNDS)
    for namespace, holder, size in puts:
        room.put(namespace, holder, size)
        held = [room.held(n) for n in "abcde"]
        assert sum(held) <= BOUNDS.total
        assert max(held) <= BOUNDS.most
    for namespace in "abcde":
        if (missing := BOUNDS.own - room.held(namespace)) > 0:
            assert room.put(namespace, "the rest", missing)
