"""Slots for all, and a share of them for each namespace."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_operator.cluster.quota.shares import Shares, Waiter, may_enter, next_waiter

SLOTS, OWN, RESERVED = 8, 2, 4


def _may(held: dict[str, int], namespace: str) -> bool:
    return may_enter(held, namespace, SLOTS, OWN, RESERVED)


@pytest.mark.parametrize(
    ("held", "namespace", "may"),
    [
        ({}, "a", True),
        ({"a": 2}, "a", True),  # six are free
        ({"a": 3}, "a", True),
        ({"a": 4}, "a", False),  # what is left is the others'
        ({"a": 4}, "b", True),
        ({"a": 4, "b": 1}, "b", True),
        ({"a": 4, "b": 2}, "b", False),
        ({"a": 4, "b": 2}, "c", True),
        ({"a": 4, "b": 2, "c": 2}, "d", False),
    ],
)
def test_who_may_enter(held: dict[str, int], namespace: str, may: bool) -> None:
    assert _may(held, namespace) is may


@given(st.lists(st.sampled_from("aaaabcde"), max_size=40))
def test_no_namespace_takes_what_is_reserved(asking: list[str]) -> None:
    """In whichever order slots are asked for: the total holds, and one namespace alone leaves slots
    to two others at least."""
    held: dict[str, int] = {}
    for namespace in asking:
        if _may(held, namespace):
            held[namespace] = held.get(namespace, 0) + 1
    assert sum(held.values()) <= SLOTS
    assert all(count <= SLOTS - RESERVED for count in held.values())


@pytest.mark.parametrize(
    ("waiting", "held", "first"),
    [
        ("", {}, None),
        ("ab", {}, 0),  # in the order in which they came
        ("aaab", {"a": 1}, 3),  # many of one namespace wait
        ("abcd", {"a": 2, "b": 2, "c": 2}, 3),  # and some in each of many namespaces
        ("abab", {"a": 2, "b": 1, "c": 2}, 1),
        ("aa", {"a": 4}, None),
        ("aabb", {"a": 4, "b": 2, "c": 2}, None),
    ],
)
def test_who_is_next(waiting: str, held: dict[str, int], first: int | None) -> None:
    waiters = [Waiter(namespace) for namespace in waiting]
    found = next_waiter(waiters, held, SLOTS, OWN, RESERVED)
    assert found is (None if first is None else waiters[first])


def test_a_slot_that_is_left_is_taken_by_who_waits() -> None:
    shares, entered = Shares(slots=1, own=1, reserved=0), threading.Event()

    def enter() -> None:
        with shares.held("b"):
            entered.set()

    with shares.held("a"):
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.is_set()
    waiting.join(600)
    assert entered.is_set()
    assert not shares._held


def test_who_holds_none_is_served_before_all_who_came_earlier_and_hold_some() -> None:
    """Twenty wait of a namespace that has a slot, then one of another namespace comes."""
    shares, order, lock = Shares(slots=2, own=2, reserved=0), [], threading.Lock()

    def enter(namespace: str) -> None:
        with shares.held(namespace), lock:
            order.append(namespace)

    with shares.held("a"):
        with shares.held("a"):
            threads = [threading.Thread(target=enter, args=(name,)) for name in ["a"] * 20 + ["b"]]
            for number, thread in enumerate(threads):
                thread.start()
                while len(shares._waiting) <= number:
                    threading.Event().wait(0.001)
        threads[-1].join(600)  # with the only slot that is free
    for thread in threads:
        thread.join(600)
    assert order[0] == "b"
    assert len(order) == 21
    assert not shares._held
    assert not shares._waiting
