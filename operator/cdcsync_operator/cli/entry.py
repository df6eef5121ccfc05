"""How a program of ours begins and ends, whatever its commands."""

from __future__ import annotations

import os
import sys

import click

from cdcsync_core.runs.run import ExitCode


def run_group(group: click.Group, name: str) -> None:
    """Ends the process with an exit code of the interface."""
    try:
        group(prog_name=name)
    except KeyboardInterrupt:
        sys.exit(ExitCode.RETRY)
    except BrokenPipeError:
        # the reader of our output has closed it; nothing may be written at the interpreter's end
        # either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.RETRY)
