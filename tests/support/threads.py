"""What a test does beside itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def repeated(work: Callable[[], bool]) -> Iterator[list[None]]:
    """Calls `work` in a thread again and again; how often it returned True is the list's length.
    What it raises is raised at the end."""
    ending, done = threading.Event(), list[None]()

    def run() -> None:
        while not ending.wait(0.001):
            if work():
                done.append(None)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        try:
            yield done
        finally:
            ending.set()
        running.result()
