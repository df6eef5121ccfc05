"""The live screen of `status --watch`: a line for all syncs, a row for each, the tables by trouble,
and the first fault with its remedy.

Pure: what is drawn fits the height that it is given, worst first, and says what it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from cdcsync_core.errors import message_parts
from cdcsync_core.quoting import visible
from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus
from cdcsync_core.timestamps import utc
from cdcsync_operator.cli.views.history import SAMPLES, Histories, SyncHistory, sparkline
from cdcsync_operator.cli.views.sync_view import ShownSync

_PHASES = tuple(TablePhase)
_TROUBLE = (TablePhase.FAILED, TablePhase.SNAPSHOTTING, TablePhase.CATCHING_UP, TablePhase.PENDING)
_COLOURS = {TablePhase.FAILED: "red", TablePhase.UNASSIGNED: "dim"}
_FAULT_LINES = 6
#: columns of a sync's texts, and the fewest that a line of samples is worth; narrower terminals
#: have no rates
_TEXT_WIDTH, _LEAST_SAMPLES = 100, 6


@dataclass(frozen=True)
class Size:
    """The size of a terminal; `plain`: it has no block characters."""

    width: int
    height: int
    plain: bool = False


def draw_screen(
    syncs: Sequence[ShownSync], histories: Histories, now: float, size: Size, problem: str = ""
) -> RenderableType:
    """`problem` is why the syncs are those of before."""
    ordered = sorted(syncs, key=_attention)
    fault = _fault(ordered)
    left = size.height - 6 - (_FAULT_LINES if fault else 0)
    rows = max(1, min(len(ordered), left // 2 if _tables_of(ordered) else left))
    parts: list[RenderableType] = [_fleet(ordered, now)]
    if problem:
        parts.append(Text(visible(f"as of the last answer: {problem}"), style="red", no_wrap=True, overflow="ellipsis"))
    parts += [_rule(size), _syncs(ordered[:rows], histories, size)]
    parts += _left_out(len(ordered) - rows, "syncs, none of which needs more attention")
    parts += _tables(ordered, left - rows, size)
    if fault is not None:
        parts += [_rule(size), fault]
    return Group(*parts)


def _rule(size: Size) -> Rule:
    return Rule(style="dim", characters="-" if size.plain else "─")


def _attention(sync: ShownSync) -> tuple[bool, bool, str]:
    return (not _is_true(sync.status, "Stalled"), _is_true(sync.status, "Ready"), sync.full_name)


def _is_true(status: Status, condition: str) -> bool:
    return status.condition(condition).status == "True"


def _fleet(syncs: Sequence[ShownSync], now: float) -> Text:
    stalled = sum(_is_true(s.status, "Stalled") for s in syncs)
    ready = sum(_is_true(s.status, "Ready") for s in syncs)
    total, consistent = (sum(getattr(s.status.tables, name) for s in syncs) for name in ("total", "streaming"))
    lags = [s.status.lag_seconds for s in syncs if s.status.lag_seconds is not None]
    line = Text()
    line.append("CdcSync", style="bold")
    line.append(f"  {len(syncs)} {'sync' if len(syncs) == 1 else 'syncs'}: ")
    line.append(f"{ready} ready", style="green" if ready else "dim")
    line.append(
        f", {len(syncs) - ready - stalled} not ready", style="yellow" if len(syncs) > ready + stalled else "dim"
    )
    line.append(f", {stalled} stalled", style="bold red" if stalled else "dim")
    line.append(f"   {consistent}/{total} tables consistent")
    line.append(f"   worst lag {show_seconds(max(lags))}" if lags else "")
    line.append(f"   {utc(now)}", style="dim")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _syncs(syncs: Sequence[ShownSync], histories: Histories, size: Size) -> Grid:
    """A row for each sync, with lines of the last seconds as far as the terminal is wide enough for
    them."""
    samples = min(SAMPLES, (size.width - _TEXT_WIDTH) // 2)
    titles = ["SYNC", "PHASE", "REASON", "TABLES", "LAG", "READS"]
    if samples >= _LEAST_SAMPLES:
        titles[5:] = ["", "READS", ""]
    rows = [_cells(sync, histories.of(sync.full_name), samples, plain=size.plain) for sync in syncs]
    if size.width < _TEXT_WIDTH:
        titles, rows = titles[:5], [row[:5] for row in rows]
    return _grid(titles, rows, right=("TABLES", "LAG", "READS"))


def _grid(titles: Sequence[str], rows: Sequence[Sequence[Text]], right: Sequence[str]) -> Grid:
    """A figure is never cut: where the terminal is narrow, texts are."""
    grid = Grid(box=None, pad_edge=False, header_style="dim")
    for number, title in enumerate(titles):
        if title in right:
            longest = max((row[number].cell_len for row in rows), default=0)
            grid.add_column(title, justify="right", no_wrap=True, min_width=max(longest, len(title)))
        else:
            grid.add_column(title, no_wrap=True, overflow="ellipsis")
    for row in rows:
        grid.add_row(*row)
    return grid


def _cells(sync: ShownSync, history: SyncHistory, samples: int, *, plain: bool) -> list[Text]:
    status, ready = sync.status, sync.status.condition("Ready")
    colour = "red" if _is_true(status, "Stalled") else "green" if ready.status == "True" else "yellow"
    lag = "" if status.lag_seconds is None else show_seconds(status.lag_seconds)
    rates = list(history.rates)[-samples:]
    cells = [
        Text(visible(sync.full_name), style="bold"),
        Text(status.phase.value if sync.running else f"{status.phase.value} (not run)", style=colour),
        Text("" if ready.reason == status.phase.value else visible(ready.reason), style=colour),
        Text(f"{status.tables.ready}, {status.tables.failed} failed" if status.tables.failed else status.tables.ready),
        Text(lag),
        Text(_rate(history.rates[-1] if history.rates else None, history.unit)),
    ]
    if samples >= _LEAST_SAMPLES:
        lags = list(history.lags)[-samples:]
        cells.insert(5, Text(sparkline(lags, plain=plain), style="magenta"))
        cells.append(Text(sparkline(rates, plain=plain), style="cyan"))
    return cells


def _rate(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.1f}{letter} {unit}"
    return f"{value:.0f} {unit}"


def _left_out(number: int, what: str) -> list[RenderableType]:
    return [Text(f"and {number:,} more {what}", style="dim")] if number > 0 else []


def _tables_of(syncs: Sequence[ShownSync]) -> list[tuple[ShownSync, TableStatus]]:
    """The tables that are not consistent, or that another program has written; the worst first."""
    named = [(s, t) for s in syncs for t in s.status.table_status if t.phase not in CONSISTENT or t.written]
    return sorted(named, key=lambda entry: (_rank(entry[1]), entry[0].full_name, entry[1].name))


def _rank(table: TableStatus) -> int:
    order = (*_TROUBLE, *(phase for phase in _PHASES if phase not in _TROUBLE))
    return -1 if table.written else order.index(table.phase)


def _tables(syncs: Sequence[ShownSync], room: int, size: Size) -> list[RenderableType]:
    tables = _tables_of(syncs)
    if not tables or room < 3:
        return _left_out(len(tables), "tables that are not consistent")
    shown = tables[: room - 2]
    rows = [_table_cells(sync, table) for sync, table in shown]
    grid = _grid(("TABLE", "SYNC", "PHASE", "SPLITS", "ROWS", "REASON"), rows, right=("SPLITS", "ROWS"))
    return [_rule(size), grid, *_left_out(len(tables) - len(shown), "tables that are not consistent")]


def _table_cells(sync: ShownSync, table: TableStatus) -> list[Text]:
    colour = _COLOURS.get(table.phase, "yellow")
    return [
        Text(visible(table.name)),
        Text(visible(sync.full_name), style="dim"),
        Text(table.phase.value, style=colour),
        Text(f"{table.splits_finished}/{table.splits_total}" if table.splits_total else ""),
        Text(f"{table.rows:,}"),
        Text(visible(_reason(table)), style=colour),
    ]


def _reason(table: TableStatus) -> str:
    if table.reason or not table.written:
        resnapshot = f"resnapshot: {table.resnapshot.reason}" if table.resnapshot and table.is_resnapshotted else ""
        return table.reason or resnapshot
    return "SinkWritten"


def _fault(syncs: Sequence[ShownSync]) -> Grid | None:
    """The first one that only the user can mend, or that is tried again."""
    for sync in syncs:
        stalled, ready = sync.status.condition("Stalled"), sync.status.condition("Ready")
        message = stalled.message if stalled.status == "True" else sync.status.restarts.message
        if not message:
            continue
        grid = Grid.grid(padding=(0, 1))
        grid.add_row(Text(visible(sync.full_name), style="bold"), Text(visible(ready.reason), style="bold red"))
        for name, text in message_parts(message.split("\n")[0]).items():
            if text:
                grid.add_row(Text(f"  {name}:"), Text(visible(text), overflow="ellipsis", no_wrap=name != "remedy"))
        return grid
    return None
