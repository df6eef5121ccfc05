"""Threads in which work waits for sources: of each namespace a bounded number.

Why it exists: each sync asks its source in a thread, and a source may be silent. A namespace with
thousands of such syncs would take all threads that the operator's pod may have, and no call to the
API server could begin. Why it is right: more threads of a namespace than it may have slots (see
`shares`) would only wait for these; work that waits here is begun in the order in which it came.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import structlog

_log = structlog.get_logger()
#: more than the slots of all kinds that one namespace can hold at once
MOST = 64


class NamespaceThreads:
    """At most `most` of a namespace. Thread safe."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._lock = threading.Lock()

    def start(self, namespace: str, work: Callable[[], None]) -> None:
        """Begins the work in a thread, or leaves it for the next one of the namespace that is done.
        Raises RuntimeError where there can be no further thread."""
        with self._lock:
            running = self._running.get(namespace, 0)
            if running >= self._most:
                self._waiting.setdefault(namespace, deque()).append(work)
                return
            threading.Thread(target=self._run, args=(namespace, work), name="source", daemon=True).start()
            self._running[namespace] = running + 1

    def _run(self, namespace: str, work: Callable[[], None] | None) -> None:
        while work is not None:
            try:
                work()
            except Exception:  # noqa: BLE001 (other work waits for this thread)
                _log.exception("work for a source failed", namespace=namespace)
            work = self._next(namespace)

    def _next(self, namespace: str) -> Callable[[], None] | None:
        with self._lock:
            waiting = self._waiting.get(namespace)
            if waiting:
                return waiting.popleft()
            self._waiting.pop(namespace, None)
            self._running[namespace] -= 1
            if not self._running[namespace]:
                del self._running[namespace]
            return None
