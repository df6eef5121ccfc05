"""`cdcsync status`: the status of a sync, from the state folder or the cluster, once or again and
again.

A sync that was not run with the state folder is searched for on the cluster of the kubeconfig,
where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from cdcsync_core.errors import Reason, fail, message_parts
from cdcsync_core.resource.quantity import parse_seconds
from cdcsync_core.resource.spec import API_VERSION
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.status import Status, TableStatus, effective_lag
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_kube.access import connect_api, has_cluster
from cdcsync_kube.client import ApiError
from cdcsync_operator.cli.command import reporting, state_dir_option
from cdcsync_operator.cli.output import Output, shown
from cdcsync_operator.cli.status_view import Rates, draw
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import ManifestFiles, read_state

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

    def found() -> list[_Sync]:
        return list(_syncs(name, files, namespace, state_dir))

    if not watch:
        _show_once(output, found(), Rates())
    else:
        with suppress(KeyboardInterrupt):
            _watch(output, found)
    return ExitCode.DONE


@dataclass(frozen=True)
class _Sync:
    """A sync as it is now; `running`: a controller reconciles it."""

    namespace: str
    name: str
    status: Status
    running: bool


def _watch(output: Output, found: Callable[[], list[_Sync]]) -> None:
    rates = Rates()
    if output.as_json or not output.console.is_terminal:
        while True:
            _show_once(output, found(), rates)
            time.sleep(_EVERY)
    with Live(console=output.console, auto_refresh=False) as live:
        while True:
            live.update(Group(*(_drawn(s, time.time(), rates) for s in found())), refresh=True)
            time.sleep(_EVERY)


def _syncs(name: str | None, files: tuple[str, ...], namespace: str, root: Path) -> Iterator[_Sync]:
    """Raises SpecInvalid where none is found."""
    if files:
        metadata = ManifestFiles(files).load().resource.metadata
        name, namespace = metadata.name, metadata.namespace
    if name is None:
        found = [p.stem.partition(".") for p in sorted(root.glob("*.*.yaml"))]
        yield from (_local(StateFolder(root, ns, sync)) for ns, _, sync in found)
        return
    folder = StateFolder(root, namespace, name)
    if folder.state_file.exists():
        yield _local(folder)
    elif has_cluster():
        yield _on_cluster(namespace, name)
    else:
        raise fail(
            Reason.SPEC_INVALID,
            f"no state of {namespace}/{name} in {root}, and no kubeconfig",
            needed="a sync that was run here, or a cluster",
            remedy="give its name, -n and --state-dir as `cdcsync run` had them, or set KUBECONFIG",
        )


def _local(folder: StateFolder) -> _Sync:
    """Where nothing runs it, its lag grows and it is not ready."""
    spec, _, known = read_state(folder)
    running = folder.is_locked()
    if not running and spec is not None:
        lag = effective_lag(known, None, parse_seconds(spec["stream"]["interval"]), time.time())
        known = known.with_(lag_seconds=lag)
    return _Sync(folder.namespace, folder.name, known, running)


def _on_cluster(namespace: str, name: str) -> _Sync:
    """The operator ages the lag itself, as long as it lives."""
    api = connect_api()
    try:
        found = api.get(f"/apis/{API_VERSION}/namespaces/{namespace}/cdcsyncs/{name}")
    except ApiError as error:
        what = f"no CdcSync {namespace}/{name} on the cluster" if error.gone else f"the API server answered: {error}"
        raise fail(Reason.SPEC_INVALID, what, remedy="give its name and -n; see `kubectl get cdcsync -A`") from None
    finally:
        api.close()
    return _Sync(namespace, name, Status.model_validate(found.get("status") or {}), running=True)


def _show_once(output: Output, syncs: list[_Sync], rates: Rates) -> None:
    now = time.time()
    data = [
        {"namespace": s.namespace, "name": s.name, "running": s.running, "status": s.status.to_dict()} for s in syncs
    ]

    def render(console: Console) -> None:
        for sync in syncs:
            console.print(_drawn(sync, now, rates))
        if not syncs:
            console.print("no sync was run with this state folder")

    output.data(data[0] if len(data) == 1 else data, render)


def _drawn(sync: _Sync, now: float, rates: Rates) -> RenderableType:
    known = sync.status
    parts: list[RenderableType] = [draw(f"{sync.namespace}/{sync.name}", known, now, rates)]
    if not sync.running:
        parts.append(Text("nothing runs here now", style="yellow"))
    ready = known.condition("Ready")
    if ready.status != "True" and ready.message and ready.reason != "Stopped":
        parts.append(_failure(ready.reason, ready.message))
    if 0 < len(known.table_status) <= _MAX_TABLES:
        parts.append(_tables(known))
        more = known.tables.total + known.tables.unassigned - len(known.table_status)
        if more > 0:
            parts.append(Text(f"and {more:,} more tables, none of which needs more attention", style="dim"))
    return Group(*parts)


def _failure(reason: str, message: str) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    grid.add_row(Text(reason, style="bold"), "")
    for line in message.split("\n"):
        for name, text in message_parts(line).items():
            if text:
                grid.add_row(f"  {name}:", shown(text))
    return grid


def _tables(known: Status) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "PHASE", "SPLITS", "ROWS", "POSITION", "REASON", "DEFINITION"):
        grid.add_column(title)
    for t in known.table_status:
        *_, at = (StatusPosition(), *known.covered_positions(t))
        splits = f"{t.splits_finished}/{t.splits_total}" if t.splits_total else ""
        grid.add_row(shown(t.name), t.phase.value, splits, f"{t.rows:,}", at.place, t.reason or _why(t), _schema(t))
    return grid


def _why(table: TableStatus) -> str:
    """Of a resnapshot that goes on without the user's request."""
    return f"resnapshot: {table.resnapshot.reason}" if table.resnapshot and table.is_resnapshotted else ""


def _schema(table: TableStatus) -> str:
    """The last change of the definition that was met."""
    found = table.schema_
    if not found:
        return ""
    waits = "" if found.proof in ("", "Catalog") else " (not confirmed)"
    return shown(f"{found.version}: {found.step}{waits}: {found.statement}")
