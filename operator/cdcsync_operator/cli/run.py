"""`cdcsync run`: runs a sync on this machine until its goal is reached or it is interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from cdcsync_core.runs.run import Decoder, ExitCode
from cdcsync_core.runs.status import Condition, Phase, Status
from cdcsync_operator.cli.command import manifest_option, reporting, require_spark, state_dir_option
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.run_view import open_view
from cdcsync_operator.decision.summary.goal import Until
from cdcsync_operator.local.controller import DRIVER, open_local
from cdcsync_operator.local.store import ManifestFiles

#: failed tables that are listed at the end
_SHOWN_FAILURES = 50


@click.command()
@manifest_option
@state_dir_option
@click.option(
    "--until",
    type=click.Choice([u.value for u in Until]),
    default=Until.FOREVER.value,
    show_default=True,
    help="When to stop: the snapshot is complete; every table is consistent and has reached the source's position of the"
    " moment when the snapshot ended or the run began, whichever is later; never. The first two do not wait for"
    " spec.stream.schedule.",
)
# the oracle of the tests: the rows are the same, and slow
@click.option("--decoder", type=click.Choice([d.value for d in Decoder]), default=Decoder.VECTORIZED.value, hidden=True)
@reporting
def run(output: Output, files: tuple[str, ...], state_dir: Path, until: str, decoder: str) -> ExitCode:
    """Run a sync here. Ctrl-C drains it; a second Ctrl-C ends it at once."""
    from cdcsync_operator.reconcile.source_calls import CALLS

    manifest_files = ManifestFiles(files, continuous=until != Until.FOREVER)
    manifest = manifest_files.load()
    require_spark()
    driver = (*DRIVER, "--decoder", decoder)
    with open_local(manifest_files, manifest, state_dir, CALLS, output.error, driver) as controller:
        with open_view(output, controller.source) as view:
            code = controller.run(Until(until), view.show, output.note)
            last = view.last
        _print_end(output, last, code)
        return code


def _print_end(output: Output, status: Status, code: ExitCode) -> None:
    """Why it ended, where that is not what was asked for."""
    stalled, ready = status.condition("Stalled"), status.condition("Ready")
    if stalled.status == "True":
        _print_failures(output, status, stalled)
    elif status.phase is Phase.PAUSED and code is not ExitCode.DONE:
        output.failure("Paused", "spec.state is paused; needed: running; remedy: set spec.state: running")
    elif code is not ExitCode.DONE:
        output.note(f"stopped before the goal was reached: {ready.reason}: {ready.message}")
    if output.as_json:
        output.line({"exit": int(code), "status": status.to_dict()})


def _print_failures(output: Output, status: Status, stalled: Condition) -> None:
    """Prints each failed table's own reason, and the sync's own, where that is not the tables'."""
    failed = [t for t in status.table_status if t.failed]
    if not failed or not stalled.message.startswith(failed[0].message):
        output.failure(stalled.reason, stalled.message or status.phase.value)
    for table in failed[:_SHOWN_FAILURES]:
        output.failure(table.reason, table.message or table.name)
    if len(failed) > _SHOWN_FAILURES:
        output.note(f"and {len(failed) - _SHOWN_FAILURES} more tables: see cdcsync status")
