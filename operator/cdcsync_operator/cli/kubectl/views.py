"""Commands that show what the status has: status, tables."""

from __future__ import annotations

import click

from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.table_status import CONSISTENT
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs, shown
from cdcsync_operator.cli.kubectl.options import of_cluster
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.sync_view import ShownSync, tables_of
from cdcsync_operator.cli.views.watch import show

#: seconds; a list of whole resources is more than a file
_EVERY = 2.0


@click.command()
@click.argument("name", required=False)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True)
@click.option("--watch", "-w", is_flag=True, help="A live screen until interrupted.")
@of_cluster
def status(output: Output, syncs: ClusterSyncs, name: str | None, everywhere: bool, watch: bool) -> ExitCode:
    """Show where CdcSyncs stand: the one of NAME, or all of the namespace."""
    chosen = ClusterSyncs(syncs.api, "") if everywhere and not name else syncs

    def found() -> list[ShownSync]:
        return [chosen.shown(name)] if name else [shown(one) for one in chosen.all()]

    where = "the cluster" if everywhere else f"the namespace {syncs.namespace}"
    show(output, found, watch=watch, none=f"no CdcSync in {where}", every=_EVERY)
    return ExitCode.DONE


@click.command()
@click.argument("name")
@click.option("--failed", is_flag=True, help="Those alone that are not consistent.")
@of_cluster
def tables(output: Output, syncs: ClusterSyncs, name: str, failed: bool) -> ExitCode:
    """List all tables of the CdcSync NAME."""
    tables = syncs.all_tables(syncs.get(name))
    rows = [t for t in tables.table_status if not failed or t.phase not in CONSISTENT or t.written]
    left = tables.tables.total + tables.tables.unassigned - len(tables.table_status)
    data = [t.model_dump(by_alias=True, mode="json") for t in rows]
    output.data(data, lambda console: console.print(tables_of(rows, tables)))
    if left > 0:
        output.warn(f"{left:,} more tables are in ConfigMaps that you may not read, or that do not fit the status")
    return ExitCode.DONE
