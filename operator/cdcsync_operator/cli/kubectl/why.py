"""`kubectl cdcsync why`: one table's state, with all that a person would look up for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import visible
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus
from cdcsync_kube.client import Object
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs, event_time, shown
from cdcsync_operator.cli.kubectl.options import of_cluster
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.sync_view import ShownSync, failure, tables_of

_LOG_LINES, _SHOWN = 2000, 10


@dataclass(frozen=True)
class Explanation:
    """`log` are lines of the driver's log that name the table, else its last ones."""

    sync: ShownSync
    table: TableStatus
    events: list[Object]
    log: list[str]

    def to_dict(self) -> dict[str, Any]:
        status = self.sync.status
        return {
            "namespace": self.sync.namespace,
            "name": self.sync.name,
            "phase": status.phase.value,
            "ready": status.condition("Ready").model_dump(by_alias=True, mode="json"),
            "table": self.table.model_dump(by_alias=True, mode="json"),
            "events": [
                {"time": event_time(e), **{k: e.get(k, "") for k in ("type", "reason", "message")}} for e in self.events
            ],
            "log": self.log,
        }

    def render(self, console: Console) -> None:
        status, ready = self.sync.status, self.sync.status.condition("Ready")
        console.print(Text(f"{self.sync.full_name}: {status.phase.value}", style="bold"))
        console.print(tables_of([self.table], status))
        if self.table.message:
            console.print(failure(self.table.reason, self.table.message))
        elif ready.status != "True" and ready.message:
            console.print(failure(ready.reason, ready.message))
        else:
            console.print(Text(_state(self.table)))
        if self.events:
            console.print(Text("events of the CdcSync, the newest last", style="bold"))
        for event in self.events:
            line = (
                f"  {event_time(event)} {event.get('type', '')} {event.get('reason', '')}: {event.get('message', '')}"
            )
            console.print(Text(visible(line)))
        if self.log:
            console.print(Text("log of its driver", style="bold"))
        for line in self.log:
            console.print(Text(f"  {visible(line.expandtabs())}"))


@click.command()
@click.argument("table", metavar="DATABASE.TABLE")
@click.option("--sync", "name", default="", help="The CdcSync. Default: each one of the namespace that has the table.")
@of_cluster
def why(output: Output, syncs: ClusterSyncs, table: str, name: str) -> ExitCode:
    """Explain the state of a table: reason and remedy, the last change of its definition, the last
    events of its CdcSync, and the last lines of its driver's log."""
    answers = []
    for sync in [syncs.get(name)] if name else syncs.all():
        status = syncs.all_tables(sync)
        entry = status.table(table)
        if entry is not None:
            answers.append(_answer(output, syncs, sync, status, entry))
    if not answers:
        raise fail(
            Reason.SPEC_INVALID,
            f"no CdcSync of {syncs.namespace} has the table {visible(table)}",
            remedy="give its name as database.table, and -n; `kubectl cdcsync tables NAME` lists those of a CdcSync",
        )
    data = [answer.to_dict() for answer in answers]

    def render(console: Console) -> None:
        for answer in answers:
            answer.render(console)

    output.data(data[0] if len(data) == 1 else data, render)
    return ExitCode.DONE


def _answer(output: Output, syncs: ClusterSyncs, resource: Object, status: Status, table: TableStatus) -> Explanation:
    """The explanation of a table's state; it has no events, or no log, where the user may not read
    them."""
    name = resource["metadata"]["name"]
    events: list[Object] = []
    log: list[str] = []
    try:
        events = syncs.events(name)
    except CdcError as error:
        output.warn(error.found)
    try:
        log = _lines(syncs, name, table.name)
    except CdcError as error:
        output.warn(error.found)
    sync = shown(resource)
    return Explanation(ShownSync(sync.namespace, sync.name, status, running=True), table, events, log)


def _lines(syncs: ClusterSyncs, name: str, table: str) -> list[str]:
    drivers = syncs.drivers(name)
    if not drivers:
        return []
    lines = syncs.log(drivers[-1]["metadata"]["name"], "driver", _LOG_LINES).splitlines()
    naming = [line for line in lines if table in line]
    return (naming or lines)[-_SHOWN:]


def _state(table: TableStatus) -> str:
    if table.written is not None:
        return "another program has changed rows of its target"
    if table.phase in CONSISTENT:
        return "it equals the source as of its position"
    if table.resnapshot and table.is_resnapshotted:
        return f"it is resnapshotted, its previous content serves: {table.resnapshot.message}"
    return "it waits for its turn, or is being read or caught up"
