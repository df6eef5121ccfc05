"""Fair shares of concurrent work: slots for all, and a share of them for each namespace.

Why it is right: a namespace's first slots depend on nothing but the total, and beyond them it gets
only what leaves `reserved` slots to the others. So one whose work never ends leaves room; every
slot is held for a bounded time, so several such ones only slow the others down. A slot that gets
free goes to the namespace that holds the fewest, so however many syncs wait in namespaces that
hold some, one that holds none is next.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


def may_enter(held: Mapping[str, int], namespace: str, slots: int, own: int, reserved: int) -> bool:
    """`held` are the slots that each namespace has now."""
    free = slots - sum(held.values())
    if held.get(namespace, 0) < own:
        return free > 0
    return free > reserved


@dataclass(frozen=True, eq=False)
class Waiter:
    """One request for a slot."""

    namespace: str


def next_waiter(
    waiting: Sequence[Waiter], held: Mapping[str, int], slots: int, own: int, reserved: int
) -> Waiter | None:
    """The first one, of those that wait and may enter, of the namespace that holds the fewest."""
    may = (w for w in waiting if may_enter(held, w.namespace, slots, own, reserved))
    return min(may, key=lambda w: held.get(w.namespace, 0), default=None)


class Shares:
    """`own` slots are each namespace's, more only while more than `reserved` are free."""

    def __init__(self, slots: int = 8, own: int = 2, reserved: int = 4) -> None:
        self._slots, self._own, self._reserved = slots, own, reserved
        self._held: Counter[str] = Counter()
        self._waiting: list[Waiter] = []
        self._changed = threading.Condition()

    @contextmanager
    def held(self, namespace: str) -> Iterator[None]:
        """Waits for a slot."""
        with self._changed:
            self._wait(Waiter(namespace))
            self._held[namespace] += 1
            self._changed.notify_all()  # the next one may enter, too
        try:
            yield
        finally:
            with self._changed:
                self._held[namespace] -= 1
                self._held += Counter()
                self._changed.notify_all()

    def _wait(self, waiter: Waiter) -> None:
        self._waiting.append(waiter)
        try:
            self._changed.wait_for(lambda: self._next() is waiter)
        finally:
            self._waiting.remove(waiter)

    def _next(self) -> Waiter | None:
        return next_waiter(self._waiting, self._held, self._slots, self._own, self._reserved)
