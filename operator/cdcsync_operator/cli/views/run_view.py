"""How `cdcsync run` shows its progress: bars in a terminal, sparse lines without one, JSON lines
for programs.

Why it is right: a view gets the status after every reconciliation and decides only what is worth a
line; it never asks anything itself. Lines come on changes and else every few seconds, so that a log
file of a week stays readable.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.live import Live

from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status, effective_lag
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.status_view import Rates, draw, summary
from cdcsync_operator.reconcile.preflight import PreflightRunner

#: seconds between two lines of progress, and until an unchanged line is printed again
EVERY = 5.0
_AGAIN = 60.0
_REDRAW = 0.5


class RunView:
    """Shared by all forms: changes are printed once, on stderr; `paint` draws the rest."""

    def __init__(self, output: Output, source: PreflightRunner, clock: Callable[[], float] = time.time) -> None:
        self._output, self._source, self._clock = output, source, clock
        self._printed: dict[tuple[str, ...], float] = {}
        self._line = ("", 0.0)
        self._essence: tuple[Any, ...] = ()
        self._shown_at = 0.0
        self.last = Status()

    def show(self, resource: CdcSync, status: Status) -> None:
        """Called after every reconciliation."""
        self._print_changes(status)
        self.last = status
        essence = (status.phase, tuple((t.name, t.phase) for t in status.table_status), status.restarts.consecutive)
        now = self._clock()
        if essence != self._essence or now - self._shown_at >= self.every:
            self._essence, self._shown_at = essence, now
            self.paint(resource, status, now)

    every = EVERY

    def paint(self, resource: CdcSync, status: Status, now: float) -> None:
        line, (before, printed_at) = summary(status), self._line
        if line != before or now - printed_at >= _AGAIN:
            self._line = (line, now)
            self._output.console.print(line, markup=False)

    def _print_changes(self, status: Status) -> None:
        outcome = self._source.outcome()
        for warning in outcome.warnings if outcome else ():
            if self._is_new("warning", warning):
                self._output.warn(warning)
        for table in status.table_status:
            if table.failed and self._is_new(table.name, table.reason, table.message):
                self._output.failure(table.reason, table.message)
            uncaptured = table.phase is TablePhase.UNASSIGNED and table.reason
            if uncaptured and self._is_new(table.name, table.reason, table.message):
                self._output.warn(f"not captured: {table.reason}: {table.message}")
        restarts = status.restarts
        if restarts.next_attempt_at and self._is_new("restart", restarts.reason, restarts.message, again=_AGAIN):
            text = f"{restarts.reason}: {restarts.message}; failure {restarts.consecutive} in a row"
            self._output.warn(f"{text}, next attempt at {restarts.next_attempt_at}")

    def _is_new(self, *key: str, again: float = float("inf")) -> bool:
        """Whether this was not printed in the last `again` seconds."""
        now = self._clock()
        if now - self._printed.get(key, float("-inf")) < again:
            return False
        self._printed[key] = now
        return True


class LiveView(RunView):
    """Bars and a line that are drawn over and over in a terminal."""

    every = _REDRAW

    def __init__(self, output: Output, source: PreflightRunner, live: Live) -> None:
        super().__init__(output, source)
        self._live, self._rates = live, Rates()

    def paint(self, resource: CdcSync, status: Status, now: float) -> None:
        self._live.update(draw(resource.full_name, status, now, self._rates), refresh=True)


class JsonView(RunView):
    """One object a line; the whole status comes at the end."""

    def paint(self, resource: CdcSync, status: Status, now: float) -> None:
        data = status.to_dict()
        lag = (
            effective_lag(status, None, resource.spec.stream.interval, now)
            if status.runs.stream is None
            else status.lag_seconds
        )
        shown_fields = ("phase", "tables", "snapshot", "position", "restarts")
        self._output.line({k: data[k] for k in shown_fields} | {"lagSeconds": lag})


@contextmanager
def open_view(output: Output, source: PreflightRunner) -> Iterator[RunView]:
    """The view that fits: JSON if asked for, bars in a terminal, else lines."""
    if output.as_json:
        yield JsonView(output, source)
    elif sys.stdout.isatty():
        with Live(console=output.console, auto_refresh=False, transient=False) as live:
            output.notes = output.console  # what is printed while bars are drawn must pass through them
            yield LiveView(output, source, live)
    else:
        yield RunView(output, source)
