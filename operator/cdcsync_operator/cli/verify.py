"""`cdcsync verify`: compares source and target while both are written, and prints what differs."""

from __future__ import annotations

from pathlib import Path

import click

from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.verification import ReaderName, verdict
from cdcsync_operator.cli.command import duration, manifest_option, reporting, require_spark, state_dir_option
from cdcsync_operator.cli.plan import opened_manifest
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cli.views.verify_view import failures, render, watching
from cdcsync_operator.local.verification_process import Verification, verify_config


@click.command()
@manifest_option
@state_dir_option
@click.option(
    "--show",
    default=20,
    show_default=True,
    type=click.IntRange(min=0),
    help="How many differing keys of a table to show.",
)
@click.option(
    "--wait", default="2m", show_default=True, callback=duration, metavar="DURATION",
    help="How long the stream may take to pass the position at which keys were compared again.",
)  # fmt: skip
@click.option(
    "--reader", default=ReaderName.CDCSYNC.value, show_default=True, type=click.Choice([r.value for r in ReaderName]),
    help="Whose decoder of the binlog confirms a difference.",
)  # fmt: skip
@reporting
def verify(output: Output, files: tuple[str, ...], state_dir: Path, show: int, wait: float, reader: str) -> ExitCode:
    """Compare source and target, also while both are written. Exit code 4: they differ.

    Keys whose rows differ are compared again once the stream has passed a position taken after the
    first read. They are reported only if they differ again and the binlog has no change of them in
    between. The binlog is decoded by CdcSync's reference decoder, or with `--reader
    mysql-replication` by one that shares no code with it; that one reads numbers, dates, texts in
    UTF-8 and bytes, and says of which tables it cannot judge.
    """
    require_spark()
    with opened_manifest(files) as (resource, secrets), watching(output) as on_progress:
        config = verify_config(resource, secrets, state_dir, show, wait, ReaderName(reader))
        results = Verification(config).run(on_progress)
    code = verdict(results)
    tables = [r.to_dict() for r in results]
    output.data({"equal": code is ExitCode.DONE, "tables": tables}, lambda console: render(console, results))
    for error in failures(results):
        output.error(error)
    return code
