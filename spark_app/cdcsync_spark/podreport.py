"""Reports of a driver in a pod: what was said so far, in the ConfigMaps that belong to this run alone.

Why it is right: what is written is the whole of what was said (for each table its newest entry, with the number of the report that it
came with), so a write that is lost, late or repeated changes nothing in the end. News that a decision hangs on (a phase, an epoch,
an error, the end) is written at once, mere progress every few seconds. A run that was cleared away has no ConfigMaps and no rights any
more: then this driver has no controller, and drains (a lack of rights must last a while, because an API server that has just started
knows of none). While the API server or the operator is away the driver works on.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from cdcsync_kube.client import Api, ApiError
from cdcsync_spark.progress import ControllerGone

PROGRESS_SECONDS = 5.0
REFUSED_SECONDS = 60.0
#: what of a table's entry is more than progress
_ESSENCE = ("phase", "reason", "nonce")


class PodReporter:
    """`tables` are the run's, in order; shard N of the report holds those from N * `per_shard` on."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        run: str,
        tables: list[str],
        per_shard: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._clock, self._per_shard = api, clock, per_shard
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{run}-report-"
        self._shard_of = {name: i // per_shard for i, name in enumerate(tables)}
        self._lock = threading.Lock()
        self._head: dict[str, Any] = {"number": 0}
        self._entries: dict[str, dict[str, Any]] = {}
        self._changed: set[int] = set()
        self._written_at = float("-inf")
        self._urgent = False
        self._refused_since: float | None = None

    def report(self, **parts: Any) -> None:
        """The parts of `Report`; raises ControllerGone."""
        with self._lock:
            self._take(parts)
            if self._urgent or self._clock() - self._written_at >= PROGRESS_SECONDS:
                self._write(patient="exit" in parts)

    def _take(self, parts: dict[str, Any]) -> None:
        number = self._head["number"] + 1
        self._head |= {k: v for k, v in parts.items() if k != "tables" and v is not None}
        self._head |= {"number": number, "at": self._clock()}
        self._urgent |= bool(parts.keys() & {"epoch", "exit"})
        for entry in parts.get("tables", []):
            name = entry["name"]
            before = self._entries.get(name, {})
            self._urgent |= any(entry.get(k, before.get(k)) != before.get(k) for k in _ESSENCE)
            self._entries[name] = before | entry | {"number": number}
            self._changed.add(self._shard_of[name])

    def _write(self, *, patient: bool) -> None:
        """Tables first: a head whose number is known stands for all that came with it."""
        attempts = 6 if patient else 1
        for attempt in range(attempts):
            try:
                self._send()
                return
            except ApiError as error:
                if error.gone or self._is_refused_for_good(error):
                    raise ControllerGone("this run's report was cleared away") from error
                if attempt + 1 < attempts:
                    time.sleep(0.5 * 2**attempt)
        self._written_at = self._clock()  # not before the next turn of mere progress

    def _is_refused_for_good(self, error: ApiError) -> bool:
        if error.status != http.client.FORBIDDEN:
            return False
        if self._refused_since is None:
            self._refused_since = self._clock()
        return self._clock() - self._refused_since >= REFUSED_SECONDS

    def _send(self) -> None:
        for shard in sorted(self._changed - {0}):
            self._api.merge(f"{self._path}{shard}", {"data": {"tables": self._shard(shard)}})
        data = {"head": json.dumps(self._head, ensure_ascii=False)}
        self._api.merge(f"{self._path}0", {"data": data | {"tables": self._shard(0)}})
        self._changed, self._urgent, self._written_at = set(), False, self._clock()
        self._refused_since = None

    def _shard(self, number: int) -> str:
        entries = [e for name, e in self._entries.items() if self._shard_of[name] == number]
        return json.dumps({"entries": entries}, ensure_ascii=False)
