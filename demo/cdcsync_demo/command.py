"""`cdcsync demo`: everything once, on this machine, with a server of its own."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.command import reporting, require_spark
from cdcsync_operator.cli.views.output import Output


@click.command()
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default="cdcsync-demo", show_default=True,
    help="Where everything goes; emptied first if a demo made it.",
)  # fmt: skip
@click.option(
    "--rows",
    type=click.IntRange(1000, 100_000_000),
    default=1_000_000,
    show_default=True,
    help="Rows of the largest table.",
)
@click.option(
    "--rate",
    type=click.FloatRange(1, 1000),
    default=100.0,
    show_default=True,
    help="Transactions a second, while it lasts.",
)
@click.option(
    "--sink", type=click.Choice(["delta", "iceberg"]), default="delta", show_default=True,
    help="The kind of the tables; iceberg: in a catalog that is a file of SQLite.",
)  # fmt: skip
@reporting
def demo(output: Output, folder: Path, rows: int, rate: float, sink: str) -> ExitCode:
    """Copy a small shop from a MariaDB of our own into tables of a lake while it is written, and
    prove that the copy is right."""
    from cdcsync_demo.demo_run import DemoSize, run_demo
    from cdcsync_demo.embedded import MariaDBUnavailable
    from cdcsync_demo.folder import open_folder
    from cdcsync_demo.server_process import ServerStartError
    from cdcsync_demo.view import DemoView

    require_spark()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    with open_folder(folder) as place:
        try:
            return run_demo(place, DemoSize(rows, rate), sink, DemoView(output.console), output)
        except (MariaDBUnavailable, ServerStartError) as error:
            reason = " ".join(str(error).split())
            raise fail(Reason.SOURCE_UNREACHABLE, f"no MariaDB for the demo: {reason}") from error


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
