"""Shows syncs once, or again and again: a live screen in a terminal, else the same again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from cdcsync_core.errors import CdcError
from cdcsync_operator.cli.views.history import Histories
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.screen import Size, draw_screen
from cdcsync_operator.cli.views.status_view import Rates
from cdcsync_operator.cli.views.sync_view import ShownSync, show_once

_EVERY = 1.0
_NONE = "no sync was run with this state folder"


def show(
    output: Output, read_syncs: Callable[[], list[ShownSync]], *, watch: bool, none: str = _NONE, every: float = _EVERY
) -> None:
    """`read_syncs` is asked each time, every so many seconds; `none` is printed where it finds
    nothing."""
    rates = Rates()
    if not watch:
        show_once(output, read_syncs(), rates, none)
        return
    with suppress(KeyboardInterrupt):
        if not output.as_json and output.console.is_terminal:
            _draw_screens(output.console, read_syncs, every)
        while True:
            show_once(output, read_syncs(), rates, none)
            time.sleep(every)


def _draw_screens(console: Console, read_syncs: Callable[[], list[ShownSync]], every: float) -> None:
    """Until it is interrupted; what was there before is there again then."""
    histories, syncs, problem = Histories(), read_syncs(), ""
    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while True:
            now = time.time()
            histories.keep(s.full_name for s in syncs)
            for sync in syncs:
                histories.of(sync.full_name).note(sync.status, now)
            size = Size(console.width, console.height, plain=console.options.ascii_only)
            live.update(draw_screen(syncs, histories, now, size, problem), refresh=True)
            time.sleep(every)
            try:
                syncs, problem = read_syncs(), ""
            except CdcError as error:  # the next answer may come
                problem = error.found
