"""What all commands of the plugin share: which cluster, by the options that kubectl has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from cdcsync_core.runs.run import ExitCode
from cdcsync_kube.access import by_context
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs
from cdcsync_operator.cli.command import Decorator, reporting
from cdcsync_operator.cli.views.output import Output

print_option: Decorator = click.option(
    "--print", "as_patch", is_flag=True,
    help="Change nothing; print the change as a patch, to be committed where Git has the resource.",
)  # fmt: skip


def of_cluster(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """A command whose body gets an `Output` and the `ClusterSyncs` of the chosen namespace."""

    @click.option("-n", "--namespace", default="", help="Default: the namespace of the context.")
    @click.option("--context", "chosen", default="", help="Of the kubeconfig. Default: the current one.")
    @click.option("--kubeconfig", default="", help="Default: KUBECONFIG, else ~/.kube/config.")
    @reporting
    @functools.wraps(function)
    def command(output: Output, *args: Any, namespace: str, chosen: str, kubeconfig: str, **options: Any) -> ExitCode:
        api, of_context = by_context(kubeconfig, chosen)
        try:
            return function(output, ClusterSyncs(api, namespace or of_context), *args, **options)
        finally:
            api.close()

    return command
