"""The parts of a driver's report, as they travel in JSON.

Why it exists: a driver, the pipe or ConfigMap between, and the controller use the same names, and
the type checker sees to it. Why typed dictionaries: a part that a report does not have leaves what
was known, which is not the same as a part without a value; and a report of another version is read
as it is, with more or fewer parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict, cast

from cdcsync_core.errors import CdcError

#: finished key ranges of a table, which grow from its first key, and columns of a key
MOST_RANGES, MOST_COLUMNS = 4, 32
#: a `Position`, an offset, or merged intervals, in JSON
PositionJson = dict[str, Any]
OffsetJson = dict[str, Any]
IntervalsJson = list[dict[str, Any]]


class SchemaJson(TypedDict, total=False):
    """The last change of a table's definition that was met: `version` counts the definitions of its
    content, `at` is when the statement was committed (RFC 3339), `step` the `Kind` of what it
    meant, `statement` its text, shortened; `proof` is the `Proof` of the definition that was
    predicted, `proofMessage` what is not confirmed, and why."""

    version: int
    at: str
    statement: str
    step: str
    proof: str
    proofMessage: str


class SinkWriteJson(TypedDict):
    """A commit of another program that changed rows of a target: the target's `version`, the
    `program` and its `operation` as the commit names them, `at` when it was made (RFC 3339)."""

    version: int
    program: str
    operation: str
    at: str


class VerifiedJson(TypedDict):
    """What a verification found of a table: see `VerifiedStatus`."""

    nonce: int
    at: str
    result: str
    generation: int
    sourceRows: int
    targetRows: int
    missing: int
    extra: int
    different: int
    duplicate: int
    unconfirmed: int
    position: str
    message: str


class TableParts(TypedDict, total=False):
    """Parts of an entry of `status.tableStatus`, by their public names."""

    reason: str
    message: str
    splitsTotal: int
    splitsFinished: int
    finished: IntervalsJson
    low: PositionJson | None
    high: OffsetJson | None
    position: PositionJson | None
    rows: int
    nulledDates: int
    events: int
    nonce: int
    generation: int
    withoutSnapshot: bool
    rewriting: str
    uncompacted: str
    schema: SchemaJson
    written: SinkWriteJson | None
    verified: VerifiedJson


class TableReport(TableParts, total=False):
    """A table's parts that replace what was known."""

    name: Required[str]
    phase: str


def table_report(data: Mapping[str, Any]) -> TableReport:
    """An entry from JSON; what a newer driver reports besides is left aside, so that it is as small
    in memory as its parts, whatever was written. Raises ValueError for key ranges that no driver
    makes."""
    return cast("TableReport", {k: _known_parts(k, v) for k, v in data.items() if k in _TABLE_PARTS})


_TABLE_PARTS = TableReport.__annotations__.keys() | TableParts.__annotations__.keys()
_ANCHOR_PARTS = frozenset({"file", "offset", "created"})
_INNER = {
    **dict.fromkeys(("low", "high", "position"), _ANCHOR_PARTS | {"binlog", "gtidSet", "exact", "anchor", "timestamp"}),
    "anchor": _ANCHOR_PARTS,
    "schema": SchemaJson.__annotations__.keys(),
    "written": SinkWriteJson.__annotations__.keys(),
    "verified": VerifiedJson.__annotations__.keys(),
}


def _known_parts(name: str, value: Any) -> Any:
    if name == "finished":
        return _key_ranges(value)
    if isinstance(value, dict):
        return {k: _known_parts(k, v) for k, v in value.items() if k in _INNER.get(name, ())}
    return None if isinstance(value, list) else value


def _key_ranges(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list) and len(value) <= MOST_RANGES and all(isinstance(r, dict) for r in value):
        ranges = [{"start": r.get("start"), "end": r.get("end")} for r in value]
        if all(bound is None or _is_bound(bound) for r in ranges for bound in r.values()):
            return ranges
    raise ValueError(f"finished key ranges; needed: at most {MOST_RANGES}, of at most {MOST_COLUMNS} columns")


def _is_bound(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= MOST_COLUMNS
        and all(isinstance(value, int | str) for value in values)
    )


def failed_table(name: str, error: CdcError) -> TableReport:
    """The entry of a table that a run is started without."""
    return {"name": name, "phase": "Failed", "reason": error.reason.value, "message": error.message}


class SnapshotReport(TypedDict, total=False):
    """Parts of `status.snapshot`."""

    splitsTotal: int
    splitsFinished: int
    rows: int
    rowsPerSecond: float
    startedAt: str
    finishedAt: str
    maxRowsPerSecond: int
    maxBytesPerSecond: int
    throttled: str


class ExitReport(TypedDict):
    """How a driver ended."""

    code: int
    reason: str
    message: str
    remedy: str


class ReportParts(TypedDict, total=False):
    """What `Report` says of each."""

    tables: list[TableReport]
    snapshot: SnapshotReport | None
    position: PositionJson | None
    lag_seconds: float | None
    epoch: int | None
    done: dict[str, int] | None
    exit: ExitReport | None
    maintenance: dict[str, float] | None
    flow: dict[str, Any] | None
    appeared: int | None
