"""What the reports of a run hold, checked.

Why it exists: an account that may write ConfigMaps can write anything there, and a driver of
another version has more parts or fewer; what is not of its type would else fail where it is used.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cdcsync_core.peer_json import parse_json
from cdcsync_core.runs.run import Flow, RunKind
from cdcsync_kube.client import Object
from cdcsync_operator.cluster.objects.run_objects import REPORT_TABLES

#: of a number, which JSON and the API server keep exactly
_MOST = 2**53


class _ReportPart(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class RunStart(_ReportPart):
    """How a run was started; `unknown` are entries of the tables that it was started without."""

    kind: RunKind | None = None
    tables: list[tuple[str, int]] = Field(default_factory=list)
    fingerprint: str = ""
    stop_at: str = Field(default="", alias="stopAt")
    unknown: list[dict[str, Any]] = Field(default_factory=list)


class ReportedExit(_ReportPart):
    code: int = Field(ge=0, le=255)
    reason: str
    message: str


class RunHead(_ReportPart):
    """The driver's report of the run as a whole; its `number` grows with each report."""

    number: int = Field(default=0, ge=0, le=_MOST)
    at: float | None = Field(default=None, ge=0, le=_MOST)
    exit: ReportedExit | None = None
    flow: Flow | None = None
    appeared: int = Field(default=0, ge=0, le=_MOST)
    snapshot: dict[str, Any] | None = None
    position: dict[str, Any] | None = None
    lag_seconds: float | None = None
    epoch: int | None = Field(default=None, ge=0, le=_MOST)


def part_of(report: Object, key: str) -> Object:
    """One part of a report's data; empty where it has none. Raises ValueError."""
    part = parse_json((report.get("data") or {}).get(key) or "{}")
    if not isinstance(part, dict):
        raise ValueError(f"{key}: needed: an object")
    return part


def entries_since(report: Object, since: int) -> Iterator[Object]:
    """The entries of tables that came with a report after number `since`. Raises ValueError."""
    entries = part_of(report, "tables").get("entries", [])
    if not isinstance(entries, list):
        raise ValueError("tables: needed: a list of entries")
    for entry in entries[:REPORT_TABLES]:
        if not (isinstance(entry, dict) and isinstance(entry.get("name"), str) and type(entry.get("number")) is int):
            raise ValueError("tables: needed: entries with a name and a number")
        if entry["number"] > since:
            yield entry


def defect(error: ValueError) -> str:
    """What is wrong, without what was written there."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
