"""The chunk plan of a run in a pod: ConfigMaps, as they appear, to the files that
`snapshot.plan_reader` reads.

Why it is right: a ConfigMap of a plan never changes and they are numbered, so each is fetched once
and in order; a file appears whole. When the API server is away the reading goes on with what is
here. A plan that cannot be read never can: then the wait for the rest ends with an error.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from pathlib import Path
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.runs.run import PlanShard
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_spark.run.tracebacks import log_traceback

POLL_SECONDS = 0.5


class PlanMirror(threading.Thread):
    """Fetches the plan of `run` into `folder` until its end; `poll` seconds pass before it asks
    again for what is not there."""

    def __init__(self, api: Api, namespace: str, run: str, folder: Path, poll: float = POLL_SECONDS) -> None:
        super().__init__(name="plan mirror", daemon=True)
        self._api, self._folder, self._poll = api, folder, poll
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{run}-plan-"
        self._stopping = threading.Event()
        self._error: CdcError | None = None

    def stop(self) -> None:
        self._stopping.set()

    def check(self) -> None:
        """Raises InternalError where the rest of the plan will not come."""
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        try:
            self._fetch_all()
        except Exception as e:  # noqa: BLE001 (a thread that died silently would look like a plan that is still being made)
            log_traceback()
            found = f"the plan of this run cannot be read: {type(e).__name__}: {str(e)[:300]}"
            self._error = fail(
                Reason.INTERNAL_ERROR, found, remedy="see the driver's log; the next run gets a plan of its own"
            )

    def _fetch_all(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                plan = _content(self._api.get(f"{self._path}{number}"))
                self._write(plan)
            except (ApiError, OSError):  # a disk that is full may have space again
                self._stopping.wait(self._poll)
                continue
            if plan["last"]:
                return
            number += 1

    def _write(self, plan: dict[str, Any]) -> None:
        for entry in plan["shards"]:
            shard = PlanShard.from_json(json.dumps(entry["shard"]))
            path = self._folder / PlanShard.filename(entry["index"], shard.number)
            temporary = path.with_suffix(".new")
            temporary.write_text(shard.to_json())
            temporary.replace(path)


def _content(config_map: Object) -> dict[str, Any]:
    compressed = base64.b64decode(config_map["binaryData"]["plan.json.gz"])
    try:
        content: dict[str, Any] = json.loads(gzip.decompress(compressed))
    except gzip.BadGzipFile as e:  # an OSError that no retry fixes
        raise ValueError(str(e)) from e
    return content
