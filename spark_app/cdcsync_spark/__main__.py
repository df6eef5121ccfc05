"""A driver: `python -m cdcsync_spark RUN.json` runs one application and ends with an exit code and
a last report.

SIGTERM drains: the wave or batch at hand is finished, idle tables' positions are committed, the
exit is 0. The same happens when the controller is gone. Exit codes: 0 done, 1 a retry may fix it, 3
the user must act.
"""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import replace
from pathlib import Path

from cdcsync_core.runs.run import Decoder, RunConfig
from cdcsync_spark.app.program import run
from cdcsync_spark.app.stop_signal import StopSignal
from cdcsync_spark.run.progress import Reporter


def main(arguments: list[str]) -> int:
    config, signals, stopping = _config(arguments), StopSignal(), threading.Event()
    signals.call(stopping.set)
    return run(config, Reporter(config.id, config.report_fd), stopping)


def _config(arguments: list[str]) -> RunConfig:
    """Ends the process with USAGE for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m cdcsync_spark", allow_abbrev=False)
    parser.add_argument("--decoder", type=Decoder, choices=Decoder, help="reference: value by value, for tests")
    parser.add_argument("run", type=Path, metavar="RUN.json")
    chosen = parser.parse_args(arguments)
    config = RunConfig.from_json(chosen.run.read_text())
    return config if chosen.decoder is None else replace(config, decoder=chosen.decoder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
