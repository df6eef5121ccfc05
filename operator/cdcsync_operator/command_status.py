"""`cdcsync status`: what the state folder says about a sync, once or again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from cdcsync_core.errors import Reason, fail
from cdcsync_core.quantity import parse_seconds
from cdcsync_core.run import ExitCode
from cdcsync_core.status import Status, aged_lag
from cdcsync_operator.command import reporting, state_dir_option
from cdcsync_operator.local_store import ManifestFiles, read_state
from cdcsync_operator.output import Output, message_parts
from cdcsync_operator.state_folder import StateFolder
from cdcsync_operator.status_view import Rates, draw

_EVERY = 1.0
_MAX_TABLES = 30


@click.command()
@click.argument("name", required=False)
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="The sync's manifest, in place of its name.")
@click.option("-n", "--namespace", default="default", show_default=True)
@state_dir_option
@click.option("--watch", is_flag=True, help="Again and again until interrupted.")
@reporting
def status(
    output: Output, name: str | None, files: tuple[str, ...], namespace: str, state_dir: Path, watch: bool
) -> ExitCode:
    """Show where syncs stand: one by NAME or manifest, or all of the state folder."""

    def folders() -> list[StateFolder]:
        return list(_folders(name, files, namespace, state_dir))

    if not watch:
        _show_once(output, folders(), Rates())
    else:
        with suppress(KeyboardInterrupt):
            _watch(output, folders)
    return ExitCode.DONE


def _watch(output: Output, folders: Callable[[], list[StateFolder]]) -> None:
    rates = Rates()
    if output.as_json or not output.console.is_terminal:
        while True:
            _show_once(output, folders(), rates)
            time.sleep(_EVERY)
    with Live(console=output.console, auto_refresh=False) as live:
        while True:
            live.update(Group(*(_drawn(f, time.time(), rates) for f in folders())), refresh=True)
            time.sleep(_EVERY)


def _folders(name: str | None, files: tuple[str, ...], namespace: str, root: Path) -> Iterator[StateFolder]:
    """Raises NoSuchTable's like for syncs: SpecInvalid where none is found."""
    if files:
        metadata = ManifestFiles(files).load().resource.metadata
        name, namespace = metadata.name, metadata.namespace
    if name is None:
        found = [p.stem.partition(".") for p in sorted(root.glob("*.*.yaml"))]
        yield from (StateFolder(root, ns, sync) for ns, _, sync in found)
        return
    folder = StateFolder(root, namespace, name)
    if not folder.state_file.exists():
        raise fail(
            Reason.SPEC_INVALID,
            f"no state of {namespace}/{name} in {root}",
            needed="a sync that was run here",
            remedy="give its name, -n and --state-dir as `cdcsync run` had them",
        )
    yield folder


def _show_once(output: Output, folders: list[StateFolder], rates: Rates) -> None:
    now = time.time()
    data = []
    for folder in folders:
        known, running = _aged(folder, now)
        data.append({"namespace": folder.namespace, "name": folder.name, "running": running, "status": known.to_dict()})

    def render(console: Console) -> None:
        for folder in folders:
            console.print(_drawn(folder, now, rates))
        if not folders:
            console.print("no sync was run with this state folder")

    output.data(data[0] if len(data) == 1 else data, render)


def _aged(folder: StateFolder, now: float) -> tuple[Status, bool]:
    """The status as it is now: with nobody running it, its lag grows and it is not ready."""
    spec, _, known = read_state(folder)
    running = folder.is_locked()
    if running or spec is None:
        return known, running
    interval = parse_seconds(spec["stream"]["interval"])
    return known.with_(lag_seconds=aged_lag(known, None, interval, now)), running


def _drawn(folder: StateFolder, now: float, rates: Rates) -> RenderableType:
    known, running = _aged(folder, now)
    parts: list[RenderableType] = [draw(f"{folder.namespace}/{folder.name}", known, now, rates)]
    if not running:
        parts.append(Text("nothing runs here now", style="yellow"))
    ready = known.condition("Ready")
    if ready.status != "True" and ready.message and ready.reason != "Stopped":
        parts.append(_failure(ready.reason, ready.message))
    if 0 < len(known.table_status) <= _MAX_TABLES:
        parts.append(_tables(known))
    return Group(*parts)


def _failure(reason: str, message: str) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    grid.add_row(Text(reason, style="bold"), "")
    for line in message.split("\n"):
        for name, text in message_parts(line).items():
            if text:
                grid.add_row(f"  {name}:", escape(text))
    return grid


def _tables(known: Status) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "PHASE", "SPLITS", "ROWS", "POSITION", "REASON"):
        grid.add_column(title)
    for t in known.table_status:
        at = t.position or {}
        place = f"{at['file']}:{at['offset']}" if at.get("file") else ""
        splits = f"{t.splits_finished}/{t.splits_total}" if t.splits_total else ""
        grid.add_row(escape(t.name), t.phase.value, splits, f"{t.rows:,}", place, t.reason)
    return grid
