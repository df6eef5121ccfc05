"""What follows when the process is asked to end.

Why it exists: a signal's handler runs between any two steps of the main thread, which may hold the
very lock that the handler wants, and would then wait for itself. So the handler only puts a word
into a queue (`SimpleQueue.put` is reentrant), and a thread does the rest. Source:
https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable


def on_stop_signal(action: Callable[[], object]) -> None:
    """Calls `action` for each SIGTERM and SIGINT, in a thread. To be called by the main thread."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.put(None))

    def act() -> None:
        while True:
            asked.get()
            action()

    threading.Thread(target=act, name="stop signal", daemon=True).start()
