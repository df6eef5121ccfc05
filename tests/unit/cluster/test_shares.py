"""Slots for all, and a share of them for each namespace."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_operator.cluster.shares import Shares, may_enter

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


def test_a_slot_that_is_left_is_taken_by_who_waits() -> None:
    shares, entered = Shares(slots=1, own=1, reserved=0), threading.Event()

    def enter() -> None:
        with shares.held("b"):
            entered.set()

    with shares.held("a"):
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.is_set()
    waiting.join(60)
    assert entered.is_set()
    assert not shares._held
