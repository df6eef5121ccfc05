"""The queue loses no change, gives a key to one worker at a time, and keeps what is due in order of
time."""

from __future__ import annotations

from cdcsync_operator.cluster.work_queue import WorkQueue

A, B = ("ns", "a"), ("ns", "b")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_is_due_once_and_the_earliest_time_counts() -> None:
    clock = Clock()
    queue = WorkQueue(clock)
    queue.add(A, 10)
    queue.add(B)
    queue.add(A)
    queue.add(A, 20)
    assert {queue.take(), queue.take()} == {A, B}
    assert len(queue) == 2, "both are in hand"


def test_news_during_work_makes_it_due_again_and_not_before() -> None:
    queue = WorkQueue(Clock())
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    queue.add(B)
    assert queue.take() == B, "A is with a worker"
    queue.done(A, 300)
    assert queue.take() == A


def test_a_closed_queue_gives_nothing() -> None:
    queue = WorkQueue(Clock())
    queue.add(A)
    queue.close()
    assert queue.take() is None
