"""`kubectl cdcsync`: the command line with a cluster behind it. kubectl finds it by the name of its
program, `kubectl-cdcsync`."""

from __future__ import annotations

import click

from cdcsync_operator.cli.entry import run_group
from cdcsync_operator.cli.kubectl.changes import pause, resnapshot, restart, resume
from cdcsync_operator.cli.kubectl.logs import logs
from cdcsync_operator.cli.kubectl.report import report
from cdcsync_operator.cli.kubectl.verify import verify
from cdcsync_operator.cli.kubectl.views import status, tables
from cdcsync_operator.cli.kubectl.why import why

COMMANDS = (status, tables, why, logs, pause, resume, restart, resnapshot, verify, report)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="cdcsync", prog_name="kubectl cdcsync")
def plugin() -> None:
    """See and steer the CdcSyncs of a cluster, by the kubeconfig."""


def main() -> None:
    """The entry point; ends the process with an exit code of the interface."""
    run_group(plugin, "kubectl cdcsync")


for _command in COMMANDS:
    plugin.add_command(_command)
