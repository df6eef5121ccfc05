"""Which fields of the spec a running driver depends on: when one of them changes, its run is drained and started again.

Why it is right: a field is left out only where no driver of that kind reads it, so a change can be late for nobody; everything else
counts, also a field that is added later. Which tables a run has is compared by name instead (see `decide`). Pure.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from cdcsync_core.run import RunKind
from cdcsync_core.spec import Spec

#: what the controller alone acts upon
_OF_NO_RUN = (
    "state",
    "resnapshot",
    "autoRestart",
    "tables.include",
    "tables.exclude",
    "tables.newTables",
    "snapshot.only",
)
#: what one of the applications does not read
_OF_THE_OTHER = {
    RunKind.SNAPSHOT: ("stream", "source.serverId", "source.heartbeatInterval"),
    RunKind.STREAM: ("snapshot", "executors"),
    RunKind.CATCH_UP: ("snapshot", "executors"),
}


def fingerprint(spec: Spec, kind: RunKind) -> str:
    """Changes when a running driver of this kind must be replaced; 16 hex digits."""
    data = spec.model_dump(by_alias=True, mode="json")
    for path in (*_OF_NO_RUN, *_OF_THE_OTHER[kind]):
        _leave_out(data, path.split("."))
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _leave_out(data: dict[str, Any], path: list[str]) -> None:
    *parents, last = path
    for name in parents:
        data = data.get(name, {})
    data.pop(last, None)
