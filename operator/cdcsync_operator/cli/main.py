"""`cdcsync`: the command line. A command is a file of this folder and an entry of `COMMANDS`; the
demo is a package of its own, which the operator's image lacks."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

from cdcsync_operator.cli.check import check
from cdcsync_operator.cli.entry import run_group
from cdcsync_operator.cli.explain import explain
from cdcsync_operator.cli.plan import plan
from cdcsync_operator.cli.run import run
from cdcsync_operator.cli.status import status
from cdcsync_operator.cli.verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="cdcsync", prog_name="cdcsync")
def cli() -> None:
    """Change data capture from MySQL and MariaDB into Delta Lake tables and Kafka topics."""


def main() -> None:
    """The entry point; ends the process with an exit code of the interface."""
    run_group(cli, "cdcsync")


_DEMO = (import_module("cdcsync_demo.command").demo,) if find_spec("cdcsync_demo") else ()
COMMANDS = (run, check, plan, explain, status, verify, *_DEMO)
for _command in COMMANDS:
    cli.add_command(_command)
