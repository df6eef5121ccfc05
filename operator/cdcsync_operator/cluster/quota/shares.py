"""Fair shares of concurrent work: who waits gets a slot by the rules of `slots`.

Why it is right: every slot is held for a bounded time. A slot that gets free is given to a
namespace, of those that hold the fewest to the one that has used the least time lately, and wakes
one thread: the thousands of syncs of one namespace that wait cost no time of the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from cdcsync_operator.cluster.quota.slots import Slots


class Shares:
    """So many slots, for which threads wait."""

    def __init__(self, slots: int = 8) -> None:
        self._slots = Slots(slots, time.monotonic)
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
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._slots.give_back(namespace, time.monotonic() - began)
                self._admit()

    def _admit(self) -> None:
        """Gives the slots that are free; a namespace that gets one goes behind the others."""
        while (namespace := self._next()) is not None:
            turns = self._waiting.pop(namespace)
            self._slots.take(namespace)
            turns.popleft().set()
            if turns:
                self._waiting[namespace] = turns

    def _next(self) -> str | None:
        may = (namespace for namespace in self._waiting if self._slots.may_take(namespace))
        return min(may, key=lambda namespace: (self._slots.held(namespace), self._slots.used(namespace)), default=None)
