"""What all commands share: their options, their exit codes, and how an error leaves them.

Exit codes: 0 done; 1 a failure that a retry may fix; 2 wrong usage or manifest; 3 the user must
act; 4 differences.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.quantity import parse_seconds
from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.views.output import Output

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

manifest_option: Decorator = click.option(
    "-f", "--file", "files", multiple=True, required=True, metavar="FILE",
    help="A YAML file with the CdcSync or its Secrets; may be given again; - is standard input.",
)  # fmt: skip
state_dir_option: Decorator = click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), default=".cdcsync", show_default=True,
    help="Where status, logs and scratch space are kept.",
)  # fmt: skip
_output_option: Decorator = click.option(
    "-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="For people or for programs.",
)  # fmt: skip


def duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Reads the seconds of an option; None where it is not given. Raises BadParameter."""
    try:
        return None if value is None else parse_seconds(value)
    except ValueError as error:
        raise click.BadParameter(f"{quoted(value or '')}; needed: {error}, for example 5m") from None


def require_spark() -> None:
    """Raises SpecInvalid where the packages of a driver are not installed: its process could only
    end."""
    if find_spec("pyspark") is None:
        raise fail(
            Reason.SPEC_INVALID,
            "the packages of drivers are not installed",
            needed="those of the extra `spark`, and Java 17 or newer",
            remedy="pip install 'cdcsync[spark]'",
        )


def exit_code(error: CdcError) -> ExitCode:
    if error.reason is Reason.SPEC_INVALID:
        return ExitCode.USAGE
    return ExitCode.RETRY if error.reason.retried else ExitCode.USER_MUST_ACT


def reporting(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """A command whose body gets an `Output` first and returns its exit code; a CdcError is printed
    and becomes one."""

    @_output_option
    @click.pass_context
    @functools.wraps(function)
    def command(context: click.Context, *args: Any, form: str, **options: Any) -> None:
        output = Output(as_json=form == "json")
        try:
            code = function(output, *args, **options)
        except CdcError as error:
            output.error(error)
            code = exit_code(error)
        context.exit(int(code))

    return command
