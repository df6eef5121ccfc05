"""Syncs as `status` shows them once: each with its state, its failure and its tables."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from cdcsync_core.errors import message_parts
from cdcsync_core.quoting import visible
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.cli.views.output import Output, shown
from cdcsync_operator.cli.views.status_view import Rates, draw

_MAX_TABLES = 30


@dataclass(frozen=True)
class ShownSync:
    """A sync as it is now; `running`: a controller reconciles it."""

    namespace: str
    name: str
    status: Status
    running: bool

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def show_once(output: Output, syncs: list[ShownSync], rates: Rates, none: str) -> None:
    now = time.time()
    data = [
        {"namespace": s.namespace, "name": s.name, "running": s.running, "status": s.status.to_dict()} for s in syncs
    ]

    def render(console: Console) -> None:
        for sync in syncs:
            console.print(_drawn(sync, now, rates))
        if not syncs:
            console.print(none)

    output.data(data[0] if len(data) == 1 else data, render)


def _drawn(sync: ShownSync, now: float, rates: Rates) -> RenderableType:
    status = sync.status
    parts: list[RenderableType] = [draw(sync.full_name, status, now, rates)]
    if not sync.running:
        parts.append(Text("nothing runs here now", style="yellow"))
    ready = status.condition("Ready")
    if ready.status != "True" and ready.message and ready.reason != "Stopped":
        parts.append(failure(ready.reason, ready.message))
    if 0 < len(status.table_status) <= _MAX_TABLES:
        parts.append(tables_of(status.table_status, status))
        more = status.tables.total + status.tables.unassigned - len(status.table_status)
        if more > 0:
            parts.append(Text(f"and {more:,} more tables, none of which needs more attention", style="dim"))
    return Group(*parts)


def failure(reason: str, message: str) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    grid.add_row(Text(visible(reason), style="bold"), "")
    for line in message.split("\n"):
        for name, text in message_parts(line).items():
            if text:
                grid.add_row(f"  {name}:", shown(text))
    return grid


def tables_of(tables: Iterable[TableStatus], status: Status) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "PHASE", "SPLITS", "ROWS", "POSITION", "REASON", "DEFINITION"):
        grid.add_column(title)
    for t in tables:
        *_, at = (StatusPosition(), *status.covered_positions(t))
        splits = f"{t.splits_finished}/{t.splits_total}" if t.splits_total else ""
        reason = shown(t.reason or _why(t))
        grid.add_row(shown(t.name), t.phase.value, splits, f"{t.rows:,}", shown(at.place), reason, _schema(t))
    return grid


def _why(table: TableStatus) -> str:
    """The line of a resnapshot that goes on without the user's request."""
    return f"resnapshot: {table.resnapshot.reason}" if table.resnapshot and table.is_resnapshotted else ""


def _schema(table: TableStatus) -> str:
    """The last change of the definition that was met."""
    schema = table.schema_
    if not schema:
        return ""
    waits = "" if schema.proof in ("", "Catalog") else " (not confirmed)"
    return shown(f"{schema.version}: {schema.step}{waits}: {schema.statement}")
