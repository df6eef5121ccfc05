"""Reports of a driver in a pod: all reports so far, in the ConfigMaps that belong to this run
alone.

Why it is right: what is written is the sum of all reports (for each table its newest entry, with
the number of the report that it came with), so a write that is lost, late or repeated changes
nothing in the end. A change that a decision hangs on (a phase, an epoch, an error, the end) is
written at once, mere progress every few seconds. A run that was cleared away has no ConfigMaps and
no rights any more: then this driver has no controller, and drains (a lack of rights must last a
while, because an API server that has just started knows of none). While the API server or the
operator is away the driver works on.

Entries are long where the source's GTID set names many servers. When a shard would be too large,
all shards hold half as many tables from then on. Tables move to higher numbers only, and those are
written first: so no entry is ever in none of them, and who reads them in order ends with the
newest. What does not fit even so ends the run with a reason.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any, Unpack

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.runs.report import ReportParts
from cdcsync_core.runs.run import ExitCode
from cdcsync_kube.client import Api, ApiError
from cdcsync_spark.run.progress import ControllerGone

PROGRESS_SECONDS = 5.0
REFUSED_SECONDS = 60.0
#: bytes of a shard: half of what a ConfigMap may hold
SHARD_BYTES = 2**19
#: that the operator's list of tables may have in a shard beside it, as
#: `cdcsync_operator.cluster.objects.run_objects.LIST_BYTES`; a test holds them equal
LIST_BYTES = 2**18
#: as `cdcsync_operator.cluster.objects.run_objects.LEAST_REPORT_TABLES`: there are shards for so
#: few tables each; a test holds them equal
LEAST_TABLES = 62
_TOO_LARGE = (http.client.REQUEST_ENTITY_TOO_LARGE, http.client.UNPROCESSABLE_ENTITY)
#: what of a table's entry is more than progress
_SIGNIFICANT = ("phase", "reason", "generation")


class PodReporter:
    """`tables` are the run's, in order; shard N of the report holds those from N * `per_shard` on,
    or of a half, a quarter of it.

    `clock` counts seconds and measures pauses; `wall` gives unix seconds, for reports.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        run: str,
        tables: list[str],
        per_shard: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._clock, self._wall, self._per_shard = api, clock, wall, per_shard
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{run}-report-"
        self._tables = tables
        self._index = {name: i for i, name in enumerate(tables)}
        #: of the operator's list of tables, in shard 0
        self._own_bytes = min(LIST_BYTES, sum(len(name.encode()) + 10 for name in tables))
        self._lock = threading.Lock()
        self._head: dict[str, Any] = {"number": 0}
        self._entries: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()
        self._written_at = float("-inf")
        self._urgent = False
        self._refused_since: float | None = None
        self._too_large: CdcError | None = None

    def report(self, **parts: Unpack[ReportParts]) -> None:
        """The parts of `Report`; raises ControllerGone, and SpecInvalid where they are too large
        for the API server."""
        with self._lock:
            self._take(parts)
            if self._urgent or self._clock() - self._written_at >= PROGRESS_SECONDS:
                self._write(retry="exit" in parts)

    def _take(self, parts: ReportParts) -> None:
        number = self._head["number"] + 1
        # a lag of None means that it is not known; None of another part, that it is unchanged
        self._head |= {k: v for k, v in parts.items() if k != "tables" and (v is not None or k == "lag_seconds")}
        self._head |= {"number": number, "at": self._wall()}
        self._urgent |= bool(parts.keys() & {"epoch", "exit"})
        for entry in parts.get("tables", []):
            name = entry["name"]
            before = self._entries.get(name, {})
            self._urgent |= any(entry.get(k, before.get(k)) != before.get(k) for k in _SIGNIFICANT)
            self._entries[name] = before | entry | {"number": number}
            self._changed.add(name)

    def _write(self, *, retry: bool) -> None:
        """Tables first: a head whose number is known stands for all that came with it."""
        attempts = 6 if retry else 1
        for attempt in range(attempts):
            try:
                self._send()
                return
            except ApiError as error:
                if error.gone or self._is_refused_for_good(error):
                    raise ControllerGone("this run's report was cleared away") from error
                if error.status in _TOO_LARGE:
                    self._end_by(error)
                if attempt + 1 < attempts:
                    time.sleep(0.5 * 2**attempt)
        self._written_at = self._clock()  # not before the next turn of mere progress

    def _is_refused_for_good(self, error: ApiError) -> bool:
        if error.status != http.client.FORBIDDEN:
            return False
        if self._refused_since is None:
            self._refused_since = self._clock()
        return self._clock() - self._refused_since >= REFUSED_SECONDS

    def _end_by(self, error: ApiError) -> None:
        """From now on only the exit is reported, with this error unless it has one of its own."""
        found = f"the API server does not take a report of {len(self._entries)} tables: {error.message}"
        self._too_large = fail(Reason.SPEC_INVALID, found, remedy="capture fewer tables by one CdcSync")
        last = self._head.get("exit")
        if last is None:
            raise self._too_large
        if last["code"] == ExitCode.DONE:
            words = {"reason": self._too_large.reason.value, "message": self._too_large.message}
            self._head["exit"] = last | words | {"code": int(ExitCode.USER_MUST_ACT), "remedy": self._too_large.remedy}

    def _send(self) -> None:
        texts = {} if self._too_large else self._texts()
        for number in sorted(texts.keys() - {0}, reverse=True):
            self._api.merge(f"{self._path}{number}", {"data": {"tables": texts[number]}})
        data = {"head": json.dumps(self._head, ensure_ascii=False)} | ({"tables": texts[0]} if texts else {})
        self._api.merge(f"{self._path}0", {"data": data})
        self._changed, self._urgent, self._written_at = set(), False, self._clock()
        self._refused_since = None

    def _texts(self) -> dict[int, str]:
        """The shards that changed, and the first one."""
        while True:
            numbers = {self._index[name] // self._per_shard for name in self._changed} | {0}
            texts = {number: json.dumps({"entries": self._shard(number)}, ensure_ascii=False) for number in numbers}
            sizes = (len(text.encode()) + (0 if number else self._own_bytes) for number, text in texts.items())
            if self._per_shard // 2 < LEAST_TABLES or max(sizes) <= SHARD_BYTES:
                return texts
            self._per_shard //= 2
            self._changed = set(self._entries)

    def _shard(self, number: int) -> list[dict[str, Any]]:
        first = number * self._per_shard
        return [e for name in self._tables[first : first + self._per_shard] if (e := self._entries.get(name))]
