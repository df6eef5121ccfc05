"""A driver: `python -m cdcsync_spark RUN.json` runs one application and ends with an exit code and a last report.

SIGTERM drains: the wave or batch at hand is finished, positions are stamped, the exit is 0. The same happens when
the controller is gone. Exit codes: 0 done, 1 a retry may cure it, 3 the user must act.
"""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import replace
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.run import Decoder, ExitCode, RunConfig
from cdcsync_spark import earlysession
from cdcsync_spark.metrics import shown
from cdcsync_spark.progress import ControllerGone, Reporter, Reports
from cdcsync_spark.stopsignal import on_stop_signal
from cdcsync_spark.tracebacks import log_traceback


def main(arguments: list[str]) -> int:
    config = _config(arguments)
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    return run(config, Reporter(config.id, config.report_fd), stopping)


def run(config: RunConfig, reporter: Reports, stopping: threading.Event) -> int:
    """Runs the application and reports how it ended; the exit code."""
    reporter = shown(config, reporter)
    try:
        error = _outcome(config, reporter, stopping)
        reporter.report(exit=_last_words(error))
    except ControllerGone as e:
        sys.stderr.write(f"drained: {e}\n")
        return ExitCode.RETRY
    return exit_code(error)


def _config(arguments: list[str]) -> RunConfig:
    """Ends the process with USAGE for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m cdcsync_spark", allow_abbrev=False)
    parser.add_argument("--decoder", type=Decoder, choices=Decoder, help="plain: the oracle, for tests")
    parser.add_argument("run", type=Path, metavar="RUN.json")
    chosen = parser.parse_args(arguments)
    config = RunConfig.from_json(chosen.run.read_text())
    return config if chosen.decoder is None else replace(config, decoder=chosen.decoder)


def _outcome(config: RunConfig, reporter: Reports, stopping: threading.Event) -> CdcError | None:
    """None, or why the run as a whole ended."""
    try:
        starting = earlysession.begin(config)
        from cdcsync_spark.driver import run_application  # takes a second, in which Spark starts

        return run_application(config, reporter, stopping, starting)
    except CdcError as e:
        log_traceback()
        return e
    except ControllerGone:
        raise
    except Exception as e:  # noqa: BLE001 (the last words of a driver name whatever ended it)
        log_traceback()
        return fail(Reason.INTERNAL_ERROR, f"{type(e).__name__}: {quoted(str(e))}", remedy="see the driver's log")


def exit_code(error: CdcError | None) -> ExitCode:
    if error is None:
        return ExitCode.DONE
    return ExitCode.RETRY if isinstance(error, TransientError) else ExitCode.USER_MUST_ACT


def _last_words(error: CdcError | None) -> dict[str, object]:
    if error is None:
        return {"code": int(ExitCode.DONE), "reason": "", "message": "", "remedy": ""}
    return {
        "code": int(exit_code(error)),
        "reason": error.reason.value,
        "message": error.message,
        "remedy": error.remedy,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
