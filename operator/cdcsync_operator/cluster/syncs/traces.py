"""Which syncs have anything of a run, asked once for all of them: for an operator's start.

Why it exists: what there is of a sync's runs takes two lists, of thousands of syncs at rest some
minutes. Why it is right: it is asked under the lease, when no other operator makes runs, and
counts for one reconciliation of each sync only, of one whose status names no run: what a status
does not name is cleared away, by the next reconciliation at the latest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from cdcsync_kube.client import Api, ApiError
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL, SYNC_LABEL
from cdcsync_operator.cluster.syncs.work_queue import Key


class Traces:
    """Looks for traces in the namespaces that `namespaces()` names at the start; "" stands for all.
    Thread safe."""

    def __init__(self, api: Api, namespaces: Callable[[], tuple[str, ...]]) -> None:
        self._api, self._namespaces = api, namespaces
        self._lock = threading.Lock()
        self._found: frozenset[Key] | None = None
        self._met: set[Key] = set()
        self._asked: tuple[str, ...] = ()
        self._silent: set[str] = set()

    def is_untouched(self, key: Key) -> bool:
        """Whether nothing of a run of this sync was there at the start; False when it is asked
        again, and in a namespace that was not asked, or did not answer, because it is gone or its
        rights are."""
        with self._lock:
            if key in self._met:
                return False
            self._met.add(key)
            if self._found is None:
                self._found = frozenset(self._all())
            answered = {key[0], ""} & set(self._asked) and not {key[0], ""} & self._silent
            return bool(answered) and key not in self._found

    def _all(self) -> Iterator[Key]:
        selector = f"{SYNC_LABEL},{PART_LABEL} in (driver,report)"
        self._asked = self._namespaces()
        for namespace in self._asked:
            base = f"/api/v1/namespaces/{namespace}" if namespace else "/api/v1"
            try:
                for kind in ("pods", "configmaps"):
                    for about in self._api.metadata(f"{base}/{kind}", labelSelector=selector):
                        yield about["namespace"], about["labels"][SYNC_LABEL]
            except ApiError:
                self._silent.add(namespace)
