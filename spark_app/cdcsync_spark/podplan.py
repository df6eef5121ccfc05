"""The chunk plan of a run in a pod: ConfigMaps, as they appear, to the files that `planfeed` reads.

Why it is right: a ConfigMap of a plan never changes and they are numbered, so each is fetched once and in order; a file
appears whole. When the API server is away the reading goes on with what is here.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from pathlib import Path

from cdcsync_core.run import PlanShard
from cdcsync_kube.client import Api, ApiError

_POLL_SECONDS = 0.5


class PlanMirror(threading.Thread):
    """Fetches the plan of `run` into `folder` until its end."""

    def __init__(self, api: Api, namespace: str, run: str, folder: Path) -> None:
        super().__init__(name="plan mirror", daemon=True)
        self._api, self._folder = api, folder
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{run}-plan-"
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                found = self._api.get(f"{self._path}{number}")
            except ApiError:
                self._stopping.wait(_POLL_SECONDS)
                continue
            if self._take(gzip.decompress(base64.b64decode(found["binaryData"]["plan.json.gz"]))):
                return
            number += 1

    def _take(self, content: bytes) -> bool:
        """Writes the shards; whether these were the last."""
        plan = json.loads(content)
        for entry in plan["shards"]:
            shard = PlanShard.from_json(json.dumps(entry["shard"]))
            path = self._folder / PlanShard.filename(entry["index"], shard.number)
            temporary = path.with_suffix(".new")
            temporary.write_text(shard.to_json())
            temporary.replace(path)
        return bool(plan["last"])
