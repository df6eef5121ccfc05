"""What people see of a verification: bars while it reads, then one line a table and the keys that
differ. Pure but for the drawing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid

from cdcsync_core.errors import CdcError, from_json
from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.runs.verification import Difference, TableResult, VerificationProgress, VerificationStep
from cdcsync_operator.cli.views.output import Output, shown

_SHOWN_TABLES = 30
_WIDTH = 240


class ProgressView:
    """The newest progress of each table, in the order in which they began."""

    def __init__(self) -> None:
        self._tables: dict[str, VerificationProgress] = {}

    def note(self, progress: VerificationProgress) -> VerificationProgress:
        """What is known now: later steps keep what was read."""
        noted = self._tables.get(progress.table)
        if noted and progress.step is not VerificationStep.COMPARING:
            progress = VerificationProgress(
                progress.table, progress.step, noted.rows, noted.estimate, noted.ranges, noted.candidates
            )
        self._tables[progress.table] = progress
        return progress

    def draw(self) -> Grid:
        grid = Grid.grid(padding=(0, 1))
        for _ in range(4):
            grid.add_column(no_wrap=True)
        for p in list(self._tables.values())[-_SHOWN_TABLES:]:
            bar = ProgressBar(total=max(p.estimate, p.rows, 1), completed=p.rows, width=30)
            grid.add_row(shown(p.table), bar, f"{p.rows:,} rows", _doing(p))
        return grid


def _doing(progress: VerificationProgress) -> str:
    if progress.step is VerificationStep.WAITING:
        return f"{progress.candidates:,} keys to compare again: waiting for the stream"
    if progress.step is VerificationStep.READING_AGAIN:
        return f"{progress.candidates:,} keys to compare again: reading"
    return f"{progress.candidates:,} keys to compare again" if progress.candidates else ""


@contextmanager
def watching(output: Output) -> Iterator[Callable[[VerificationProgress], None]]:
    """Takes the progress: bars in a terminal, a line per table and step without one, nothing for
    programs."""
    view = ProgressView()
    if output.as_json:
        yield lambda _: None
    elif output.console.is_terminal:
        with Live(console=output.console, auto_refresh=False, transient=True) as live:

            def paint(progress: VerificationProgress) -> None:
                view.note(progress)
                live.update(view.draw(), refresh=True)

            yield paint
    else:
        printed: set[tuple[str, VerificationStep]] = set()

        def write(progress: VerificationProgress) -> None:
            is_noted = view.note(progress)
            if (is_noted.table, is_noted.step) not in printed:
                printed.add((is_noted.table, is_noted.step))
                output.notes.print(f"{is_noted.table}: {is_noted.step.value}", markup=False)

        yield write


def render(console: Console, results: Sequence[TableResult]) -> None:
    """A line per table, then what differs and what went wrong."""
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "SOURCE ROWS", "TARGET ROWS", "RANGES", "TIME", "RESULT"):
        grid.add_column(title, justify="left" if title in ("TABLE", "RESULT") else "right", no_wrap=True)
    for r in results:
        numbers = (f"{r.source_rows:,}", f"{r.target_rows:,}", f"{r.ranges:,}", show_seconds(r.seconds))
        grid.add_row(shown(r.table), *numbers, _result(r))
    print_grid(console, grid)
    for r in results:
        _details(console, r)
    changing = sum(r.changing for r in results)
    if changing:
        console.print(
            f"[dim]{changing:,} keys changed while both sides were read; each is as the binlog has it, on both[/]"
        )


def print_grid(console: Console, grid: Grid) -> None:
    """In a file or a pipe nothing is cut: there is no terminal whose width would matter."""
    wide = console if console.is_terminal else Console(file=console.file, width=_WIDTH, highlight=False)
    wide.print(grid)


def _result(result: TableResult) -> str:
    if result.differences:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in (result.counts or {}).items())
        return f"[bold red]{kinds}[/]"
    if result.error:
        return f"[bold red]{shown(str(result.error['reason']))}[/]"
    if result.skipped or result.unconfirmed:
        return "[yellow]not compared yet[/]" if result.skipped else f"[yellow]{result.unconfirmed:,} not confirmed[/]"
    return "[green]equal[/]"


def _details(console: Console, result: TableResult) -> None:
    for key in result.keys:
        console.print(f"  {shown(result.table)} {_key(key)}: [red]{key.kind.value}[/]")
        for column, (source, target) in key.columns.items():
            console.print(f"    {shown(column)}: {shown(source)} in the source, {shown(target)} in the target")
    hidden = result.differences - len(result.keys)
    if hidden:
        console.print(f"  {shown(result.table)}: {hidden:,} more keys differ")
    if result.unconfirmed:
        console.print(f"  {shown(result.table)}: {result.unconfirmed:,} keys differ, but {shown(result.why)}")
    if result.skipped:
        console.print(f"  {shown(result.table)}: {shown(result.skipped)}")


def _key(difference: Difference) -> str:
    return shown(", ".join(f"{name} = {value}" for name, value in difference.key.items()))


def failures(results: Sequence[TableResult]) -> list[CdcError]:
    """The errors that ended the verification of single tables."""
    return [from_json(json.dumps(r.error)) for r in results if r.error]
