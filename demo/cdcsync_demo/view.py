"""What the demo shows: one line per step with the seconds since the start, and below them, in a
terminal, what is going on right now.

Two threads use it, the controller's and the demo's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.verification import TableResult, VerificationProgress
from cdcsync_operator.cli.views import verify_view
from cdcsync_operator.cli.views.status_view import Rates, draw, summary

_LINE_EVERY = 5.0
_INDENT = " " * 8


class DemoView:
    """`clock` gives seconds. Without a terminal, the status is a line every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._began = clock()
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._status: RenderableType = Text()
        self._verifying: verify_view.ProgressView | None = None
        self._rates = Rates()
        self._line_at = 0.0
        self._line = ""

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    def say(self, text: str) -> None:
        """A step: its text may hold markup."""
        with self._lock:
            self._console.print(f"[dim]{self.elapsed:4.0f} s[/]  {text}")

    def detail(self, text: str) -> None:
        with self._lock:
            self._console.print(f"{_INDENT}[dim]{escape(text)}[/]")

    def results(self, results: Sequence[TableResult]) -> None:
        with self._lock:
            verify_view.render(self._console, results)

    def table(self, drawn: Grid) -> None:
        with self._lock:
            verify_view.print_grid(self._console, drawn)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """While the block runs, the status is drawn below the steps."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def status(self, resource: CdcSync, status: Status) -> None:
        """Called after every reconciliation."""
        with self._lock:
            if self._live is not None:
                self._status = draw(resource.full_name, status, time.time(), self._rates)
                self._refresh()
            else:
                self._print_line(status)

    @contextmanager
    def verifying(self) -> Iterator[Callable[[VerificationProgress], None]]:
        """While the block runs, its progress is drawn with the status."""
        self._verifying = view = verify_view.ProgressView()

        def note(progress: VerificationProgress) -> None:
            with self._lock:
                view.note(progress)
                self._refresh()

        try:
            yield note
        finally:
            with self._lock:
                self._verifying = None
                self._refresh()

    def _refresh(self) -> None:
        if self._live is None:
            return
        bars = [self._verifying.draw()] if self._verifying else []
        self._live.update(Group(*bars, self._status), refresh=True)

    def _print_line(self, status: Status) -> None:
        line = summary(status)
        if line != self._line and self._clock() - self._line_at >= _LINE_EVERY:
            self._line, self._line_at = line, self._clock()
            self._console.print(f"{_INDENT}{line}", markup=False)
