"""Fair shares of concurrent work: slots for all, and a share of them for each namespace.

Why it is right: a namespace's first slots depend on nothing but the total, and beyond them it gets
only what leaves `reserved` slots to the others. So one whose work never ends leaves room; every
slot is held for a bounded time, so several such ones only slow the others down. A slot that gets
free goes to the namespace that holds the fewest, so however many syncs wait in namespaces that
hold some, one that holds none is next. It is chosen among namespaces, and wakes one thread: the
thousands of syncs of one namespace that wait cost no time of the process.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


def may_enter(held: Mapping[str, int], namespace: str, slots: int, own: int, reserved: int) -> bool:
    """`held` are the slots that each namespace has now."""
    free = slots - sum(held.values())
    if held.get(namespace, 0) < own:
        return free > 0
    return free > reserved


def next_namespace(waiting: Iterable[str], held: Mapping[str, int], slots: int, own: int, reserved: int) -> str | None:
    """The first one, of those that wait and may enter, that holds the fewest."""
    may = (namespace for namespace in waiting if may_enter(held, namespace, slots, own, reserved))
    return min(may, key=lambda namespace: held.get(namespace, 0), default=None)


class Shares:
    """`own` slots are each namespace's, more only while more than `reserved` are free."""

    def __init__(self, slots: int = 8, own: int = 2, reserved: int = 4) -> None:
        self._slots, self._own, self._reserved = slots, own, reserved
        self._held: Counter[str] = Counter()
        #: by namespace, the next one first, those that wait
        self._waiting: dict[str, deque[threading.Event]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def held(self, namespace: str) -> Iterator[None]:
        """Waits for a slot."""
        turn = threading.Event()
        with self._lock:
            self._waiting.setdefault(namespace, deque()).append(turn)
            self._admit()
        turn.wait()
        try:
            yield
        finally:
            with self._lock:
                self._held[namespace] -= 1
                self._held += Counter()
                self._admit()

    def _admit(self) -> None:
        """Gives the slots that are free; a namespace that gets one goes behind the others."""
        while (namespace := self._next()) is not None:
            turns = self._waiting.pop(namespace)
            turns.popleft().set()
            self._held[namespace] += 1
            if turns:
                self._waiting[namespace] = turns

    def _next(self) -> str | None:
        return next_namespace(self._waiting, self._held, self._slots, self._own, self._reserved)
