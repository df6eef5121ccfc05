"""A status as people like to see it: one line, or bars for what is being read and a line for what
flows.

Pure but for the drawing itself: rates are differences of what was seen before, time comes in as an
argument.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.cli.views.output import shown

_MAX_BARS = 15
_WINDOW = 20.0
_COLOURS = {
    Phase.STREAMING: "green",
    Phase.WAITING: "green",
    Phase.COMPLETED: "green",
    Phase.FAILED: "red",
    Phase.PAUSED: "yellow",
}


@dataclass
class Rates:
    """Rows and splits a second per table over the last seconds."""

    _seen: dict[str, deque[tuple[float, int, int]]] = field(default_factory=dict)

    def note(self, now: float, table: TableStatus) -> tuple[float, float]:
        """(rows a second, splits a second); 0 until there are two sightings."""
        seen = self._seen.setdefault(table.name, deque())
        seen.append((now, table.rows, table.splits_finished))
        while now - seen[0][0] > _WINDOW and len(seen) > 2:
            seen.popleft()
        (since, rows, splits) = seen[0]
        seconds = now - since
        if seconds < 0.5:
            return 0.0, 0.0
        return max(0.0, (table.rows - rows) / seconds), max(0.0, (table.splits_finished - splits) / seconds)


def summary(status: Status) -> str:
    """One line without colours."""
    counts, snapshot = status.tables, status.snapshot
    parts = [status.phase.value]
    if status.phase in (Phase.PLANNING, Phase.SNAPSHOTTING):
        parts.append(f"{snapshot.splits_finished}/{snapshot.splits_total} splits")
        parts.append(f"{snapshot.rows:,} rows")
        if snapshot.rows_per_second:
            parts.append(f"{snapshot.rows_per_second:,.0f} rows/s")
        if snapshot.throttled:
            parts.append(f"throttled: {snapshot.throttled}")
    if status.phase in (Phase.STREAMING, Phase.WAITING, Phase.COMPLETED):
        parts.append(f"{counts.streaming}/{counts.total} tables consistent")
        parts.append(position_text(status))
        parts.append(lag_text(status))
        parts.append(schedule_text(status))
    if counts.failed:
        parts.append(f"{counts.failed} failed")
    if counts.unassigned:
        parts.append(f"{counts.unassigned} unassigned")
    if status.restarts.consecutive:
        parts.append(f"{status.restarts.reason} ({status.restarts.consecutive} in a row)")
    return ", ".join(p for p in parts if p)


def position_text(status: Status) -> str:
    return f"at {status.position.place}" if status.position and status.position.place else ""


def lag_text(status: Status) -> str:
    return "" if status.lag_seconds is None else f"lag {show_seconds(status.lag_seconds)}"


def schedule_text(status: Status) -> str:
    return f"next time {status.schedule.next_time}" if status.schedule else ""


def draw(name: str, status: Status, now: float, rates: Rates) -> RenderableType:
    """Bars for the tables that are being read, with rows, rate and estimate; below them one line
    for the whole."""
    colour = _COLOURS.get(status.phase, "cyan")
    line = Text.from_markup(f"[bold]{shown(name)}[/] [{colour}]{shown(summary(status))}[/]")
    reading = [t for t in status.table_status if t.phase is TablePhase.SNAPSHOTTING]
    waiting = sum(t.phase is TablePhase.PENDING for t in status.table_status)
    if not reading:
        return line
    started = sorted(reading, key=lambda t: (t.splits_finished == 0, t.name))
    hidden = len(started) - _MAX_BARS
    more = [Text(f"and {hidden + waiting} more tables", style="dim")] if hidden > 0 else []
    return Group(bars(started[:_MAX_BARS], now, rates), *more, line)


def bars(tables: list[TableStatus], now: float, rates: Rates) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    for _ in range(6):
        grid.add_column(no_wrap=True)
    for table in tables:
        total, done = max(table.splits_total, 1), table.splits_finished
        rows_rate, splits_rate = rates.note(now, table)
        left = show_seconds((total - done) / splits_rate) + " left" if splits_rate else ""
        grid.add_row(
            shown(table.name),
            ProgressBar(total=total, completed=done, width=30),
            f"{100 * done // total:3d} %",
            f"{table.rows:,} rows",
            f"{rows_rate:,.0f}/s" if rows_rate else "",
            left,
        )
    return grid
