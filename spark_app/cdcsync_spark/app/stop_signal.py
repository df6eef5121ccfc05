"""What follows when the process is asked to end.

Why it exists: a signal's handler runs between any two steps of the main thread, which may hold the
very lock that the handler wants, and would then wait for itself. So the handler only puts a word
into a queue (`SimpleQueue.put` is reentrant), and a thread does the rest, which is started later
where a process forks before it has threads. Source:
https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable


class StopSignal:
    """Keeps each SIGTERM and SIGINT from when it is made, by the main thread; `call` starts the
    thread that acts on them."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._asked.put(None))

    def call(self, action: Callable[[], object]) -> None:
        """Calls `action` for each, in a thread."""

        def act() -> None:
            while True:
                self._asked.get()
                action()

        threading.Thread(target=act, name="stop signal", daemon=True).start()
