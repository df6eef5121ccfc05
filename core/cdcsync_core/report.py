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
    rewriting: str
    schema: SchemaJson
    written: SinkWriteJson | None


class TableReport(TableParts, total=False):
    """A table's parts that replace what was known."""

    name: Required[str]
    phase: str


def table_report(data: Mapping[str, Any]) -> TableReport:
    """Of JSON; what a newer driver reports beyond that is left aside."""
    return cast("TableReport", {k: v for k, v in data.items() if k in _TABLE_PARTS})


_TABLE_PARTS = TableReport.__annotations__.keys() | TableParts.__annotations__.keys()


def failed_table(name: str, error: CdcError) -> TableReport:
    """Of a table that a run is started without."""
    return {"name": name, "phase": "Failed", "reason": error.reason.value, "message": error.message}


class SnapshotReport(TypedDict, total=False):
    """Parts of `status.snapshot`."""

    splitsTotal: int
    splitsFinished: int
    rows: int
    rowsPerSecond: float
    startedAt: str
    finishedAt: str


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
