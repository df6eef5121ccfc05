"""What a driver reported, merged into the status.

Why it is right: a report counts if its run is one that the status names, and for a table only if
no other run owns it; each part that an entry has replaces what was known, checked as the status is,
and no report takes a failure back.
"""

from __future__ import annotations

from typing import Any

from cdcsync_core.errors import CdcError
from cdcsync_core.runs.report import PositionJson, TableReport
from cdcsync_core.runs.run import Report, RunKind
from cdcsync_core.runs.status import SnapshotProgress, Status, with_tables
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus
from cdcsync_core.runs.verification_status import VerifiedStatus


def merge_report(
    status: Status, report: Report, assigned: frozenset[str], foreign: frozenset[str] = frozenset()
) -> Status:
    """Merges a driver's report, if it still is the run that the status names.

    `assigned` are the run's tables; `foreign` those of them that another run owns by now (a table
    that is resnapshotted while the previous stream still has it): this run's entries of them are
    ignored.
    """
    kind = status.runs.kind_of(report.run)
    if kind is None:
        return status
    ref = status.runs.get(kind)
    if ref and report.epoch is not None:
        status = status.with_(runs=status.runs.put(kind, ref.model_copy(update={"epoch": report.epoch})))
    before = status
    if not kind.copies:
        return with_tables(status, _verified_entries(status, report, assigned))
    status = with_tables(status, _accepted_entries(status, report, kind, assigned - foreign))
    if report.snapshot is not None and kind is RunKind.SNAPSHOT:
        progress = status.snapshot.model_dump() | SnapshotProgress.model_validate(report.snapshot).model_dump(
            exclude_unset=True
        )
        status = status.with_(snapshot=SnapshotProgress.model_validate(progress))
    if kind is not RunKind.STREAM:
        return status
    if report.position is None:
        return status
    return status.with_(
        position=_reader_position(before, report.position, assigned - foreign), lag_seconds=report.lag_seconds
    )


def _reader_position(before: Status, position: PositionJson, tables: frozenset[str]) -> StatusPosition:
    """The reader's place.

    One without a time is where a run begins, before it has applied anything: the time that is known
    stays, and gives the lag. Not where a table comes in that has less: up to that time, all tables
    are to have everything.
    """
    reported, recorded = StatusPosition.model_validate(position), before.position
    if reported.timestamp or recorded is None or not recorded.timestamp:
        return reported
    joined = [t for t in before.table_status if t.name in tables and t.positioned]
    if not all(_has_all(t, recorded) for t in joined):
        return reported
    return reported.model_copy(update={"timestamp": recorded.timestamp})


def _has_all(table: TableStatus, place: StatusPosition) -> bool:
    """Whether a table has what the reader before had passed."""
    if table.phase in CONSISTENT:
        return True
    try:
        return table.position is not None and table.position.parsed().includes(place.parsed())
    except CdcError:  # they are of different kinds, or in different binlogs
        return False


def _accepted_entries(status: Status, report: Report, kind: RunKind, tables: frozenset[str]) -> list[TableStatus]:
    """A stream that was started before a table was resnapshotted reports its previous content: that
    entry is ignored, too."""
    recorded = {t.name: t for t in status.table_status if t.name in tables}
    return [
        _with_entry(table, entry, report.run)
        for entry in report.tables
        if (table := recorded.get(entry["name"]))
        and (kind is RunKind.SNAPSHOT or entry.get("generation", table.generation) >= table.generation)
    ]


def _verified_entries(status: Status, report: Report, tables: frozenset[str]) -> list[TableStatus]:
    """Takes what was found of each table; all else of it is reported by the run that copies it."""
    tables_by_name = {t.name: t for t in status.table_status if t.name in tables}
    verified = [
        (table, VerifiedStatus.model_validate(entry["verified"]))
        for entry in report.tables
        if (table := tables_by_name.get(entry["name"])) and "verified" in entry
    ]
    return [table.model_copy(update={"verified": result.after(table.verified)}) for table, result in verified]


def _with_entry(table: TableStatus, entry: TableReport, run: str) -> TableStatus:
    """Takes the parts that the entry has, each checked."""
    reported = TableStatus.model_validate(entry)
    parts = {name: getattr(reported, name) for name in reported.model_fields_set}
    return table.model_copy(update=parts | {"run": run} | _sticky_failure(table))


def _sticky_failure(table: TableStatus) -> dict[str, Any]:
    """What no report takes back: a failure, of which the run beside does not know. A table that is
    tried again has none any more."""
    if not table.failed:
        return {}
    return {"phase": table.phase, "reason": table.reason, "message": table.message, "run": table.run}
