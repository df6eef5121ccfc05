"""The queue loses no change, gives a key to one worker at a time, and keeps what is due in order of
time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from cdcsync_operator.cluster.syncs.work_queue import WorkQueue

A, B = ("ns", "a"), ("ns", "b")
MANY = 10_000


class QueueClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_is_due_once_and_the_earliest_time_counts() -> None:
    clock = QueueClock()
    queue = WorkQueue(clock, MANY)
    queue.add(A, 10)
    queue.add(B)
    queue.add(A)
    queue.add(A, 20)
    assert {queue.take(), queue.take()} == {A, B}
    assert len(queue) == 2, "both are in hand"


def test_news_during_work_makes_it_due_again_and_not_before() -> None:
    queue = WorkQueue(QueueClock(), MANY)
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    queue.add(B)
    assert queue.take() == B, "A is with a worker"
    queue.done(A, 300)
    assert queue.take() == A


def test_a_closed_queue_gives_nothing() -> None:
    queue = WorkQueue(QueueClock(), MANY)
    queue.add(A)
    queue.close()
    assert queue.take() is None


def test_of_a_backlog_the_newest_changes_and_the_longest_due_are_taken_in_turns() -> None:
    clock = QueueClock()
    queue = WorkQueue(clock, MANY)
    for n in range(4000):
        clock.now += 0.001
        queue.add(("ns", f"s{n}"), changed_at=float(n))
    queue.add(A, changed_at=9000.0)
    queue.add(B)
    taken = [queue.take() for _ in range(6)]
    assert taken == [A, ("ns", "s0"), ("ns", "s3999"), ("ns", "s1"), ("ns", "s3998"), ("ns", "s2")]
    for key in taken:
        assert key is not None
        queue.done(key, None)
    rest = [queue.take() for _ in range(len(queue))]
    assert len(set(rest)) == len(rest) == 4002 - 6


def test_a_change_during_work_is_the_newest_afterwards() -> None:
    queue = WorkQueue(QueueClock(), MANY)
    queue.add(A, changed_at=1.0)
    assert queue.take() == A
    queue.add(B)
    queue.add(A, changed_at=2.0)
    assert queue.take() == B, "A is with a worker"
    queue.add(B, changed_at=1.0)
    queue.done(B, None)
    queue.done(A, 300)
    assert queue.take() == A
    assert queue.take() == B


def test_waiting_for_a_time_ends_with_it() -> None:
    queue = WorkQueue(time.monotonic, MANY)
    queue.add(A, 0.05)
    queue.add(B, 300)
    assert queue.take() == A


def test_the_syncs_of_a_namespace_delay_those_of_another_by_one_turn() -> None:
    """However many of them are due, and for however long."""
    clock = QueueClock()
    queue = WorkQueue(clock, MANY)
    for n in range(1000):
        queue.add(("tenant", f"s{n:03}"))
    clock.now = 60.0
    for due in (A, B, ("other", "c")):
        queue.add(due)
    taken = [queue.take() for _ in range(7)]
    assert taken == [
        ("tenant", "s000"), A, ("other", "c"), ("tenant", "s001"), B, ("tenant", "s002"), ("tenant", "s003")
    ]  # fmt: skip
    for key in taken:
        assert key is not None
        queue.done(key, 0.0)
    assert {queue.take() for _ in range(3)} == {("tenant", "s004"), A, ("other", "c")}


def test_a_namespace_has_half_of_the_workers_at_most() -> None:
    """For its changes, too, however many are due before those of others."""
    queue = WorkQueue(QueueClock(), 4)
    for n in range(10):
        queue.add(("evil", f"s{n}"), changed_at=float(n))
    assert {queue.take(), queue.take()} <= {("evil", f"s{n}") for n in range(10)}
    queue.add(("lake", "shop"))
    queue.add(("other", "shop"), changed_at=-1.0)
    assert {queue.take(), queue.take()} == {("lake", "shop"), ("other", "shop")}
    queue.add(("lake", "third"))
    queue.done(("lake", "shop"), None)
    threading.Timer(0.01, queue.done, (("other", "shop"), None)).start()
    assert queue.take() == ("lake", "third")


def test_the_only_namespace_has_all_workers() -> None:
    """And has them again when the last key of the others is gone, without a further event."""
    queue = WorkQueue(QueueClock(), 4)
    queue.add(A)
    queue.add(("lake", "shop"))
    assert {queue.take(), queue.take()} == {A, ("lake", "shop")}
    for n in range(9):
        queue.add(("ns", f"s{n}"), changed_at=float(n))
    with ThreadPoolExecutor(3) as pool:
        taken = [pool.submit(queue.take) for _ in range(3)]
        queue.done(("lake", "shop"), None)
        try:
            assert len({future.result(600) for future in taken}) == 3
        finally:
            queue.close()


def test_half_of_the_workers_wait_for_a_namespace_whose_syncs_are_at_rest() -> None:
    queue = WorkQueue(QueueClock(), 4)
    queue.add(("lake", "shop"))
    queue.done(queue.take() or A, 300)
    for n in range(9):
        queue.add(("evil", f"s{n}"))
    assert {queue.take(), queue.take()} == {("evil", "s0"), ("evil", "s1")}
    threading.Timer(0.01, queue.add, (("lake", "shop"),)).start()
    assert queue.take() == ("lake", "shop")


def test_of_any_number_of_namespaces_the_one_that_used_the_least_time_is_next() -> None:
    """Ten whose reconciliations take 10 s, and which are due for longest."""
    clock = QueueClock()
    queue = WorkQueue(clock, 4)
    for n in range(10):
        queue.add((f"evil{n}", "a"))
        queue.add((f"evil{n}", "b"))
    queue.add(A)
    for _ in range(21):
        key = queue.take() or A
        clock.now += 0.1 if key == A else 10.0
        queue.done(key, 1.0)
    clock.now += 1.0
    evil = [queue.take() or A for _ in range(4)]
    assert A in evil
    queue.done(A, 1.0)
    evil.remove(A)
    evil.append(queue.take() or A)
    clock.now += 10.0
    queue.done(evil.pop(), 0.0)
    assert queue.take() == A


class HashedName(str):
    """Counts how often names are hashed."""

    __slots__ = ()
    hashes: ClassVar[int] = 0

    def __hash__(self) -> int:
        HashedName.hashes += 1
        return super().__hash__()


def test_a_choice_among_thousands_of_namespaces_is_cheap() -> None:
    """As at a start, where each has a change; one of them has all the workers it may have."""
    queue = WorkQueue(QueueClock(), 4)
    for n in range(2000):
        queue.add((HashedName(f"ns{n}"), "a"), changed_at=float(n))
    for n in range(2000):
        queue.add((HashedName("evil"), f"s{n:04}"), changed_at=1e9 + n)
    first = [key for _ in range(4) if (key := queue.take())]
    assert [namespace for namespace, _ in first].count("evil") == 2
    for key in first:
        if key[0] != "evil":
            queue.done(key, None)
    HashedName.hashes = 0
    for _ in range(1000):
        key = queue.take()
        assert key is not None
        assert key[0] != "evil"
        queue.done(key, None)
    assert HashedName.hashes < 1000 * 50


def test_one_worker_serves_all() -> None:
    queue = WorkQueue(QueueClock(), 1)
    queue.add(A)
    assert queue.take() == A
    queue.done(A, None)
    queue.add(("other", "b"))
    assert queue.take() == ("other", "b")
