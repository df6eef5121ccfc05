"""`cdcsync check`: everything that can be known before a run, all failures at once.

It changes nothing but for an object of its own in the sink, which it removes again.
"""

from __future__ import annotations

from dataclasses import replace

import click

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.command import exit_code, manifest_option, reporting
from cdcsync_operator.cli.plan import opened_manifest
from cdcsync_operator.cli.views.output import Output


@click.command()
@manifest_option
@reporting
def check(output: Output, files: tuple[str, ...]) -> ExitCode:
    """Check connection, privileges, settings, the start, tables, keys, types and what they lose on
    their way, and the sink."""
    from cdcsync_operator.cli.views.check_view import Outlook, as_data, render
    from cdcsync_operator.reconcile.sink_calls import check_sink
    from cdcsync_operator.reconcile.source_calls import captured, check_source, failovers
    from cdcsync_operator.reconcile.start_calls import check_start

    with opened_manifest(files) as (resource, secrets):
        preflight = check_source(resource, secrets)
        if preflight.facts is not None:
            preflight = replace(preflight, checks=(*preflight.checks, *check_start(resource, secrets)))
        outlook = Outlook(resource.spec, failovers(resource, secrets, preflight) if preflight.tables else {})
        sink = check_sink(resource, secrets, captured(preflight))
    output.data(as_data(preflight, sink, outlook), lambda console: render(console, preflight, sink, outlook))
    failures = [*preflight.failures, *sink.all_errors, *(t.error for t in preflight.tables if t.error)]
    for warning in (*preflight.warnings, *(sink.servers.warnings if sink.servers else ())):
        output.warn(warning)
    for failure in failures:
        output.error(failure)
    return max((exit_code(f) for f in failures), default=ExitCode.DONE)
