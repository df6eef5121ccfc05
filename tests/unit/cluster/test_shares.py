"""Slots for all, and a share of them for each namespace."""

from __future__ import annotations

import functools
import heapq
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_operator.cluster.quota.shares import Shares
from cdcsync_operator.cluster.quota.slots import Slots
from cdcsync_operator.cluster.quota.threads import NamespaceThreads

SLOTS = 8


class SlotClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(slots: Slots, asking: Iterable[str]) -> Counter[str]:
    """The slots that each namespace gets, in the order in which they ask."""
    held: Counter[str] = Counter()
    for namespace in asking:
        if slots.may_take(namespace):
            slots.take(namespace)
            held[namespace] += 1
    return held


@pytest.mark.parametrize(
    ("asking", "held"),
    [
        ("aaaaaaaa", {"a": 4}),  # what is left is the others'
        ("aaaaaaaabbbb", {"a": 4, "b": 2}),
        ("aaaaaaaabbbbccccdddde", {"a": 4, "b": 2, "c": 1, "d": 1}),
        ("abcabcabcabc", {"a": 2, "b": 2, "c": 2}),
        ("abcdefghi", dict.fromkeys("abcdefgh", 1)),
    ],
)
def test_who_takes_a_slot(asking: str, held: dict[str, int]) -> None:
    assert taken(Slots(SLOTS, SlotClock()), asking) == held


@given(st.lists(st.sampled_from("aaaabcde"), max_size=40))
def test_no_namespace_takes_more_than_half(asking: list[str]) -> None:
    """In whichever order slots are asked for."""
    held = taken(Slots(SLOTS, SlotClock()), asking)
    assert held.total() <= SLOTS
    assert all(count <= SLOTS // 2 for count in held.values())


#: what decides between namespaces that may take a slot
ORDERS: dict[str, Callable[[Slots, str], Any]] = {
    "shares": lambda slots, name: (slots.held(name), slots.used(name)),
    "queue": lambda slots, name: slots.used(name),
    "changes": lambda slots, name: name == "lake",  # those of the others are newer
}


def longest_wait(others: int, order: Callable[[Slots, str], Any]) -> float:
    """Seconds for which a namespace whose work takes a tenth of a second waits for a slot, at
    worst, while so many others always want more slots than there are, for 30 s each."""
    clock = SlotClock()
    slots, ends = Slots(SLOTS, clock), list[tuple[float, str, float]]()
    names, asked, waits = [f"evil{n}" for n in range(others)], 300.0, list[float]()
    while clock.now < 3000:
        waiting = names + ["lake"] * (asked <= clock.now)
        may = [name for name in waiting if slots.may_take(name)]
        if may:
            name = min(may, key=functools.partial(order, slots))
            slots.take(name)
            seconds = 0.1 if name == "lake" else 30.0
            heapq.heappush(ends, (clock.now + seconds, name, seconds))
            if name == "lake":
                waits.append(clock.now - asked)
                asked = clock.now + 7.0
        elif clock.now < asked < ends[0][0]:
            clock.now = asked
        else:
            clock.now, name, seconds = heapq.heappop(ends)
            slots.give_back(name, seconds)
    assert len(waits) > 50
    return max(waits)


@pytest.mark.parametrize("others", [SLOTS, 40])
def test_who_uses_little_waits_for_one_work_at_most(others: int) -> None:
    """However many namespaces hold what they get."""
    assert longest_wait(others, ORDERS["shares"]) <= 30


@pytest.mark.parametrize("others", range(1, SLOTS))
@pytest.mark.parametrize("order", ORDERS)
def test_fewer_namespaces_than_slots_leave_one_free(others: int, order: str) -> None:
    """In whichever order slots are given."""
    assert longest_wait(others, ORDERS[order]) == 0


def test_a_slot_that_is_left_is_taken_by_who_waits() -> None:
    shares, entered = Shares(1), threading.Event()

    def enter() -> None:
        with shares.held("b"):
            entered.set()

    with shares.held("a"):
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.is_set()
    waiting.join(600)
    assert entered.is_set()


def test_who_holds_none_is_served_before_all_who_came_earlier_and_hold_some() -> None:
    """Twenty wait of a namespace that has a slot, then one of another namespace comes."""
    shares, order, lock = Shares(1), [], threading.Lock()

    def enter(namespace: str) -> None:
        with shares.held(namespace), lock:
            order.append(namespace)

    with shares.held("a"):
        threads = [threading.Thread(target=enter, args=(name,)) for name in ["a"] * 20 + ["b"]]
        for number, thread in enumerate(threads):
            thread.start()
            while sum(map(len, shares._waiting.values())) <= number:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join(600)
    assert order[0] == "b"
    assert len(order) == 21
    assert not shares._waiting


def test_many_that_wait_cost_no_time_of_the_process() -> None:
    """A slot that gets free wakes one of them."""
    shares, entered = Shares(2), []

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
