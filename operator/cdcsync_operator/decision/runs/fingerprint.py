"""Which fields of the spec a running driver depends on: when one of them changes, its run is
drained and started again.

Why it is right: a field is left out only where no driver of that kind reads it, so a change can be
late for none; everything else counts, also a field that is added later. A field that has its
default is left out, so that one which a newer version adds changes nothing of what runs. Which
tables a run has is compared by name instead (see `rollout`). Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from cdcsync_core.resource.spec import Override, Spec
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.decision.runs.kinds import RUNS

#: whether a stream ends when it has caught up depends on whether there is one, not on its times
_SCHEDULE = "stream.schedule"
#: what the controller alone acts upon
_OF_NO_RUN = (
    "state",
    "resnapshot",
    "autoRestart",
    "tables.include",
    "tables.exclude",
    "tables.newTables",
    "snapshot.only",
    "snapshot.windows",
    _SCHEDULE,
    "onPositionLost",
    "source.lostTail",
    "schemaChange.resnapshot",
    "schemaChange.resnapshotMaxRows",
)


def fingerprint(spec: Spec, kind: RunKind) -> str:
    """Changes when a running driver of this kind must be replaced: `field=digest` of each field
    that counts, separated by spaces."""
    left_out = (*_OF_NO_RUN, *RUNS[kind].unread_fields)
    fields = dict(_fields(spec, spec.model_dump(by_alias=True, mode="json")))
    read = [_override(dumped, left_out) for dumped in fields.pop(_OVERRIDES, [])]
    overrides = [own for own in read if own != _override_of(own["table"])]
    counted = fields | ({_OVERRIDES: overrides} if overrides else {})
    read_fields = {path: value for path, value in counted.items() if not _is_below(path, left_out)}
    if kind is RunKind.STREAM and spec.stream.schedule is not None:
        read_fields[_SCHEDULE] = True
    return " ".join(f"{path}={_digest(value)}" for path, value in sorted(read_fields.items()))


_OVERRIDES = "tables.overrides"
#: of a table's settings: a run has the key that the table was planned with
_PLANNED = "key"


def _override(dumped: dict[str, Any], left_out: tuple[str, ...]) -> dict[str, Any]:
    """One table's settings without those of its policy that the kind of run does not read."""
    own = dumped.get("schemaChange") or {}
    policy = {k: v for k, v in own.items() if v is not None and not _is_below(f"schemaChange.{k}", left_out)}
    rest = {k: v for k, v in dumped.items() if k not in ("schemaChange", _PLANNED)}
    return rest | ({"schemaChange": policy} if policy else {})


def _override_of(table: str) -> dict[str, Any]:
    """That of a table for which nothing is set."""
    return _override(Override.model_validate({"table": table}).model_dump(by_alias=True, mode="json"), ())


def changed_fields(before: str, after: str) -> tuple[str, ...]:
    """The fields in which two fingerprints differ."""
    old, new = _parsed(before), _parsed(after)
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def _parsed(text: str) -> dict[str, str]:
    return {path: digest for path, _, digest in (part.rpartition("=") for part in text.split())}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _fields(model: BaseModel, dumped: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Public paths and values of the fields that do not have their default."""
    for name, info in type(model).model_fields.items():
        value, public = getattr(model, name), info.alias or name
        if isinstance(value, BaseModel):
            yield from _fields(value, dumped[public], f"{above}{public}.")
        elif info.is_required() or value != info.get_default(call_default_factory=True):
            yield f"{above}{public}", dumped[public]


def _is_below(path: str, parents: tuple[str, ...]) -> bool:
    return any(path == parent or path.startswith(f"{parent}.") for parent in parents)
