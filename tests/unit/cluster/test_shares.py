"""Slots for all, and a share of them for each namespace."""

from __future__ import annotations

import functools
import queue
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_operator.cluster.quota.shares import Shares, may_enter, next_namespace
from cdcsync_operator.cluster.quota.threads import NamespaceThreads

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
        ("ab", {}, "a"),  # in the order in which they came
        ("ab", {"a": 1}, "b"),
        ("abcd", {"a": 2, "b": 2, "c": 2}, "d"),
        ("ab", {"a": 2, "b": 1, "c": 2}, "b"),
        ("a", {"a": 4}, None),
        ("ab", {"a": 4, "b": 2, "c": 2}, None),
    ],
)
def test_who_is_next(waiting: str, held: dict[str, int], first: str | None) -> None:
    assert next_namespace(waiting, held, SLOTS, OWN, RESERVED) == first


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
                while sum(map(len, shares._waiting.values())) <= number:
                    threading.Event().wait(0.001)
        threads[-1].join(600)  # with the only slot that is free
    for thread in threads:
        thread.join(600)
    assert order[0] == "b"
    assert len(order) == 21
    assert not shares._held
    assert not shares._waiting


def test_many_that_wait_cost_no_time_of_the_process() -> None:
    """A slot that gets free wakes one of them."""
    shares, entered = Shares(slots=2, own=1, reserved=1), []

    def enter() -> None:
        with shares.held("evil"):
            entered.append("evil")

    with shares.held("evil"):
        threads = [threading.Thread(target=enter) for _ in range(1000)]
        for thread in threads:
            thread.start()
        with shares.held("lake"):
            assert not entered
        began = time.process_time()
    for thread in threads:
        thread.join(600)
    assert len(entered) == 1000
    assert time.process_time() - began < 5


def _fail_when_released(release: threading.Event, done: queue.Queue[str], name: str) -> None:
    assert release.wait(600)
    done.put(name)
    raise ValueError(name)


def test_a_namespace_has_a_bounded_number_of_threads() -> None:
    """Work that fails ends no thread that others wait for."""
    threads, release, done = NamespaceThreads(most=2), threading.Event(), queue.Queue[str]()
    before = set(threading.enumerate())
    for n in range(50):
        threads.start("evil", functools.partial(_fail_when_released, release, done, f"evil-{n}"))
    assert len([t for t in set(threading.enumerate()) - before if t.name == "source"]) <= 2
    threads.start("lake", lambda: done.put("lake"))
    assert done.get(timeout=600) == "lake"
    release.set()
    assert {done.get(timeout=600) for _ in range(50)} == {f"evil-{n}" for n in range(50)}
    threads.start("evil", lambda: done.put("again"))
    assert done.get(timeout=600) == "again"


def test_work_of_a_namespace_begins_in_the_order_in_which_it_came() -> None:
    """A single thread shows the order: two of them may end their work in either."""
    threads, release, done = NamespaceThreads(most=1), threading.Event(), queue.Queue[str]()
    for n in range(50):
        threads.start("evil", functools.partial(_fail_when_released, release, done, f"evil-{n}"))
    release.set()
    assert [done.get(timeout=600) for _ in range(50)] == [f"evil-{n}" for n in range(50)]
