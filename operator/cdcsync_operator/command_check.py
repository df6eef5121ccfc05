"""`cdcsync check`: everything that can be known before a run, all failures at once. Changes nothing."""

from __future__ import annotations

import click

from cdcsync_core.run import ExitCode
from cdcsync_operator.command import exit_code, manifest_option, reporting
from cdcsync_operator.command_plan import opened_manifest
from cdcsync_operator.output import Output


@click.command()
@manifest_option
@reporting
def check(output: Output, files: tuple[str, ...]) -> ExitCode:
    """Check connection, privileges, settings, tables, keys and types, and what a type loses on its way."""
    from cdcsync_operator.check_view import as_data, render
    from cdcsync_operator.source_calls import check_source

    with opened_manifest(files) as (resource, secrets):
        found = check_source(resource, secrets)
    output.data(as_data(found), lambda console: render(console, found))
    failures = [*found.failures, *(t.error for t in found.tables if t.error)]
    for warning in found.warnings:
        output.warn(warning)
    for failure in failures:
        output.error(failure)
    return max((exit_code(f) for f in failures), default=ExitCode.DONE)
