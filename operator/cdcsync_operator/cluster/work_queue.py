"""Which sync to reconcile next: keys with the time when they are due, each with one worker at a
time.

Why it is right: a key that is asked for while it is worked on is due again when that work is done,
so no change is lost and no key is worked on twice at once; adding a key often costs nothing,
because a key is due once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Key = tuple[str, str]


class WorkQueue:
    """`clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[Key, float] = {}
        self._taken: set[Key] = set()
        self._closed = False

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Due in `delay` seconds, or earlier if it is due earlier already."""
        with self._changed:
            at = self._clock() + delay
            self._due[key] = min(at, self._due.get(key, at))
            self._changed.notify()

    def take(self) -> Key | None:
        """The key that is due for longest, when there is one; None when the queue is closed."""
        with self._changed:
            while not self._closed:
                free = [(at, key) for key, at in self._due.items() if key not in self._taken]
                at, key = min(free, default=(None, None))
                now = self._clock()
                if key is not None and at is not None and at <= now:
                    del self._due[key]
                    self._taken.add(key)
                    return key
                self._changed.wait(None if at is None else at - now)
            return None

    def done(self, key: Key, again_in: float | None) -> None:
        """Work on a taken key has ended; it is due again in so many seconds, None: when it is
        added."""
        with self._changed:
            self._taken.discard(key)
            self._changed.notify()
        if again_in is not None:
            self.add(key, again_in)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._due) + len(self._taken)
