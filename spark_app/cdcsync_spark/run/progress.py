"""A driver's reports to its controller: one JSON object a line.

The pipe belongs to one run, so a report can never be taken for another run's; when its reader is
gone the driver has lost its controller and drains.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol, Unpack

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import Position, position_to_dict
from cdcsync_core.positions.watermark import watermark_to_dict
from cdcsync_core.runs.report import PositionJson, ReportParts, SchemaJson, SinkWriteJson, TableParts, TableReport
from cdcsync_core.runs.run import Report, TablePhase
from cdcsync_core.state import LastChange, SinkWrite, TableState
from cdcsync_core.tables.schema_change import Proof


class ControllerGone(Exception):
    """The controller no longer reads the reports."""


class Reports(Protocol):
    """Where an application's reports go."""

    def report(self, **parts: Unpack[ReportParts]) -> None:
        """The parts of `Report`; raises ControllerGone. Thread safe."""


class Reporter:
    """Writes reports of run `run` to descriptor `fd` (-1: nowhere). Thread safe."""

    def __init__(self, run: str, fd: int) -> None:
        self._run = run
        self._fd = fd
        self._lock = threading.Lock()

    def report(self, **parts: Unpack[ReportParts]) -> None:
        """The parts of `Report`; raises ControllerGone."""
        if self._fd < 0:
            return
        line = (Report(self._run, **parts).to_json() + "\n").encode()
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._fd, line) :]
        except BrokenPipeError as e:
            raise ControllerGone("the controller no longer reads this run's reports") from e


def table_entry(name: str, phase: TablePhase, state: TableState | None, **more: Unpack[TableParts]) -> TableReport:
    """A table's report. `more` adds parts, or replaces those of the state."""
    entry = TableReport(name=name, phase=phase.value, reason="", message="")
    if state is not None:
        entry.update(_parts_of(state))
    entry.update(more)
    return entry


def _parts_of(state: TableState) -> TableParts:
    parts: TableParts = {
        "finished": state.finished.to_list(),
        "low": state.low.to_dict() if state.low else None,
        "high": watermark_to_dict(state.high) if state.high else None,
        "rows": state.rows,
        "nulledDates": state.nulled_dates,
        "events": state.events,
        "nonce": state.resnapshot_nonce,
        "generation": state.generation,
        "withoutSnapshot": state.without_snapshot,
        "position": position_to_dict(state.position) if state.position else None,
        "written": _sink_write(state.written) if state.written else None,
    }
    if state.change is not None:
        parts["schema"] = schema_part(state.change)
    return parts


def _sink_write(write: SinkWrite) -> SinkWriteJson:
    return {
        "version": write.version,
        "program": write.program,
        "operation": write.operation,
        "at": "" if write.at is None else _rfc3339(write.at),
    }


def schema_part(change: LastChange, unreadable: str = "") -> SchemaJson:
    """`unreadable` is why the catalog could not confirm the change."""
    return {
        "version": change.version,
        "at": "" if change.at is None else _rfc3339(change.at),
        "statement": change.statement,
        "step": change.kind.value,
        "proof": _proof(change).value,
        "proofMessage": "; ".join(_unconfirmed(change, unreadable)) if change.unconfirmed else "",
    }


def _proof(change: LastChange) -> Proof:
    if not change.unconfirmed:
        return Proof.CATALOG
    return Proof.ROWS if change.shown and not change.unproved else Proof.PENDING


def _unconfirmed(change: LastChange, unreadable: str) -> Iterator[str]:
    """What the rows after the change could not confirm, and why the catalog has not."""
    if change.unseen and not change.unproved:
        yield f"rows do not carry {', '.join(change.unseen)}"
    if unreadable:
        yield unreadable


def failed_entry(
    name: str, error: CdcError, state: TableState | None = None, **more: Unpack[TableParts]
) -> TableReport:
    """The report of a table that was stopped."""
    entry = table_entry(name, TablePhase.FAILED, state, **more)
    entry.update({"reason": error.reason.value, "message": error.message})
    return entry


def position_entry(position: Position, timestamp: float | None) -> PositionJson:
    """`status.position`: the reader's place; `timestamp` comes in unix seconds and goes out as RFC
    3339."""
    return position_to_dict(position) | {"timestamp": "" if timestamp is None else _rfc3339(timestamp)}


def _rfc3339(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds")
