"""`cdcsync status`: the status of a sync, from the state folder or the cluster, once or again and
again.

A sync that was not run with the state folder is searched for on the cluster of the kubeconfig,
where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from cdcsync_core.errors import Reason, fail
from cdcsync_core.resource.quantity import parse_seconds
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.status import effective_lag
from cdcsync_kube.access import connect_api, has_cluster
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs
from cdcsync_operator.cli.command import reporting, state_dir_option
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.sync_view import ShownSync
from cdcsync_operator.cli.views.watch import show
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import ManifestFiles, read_state


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

    def found() -> list[ShownSync]:
        return list(_syncs(name, files, namespace, state_dir))

    show(output, found, watch=watch)
    return ExitCode.DONE


def _syncs(name: str | None, files: tuple[str, ...], namespace: str, root: Path) -> Iterator[ShownSync]:
    """Raises SpecInvalid where none is found."""
    if files:
        metadata = ManifestFiles(files).load().resource.metadata
        name, namespace = metadata.name, metadata.namespace
    if name is None:
        names = [p.stem.partition(".") for p in sorted(root.glob("*.*.yaml"))]
        yield from (_local(StateFolder(root, ns, sync)) for ns, _, sync in names)
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


def _local(folder: StateFolder) -> ShownSync:
    """Where nothing runs it, its lag grows and it is not ready."""
    spec, _, recorded = read_state(folder)
    running = folder.is_locked()
    if not running and spec is not None:
        lag = effective_lag(recorded, None, parse_seconds(spec["stream"]["interval"]), time.time())
        recorded = recorded.with_(lag_seconds=lag)
    return ShownSync(folder.namespace, folder.name, recorded, running)


def _on_cluster(namespace: str, name: str) -> ShownSync:
    """The operator ages the lag itself, as long as it lives."""
    api = connect_api()
    try:
        return ClusterSyncs(api, namespace).shown(name)
    finally:
        api.close()
