"""Which syncs have anything of a run, asked once for all of them: for an operator's start.

Why it exists: what there is of a sync's runs takes two lists, of thousands of syncs at rest some
minutes. Why it is right: it is asked under the lease, when no other operator makes runs, and
counts for one reconciliation of each sync only, of one whose status names no run: what a status
does not name is cleared away, by the next reconciliation at the latest.
"""

from __future__ import annotations

import threading

from cdcsync_kube.client import Api, ApiError
from cdcsync_operator.cluster.run_objects import PART_LABEL, SYNC_LABEL
from cdcsync_operator.cluster.work_queue import Key


class Traces:
    """Of all `namespaces`, none: of all that there are. Thread safe."""

    def __init__(self, api: Api, namespaces: tuple[str, ...]) -> None:
        self._api, self._namespaces = api, namespaces
        self._lock = threading.Lock()
        self._found: frozenset[Key] | None = None
        self._met: set[Key] = set()

    def is_untouched(self, key: Key) -> bool:
        """Whether nothing of a run of this sync was there at the start; False when it is asked
        again."""
        with self._lock:
            if key in self._met:
                return False
            self._met.add(key)
            if self._found is None:
                self._found = self._all()
            return self._found is not None and key not in self._found

    def _all(self) -> frozenset[Key] | None:
        """None where the API server does not say."""
        selector = f"{SYNC_LABEL},{PART_LABEL} in (driver,report)"
        bases = [f"/api/v1/namespaces/{n}" for n in self._namespaces] or ["/api/v1"]
        folders = [f"{base}/{kind}" for base in bases for kind in ("pods", "configmaps")]
        try:
            found = [about for folder in folders for about in self._api.metadata(folder, labelSelector=selector)]
        except ApiError:
            return None
        return frozenset((about["namespace"], about["labels"][SYNC_LABEL]) for about in found)
