"""Fair shares of concurrent work: slots for all, and a share of them for each namespace.

Why it is right: a namespace's first slots depend on nothing but the total, and beyond them it gets
only what leaves `reserved` slots to the others. So one whose work never ends leaves room; every
slot is held for a bounded time, so several such ones only slow the others down.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def may_enter(held: Mapping[str, int], namespace: str, slots: int, own: int, reserved: int) -> bool:
    """`held` are the slots that each namespace has now."""
    free = slots - sum(held.values())
    if held.get(namespace, 0) < own:
        return free > 0
    return free > reserved


class Shares:
    """`own` slots are each namespace's, more only while more than `reserved` are free."""

    def __init__(self, slots: int = 8, own: int = 2, reserved: int = 4) -> None:
        self._slots, self._own, self._reserved = slots, own, reserved
        self._held: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def held(self, namespace: str) -> Iterator[None]:
        """Waits for a slot."""
        with self._changed:
            self._changed.wait_for(lambda: may_enter(self._held, namespace, self._slots, self._own, self._reserved))
            self._held[namespace] += 1
        try:
            yield
        finally:
            with self._changed:
                self._held[namespace] -= 1
                self._held += Counter()
                self._changed.notify_all()
