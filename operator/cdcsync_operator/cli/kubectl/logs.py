"""`kubectl cdcsync logs`: what the drivers of a CdcSync wrote."""

from __future__ import annotations

import click

from cdcsync_core.errors import CdcError
from cdcsync_core.quoting import visible
from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs
from cdcsync_operator.cli.kubectl.options import of_cluster
from cdcsync_operator.cli.views.output import Output


@click.command()
@click.argument("name")
@click.option("--tail", default=100, show_default=True, type=click.IntRange(1, 100_000), help="Lines of each pod.")
@click.option("--executors", is_flag=True, help="Those of executors, too.")
@of_cluster
def logs(output: Output, syncs: ClusterSyncs, name: str, tail: int, executors: bool) -> ExitCode:
    """Print the logs of the drivers of the CdcSync NAME: of the runs that there are, else of the
    last ones. `kubectl logs -f POD` follows one."""
    syncs.get(name)
    pods = [(p, "driver") for p in syncs.drivers(name)]
    pods += [(p, "executor") for p in syncs.pods(name, "executor")] if executors else []
    if not pods:
        output.note(f"{syncs.namespace}/{name} has no driver, and the log of none is kept")
    for pod, container in pods:
        title = pod["metadata"]["name"]
        try:
            lines = syncs.log(title, container, tail).splitlines()
        except CdcError as error:  # a pod that has not started has none
            output.warn(error.found)
            continue
        if output.as_json:
            output.line({"pod": title, "lines": lines})
        else:
            output.console.print(f"==> {title}", markup=False)
            for line in lines:
                output.console.print(visible(line.expandtabs()), markup=False)
    return ExitCode.DONE
