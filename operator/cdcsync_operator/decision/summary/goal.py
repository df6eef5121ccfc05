"""When `cdcsync run` is done, and with which exit code. Pure.

Why it is right: a goal is judged by what drivers and source reported in this run, never by an old
status alone; tables that failed are not waited for, and are not forgiven either: the exit code says
that the user must act.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdcsync_core.errors import Reason
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus
from cdcsync_operator.decision.needs import assigned
from cdcsync_operator.decision.summary.conditions import TABLES_FAILED


class Until(StrEnum):
    SNAPSHOT = "snapshot"
    CAUGHT_UP = "caught-up"
    FOREVER = "forever"


@dataclass(frozen=True)
class GoalProgress:
    """What a goal is judged by.

    `preflight_done`: this controller has done its preflight; `stream_reported`: the live stream has
    reported; `log_end`: the end of the source's binlog, asked for when the snapshot was complete.
    """

    status: Status
    preflight_done: bool
    stream_reported: bool
    log_end: LogOffset | None = None


def snapshot_complete(progress: GoalProgress) -> bool:
    """Nothing is left that a run would read; a table that failed before it was read is not waited
    for."""
    complete = progress.status.condition("SnapshotComplete")
    return progress.preflight_done and (complete.status == "True" or complete.reason == TABLES_FAILED)


def verdict(until: Until, progress: GoalProgress) -> ExitCode | None:
    """None while there is something to wait for."""
    status = progress.status
    if status.phase is Phase.FAILED or _is_unready(status):
        return _failure(status.condition("Stalled").reason)
    if status.phase is Phase.COMPLETED:
        return _despite_failures(status)
    if status.phase is Phase.PAUSED and until is not Until.FOREVER:
        return ExitCode.USER_MUST_ACT
    if until is Until.SNAPSHOT and snapshot_complete(progress):
        return _despite_failures(status)
    if until is Until.CAUGHT_UP and snapshot_complete(progress) and _caught_up(progress):
        return _despite_failures(status)
    return None


def _is_unready(status: Status) -> bool:
    """What a preflight found stops the sync; a person who runs it does not wait for a fix."""
    unready = any(status.condition(kind).status == "False" for kind in ("SourceReady", "SinkReady"))
    return unready and status.phase is Phase.PENDING and status.condition("Stalled").status == "True"


def _failure(reason: str) -> ExitCode:
    retried = reason in set(Reason) and Reason(reason).retried
    return ExitCode.RETRY if retried else ExitCode.USER_MUST_ACT


def _despite_failures(status: Status) -> ExitCode:
    failed = [t for t in assigned(status) if t.failed]
    if failed and all(t.is_busy for t in failed):
        return ExitCode.RETRY
    return ExitCode.USER_MUST_ACT if failed else ExitCode.DONE


def _caught_up(progress: GoalProgress) -> bool:
    log_end = progress.log_end
    if log_end is None or not progress.stream_reported:
        return False
    return all(_has_reached(progress.status, t, log_end) for t in assigned(progress.status) if not t.failed)


def _has_reached(status: Status, table: TableStatus, log_end: LogOffset) -> bool:
    return table.phase in CONSISTENT and status.has_reached(table, log_end)
