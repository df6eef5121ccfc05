"""Which sync to reconcile next: keys with the time when they are due, each with one worker at a
time.

Why it is right: a key that is asked for while it is worked on is due again when that work is done,
so no change is lost and no key is worked on twice at once; adding a key often costs nothing,
because a key is due once. Of a backlog, as at a start, the newest changes of specs and the keys
that are due for longest are taken in turns: so a person's change does not wait for thousands of
syncs at rest, and who changes a spec again and again takes half of the turns at most. Namespaces
with due keys take turns, in the order of the time that they used, so the syncs of one, however many
are due, delay those of another by one. While others have keys, due now or later, a namespace takes
a worker by the rules of `slots` only: so tenants whose objects make reconciliations slow, whatever
they are and however many, leave workers to the others.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable

from cdcsync_operator.cluster.quota.slots import Slots

Key = tuple[str, str]


class WorkQueue:
    """`clock` counts seconds and never goes back; `workers` take keys."""

    def __init__(self, clock: Callable[[], float], workers: int) -> None:
        self._clock, self._workers = clock, Slots(workers, clock)
        self._changed = threading.Condition()
        #: by namespace, those that are due, now or later, or taken
        self._keys: dict[str, set[Key]] = {}
        self._due: dict[Key, float] = {}
        self._changed_at: dict[Key, float] = {}
        #: entries that `_due` and `_changed_at` do not have any more are left over
        self._by_time: list[tuple[float, Key]] = []
        #: by namespace, those whose time has come; and the namespaces by the time that they used
        #: before they came here, and of equal ones the one that came first
        self._ready: dict[str, deque[tuple[float, Key]]] = {}
        self._turns: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()
        #: by namespace, the newest one first; and those that are the first ones, or were
        self._newest: dict[str, list[tuple[float, Key]]] = {}
        self._heads: list[tuple[float, Key]] = []
        #: when they were taken
        self._taken: dict[Key, float] = {}
        self._newest_next = True
        self._closed = False

    def add(self, key: Key, delay: float = 0.0, changed_at: float | None = None) -> None:
        """Due in `delay` seconds, or earlier if it is due earlier already. `changed_at` is when its
        spec changed, where that is why."""
        with self._changed:
            self._keys.setdefault(key[0], set()).add(key)
            at = self._clock() + delay
            if at < self._due.get(key, float("inf")):
                self._due[key] = at
                heapq.heappush(self._by_time, (at, key))
            if changed_at is not None and changed_at > self._changed_at.get(key, float("-inf")):
                self._changed_at[key] = changed_at
                self._push_newest(key)
            self._changed.notify()

    def take(self) -> Key | None:
        """A key that is due, when there is one; None when the queue is closed."""
        with self._changed:
            while not self._closed:
                key = self._next()
                if key is not None:
                    del self._due[key]
                    self._changed_at.pop(key, None)
                    self._taken[key] = self._clock()
                    self._workers.take(key[0])
                    return key
                self._changed.wait(self._by_time[0][0] - self._clock() if self._by_time else None)
            return None

    def done(self, key: Key, again_in: float | None) -> None:
        """Work on a taken key has ended; it is due again in so many seconds, None: when it is
        added."""
        with self._changed:
            self._workers.give_back(key[0], self._clock() - self._taken.pop(key))
            if key in self._due:
                heapq.heappush(self._by_time, (self._due[key], key))
            if key in self._changed_at:
                self._push_newest(key)
            if again_in is not None:
                self.add(key, again_in)
            elif key not in self._due:
                self._remove(key)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:  # `done` moves a key from one to the other
            return len(self._due) + len(self._taken)

    def _remove(self, key: Key) -> None:
        self._keys[key[0]].discard(key)
        if not self._keys[key[0]]:
            del self._keys[key[0]]

    def _next(self) -> Key | None:
        if self._newest_next:
            key = self._newest_change() or self._due_for_longest()
        else:
            key = self._due_for_longest() or self._newest_change()
        if key is not None:
            self._newest_next = not self._newest_next
        return key

    def _may_take(self, namespace: str) -> bool:
        return len(self._keys) == 1 or self._workers.may_take(namespace)

    def _due_for_longest(self) -> Key | None:
        """The key that is due for longest in the first namespace, by turns, that may have a
        worker. Few may not: each of them has one."""
        self._make_ready()
        passed, chosen = list[tuple[float, int, str]](), None
        while self._turns and chosen is None:
            turn = heapq.heappop(self._turns)
            used, _, namespace = turn
            key = self._first_ready(namespace)
            if key is None:
                del self._ready[namespace]
            elif self._workers.used(namespace) > used:
                self._push_turn(namespace)
            elif self._may_take(namespace):
                chosen = key
                self._push_turn(namespace)
            else:
                passed.append(turn)
        for turn in passed:
            heapq.heappush(self._turns, turn)
        return chosen

    def _push_turn(self, namespace: str) -> None:
        heapq.heappush(self._turns, (self._workers.used(namespace), next(self._numbers), namespace))

    def _first_ready(self, namespace: str) -> Key | None:
        ready = self._ready[namespace]
        while ready:
            at, key = ready[0]
            if self._due.get(key) == at and key not in self._taken:
                return key
            ready.popleft()
        return None

    def _make_ready(self) -> None:
        while self._by_time and self._by_time[0][0] <= self._clock():
            at, key = heapq.heappop(self._by_time)
            if self._due.get(key) != at:
                continue
            if key[0] not in self._ready:
                self._ready[key[0]] = deque()
                self._push_turn(key[0])
            self._ready[key[0]].append((at, key))

    def _push_newest(self, key: Key) -> None:
        newest = self._newest.setdefault(key[0], [])
        heapq.heappush(newest, (-self._changed_at[key], key))
        if newest[0][1] == key:
            heapq.heappush(self._heads, newest[0])

    def _newest_change(self) -> Key | None:
        """The newest change of a namespace that may have a worker. Few may not: each of them has
        one."""
        heads, chosen = set[tuple[float, Key]](), None
        while self._heads and chosen is None:
            head = heapq.heappop(self._heads)
            if self._is_head(head):
                heads.add(head)
                chosen = head[1] if self._may_take(head[1][0]) else None
        for head in heads:
            heapq.heappush(self._heads, head)
        return chosen

    def _is_head(self, head: tuple[float, Key]) -> bool:
        """Whether it is the newest change of its namespace; what is no change any more makes room
        for the next one."""
        changed, key = head
        newest = self._newest.get(key[0])
        if newest is None or newest[0] != head:
            return False
        if self._changed_at.get(key) == -changed and key not in self._taken:
            return True
        heapq.heappop(newest)
        if newest:
            heapq.heappush(self._heads, newest[0])
        else:
            del self._newest[key[0]]
        return False
