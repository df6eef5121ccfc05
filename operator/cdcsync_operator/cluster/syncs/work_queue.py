"""Which sync to reconcile next: keys with the time when they are due, each with one worker at a
time.

Why it is right: a key that is asked for while it is worked on is due again when that work is done,
so no change is lost and no key is worked on twice at once; adding a key often costs nothing,
because a key is due once. Of a backlog, as at a start, the newest changes of specs and the keys
that are due for longest are taken in turns: so a person's change does not wait for thousands of
syncs at rest, and who changes a spec again and again takes half of the turns at most. Namespaces
with due keys take turns, so the syncs of one, however many are due, delay those of another by one.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable

Key = tuple[str, str]


class WorkQueue:
    """`clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[Key, float] = {}
        self._changed_at: dict[Key, float] = {}
        #: entries that `_due` and `_changed_at` do not have any more are left over
        self._by_time: list[tuple[float, Key]] = []
        #: by namespace, those whose time has come; and the namespaces, the next one first
        self._ready: dict[str, deque[tuple[float, Key]]] = {}
        self._turns: deque[str] = deque()
        self._newest: list[tuple[float, Key]] = []
        self._taken: set[Key] = set()
        self._newest_next = True
        self._closed = False

    def add(self, key: Key, delay: float = 0.0, changed_at: float | None = None) -> None:
        """Due in `delay` seconds, or earlier if it is due earlier already. `changed_at` is when its
        spec changed, where that is why."""
        with self._changed:
            at = self._clock() + delay
            if at < self._due.get(key, float("inf")):
                self._due[key] = at
                heapq.heappush(self._by_time, (at, key))
            if changed_at is not None and changed_at > self._changed_at.get(key, float("-inf")):
                self._changed_at[key] = changed_at
                heapq.heappush(self._newest, (-changed_at, key))
            self._changed.notify()

    def take(self) -> Key | None:
        """A key that is due, when there is one; None when the queue is closed."""
        with self._changed:
            while not self._closed:
                key = self._next()
                if key is not None:
                    del self._due[key]
                    self._changed_at.pop(key, None)
                    self._taken.add(key)
                    return key
                self._changed.wait(self._by_time[0][0] - self._clock() if self._by_time else None)
            return None

    def done(self, key: Key, again_in: float | None) -> None:
        """Work on a taken key has ended; it is due again in so many seconds, None: when it is
        added."""
        with self._changed:
            self._taken.discard(key)
            if key in self._due:
                heapq.heappush(self._by_time, (self._due[key], key))
            if key in self._changed_at:
                heapq.heappush(self._newest, (-self._changed_at[key], key))
            self._changed.notify()
        if again_in is not None:
            self.add(key, again_in)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._due) + len(self._taken)

    def _next(self) -> Key | None:
        longest = self._due_for_longest()
        newest = self._newest_change()
        key = (newest or longest) if self._newest_next else (longest or newest)
        if key is not None:
            self._newest_next = not self._newest_next
        if key is not None and key == longest:
            self._turns.rotate(-1)
        return key

    def _due_for_longest(self) -> Key | None:
        """The key that is due for longest in the namespace whose turn it is."""
        self._make_ready()
        while self._turns:
            ready = self._ready[self._turns[0]]
            while ready:
                at, key = ready[0]
                if self._due.get(key) == at and key not in self._taken:
                    return key
                ready.popleft()
            del self._ready[self._turns.popleft()]
        return None

    def _make_ready(self) -> None:
        while self._by_time and self._by_time[0][0] <= self._clock():
            at, key = heapq.heappop(self._by_time)
            if self._due.get(key) != at:
                continue
            if key[0] not in self._ready:
                self._ready[key[0]] = deque()
                self._turns.append(key[0])
            self._ready[key[0]].append((at, key))

    def _newest_change(self) -> Key | None:
        while self._newest:
            changed, key = self._newest[0]
            if self._changed_at.get(key) == -changed and key not in self._taken:
                return key
            heapq.heappop(self._newest)
        return None
