"""`cdcsync`: the local face of the controller. A command is a file `command_*.py` and a row in `COMMANDS`."""

from __future__ import annotations

import os
import sys

import click

from cdcsync_core.run import ExitCode
from cdcsync_operator.command_check import check
from cdcsync_operator.command_demo import demo
from cdcsync_operator.command_plan import plan
from cdcsync_operator.command_run import run
from cdcsync_operator.command_status import status
from cdcsync_operator.command_verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="cdcsync", prog_name="cdcsync")
def cli() -> None:
    """Change data capture from MySQL and MariaDB into Delta Lake tables."""


def main() -> None:
    """The entry point; ends the process with an exit code of the interface."""
    try:
        cli(prog_name="cdcsync")
    except KeyboardInterrupt:
        sys.exit(ExitCode.RETRY)
    except BrokenPipeError:
        # whoever read our output has left; nothing may be written at the interpreter's end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.RETRY)


COMMANDS = (run, check, plan, status, verify, demo)
for _command in COMMANDS:
    cli.add_command(_command)
