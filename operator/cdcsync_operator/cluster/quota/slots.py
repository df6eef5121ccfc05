"""Slots for concurrent work, shared fairly by any number of namespaces.

Why it is right: a namespace takes its first slot while any is free, and a further one while more
than it holds, and one besides, stay free (dynamic threshold). So one alone leaves half of them, and
several, whose work never ends, leave one at least while they are fewer than the slots. Where there
are as many of them or more, the order decides: who has used the least time lately is next
(decay-usage scheduling). So one that uses little waits for the first slot that gets free, thus for
one work, which is bounded, however many others have used more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

#: seconds in which used time comes to count half
_HALF_LIFE = 60.0


class Slots:
    """Not thread safe: its user has a lock. `clock` counts seconds and never goes back."""

    def __init__(self, number: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._free = number
        self._held: Counter[str] = Counter()
        #: by namespace, the logarithm of the time that it has used, as it counted at time 0: of two
        #: namespaces the order does not change with time
        self._used: dict[str, float] = {}

    def may_take(self, namespace: str) -> bool:
        held = self._held[namespace]
        return self._free > held + (held > 0)

    def held(self, namespace: str) -> int:
        return self._held[namespace]

    def used(self, namespace: str) -> float:
        """A measure of the time that it has used lately: who has the least is next."""
        return self._used.get(namespace, -math.inf)

    def take(self, namespace: str) -> None:
        self._held[namespace] += 1
        self._free -= 1

    def give_back(self, namespace: str, seconds: float) -> None:
        """A slot that was held for so long."""
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._free += 1
        past = self._clock() / _HALF_LIFE
        used = seconds + 2 ** (self.used(namespace) - past)
        if used > 0:
            self._used[namespace] = math.log2(used) + past
