"""One run of an application, in a process or in a pod: from its configuration to the exit code and
the last report."""

from __future__ import annotations

import sys
import threading

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.runs.report import ExitReport
from cdcsync_core.runs.run import ExitCode, RunConfig
from cdcsync_spark.engine import prestart
from cdcsync_spark.run.metrics import shown
from cdcsync_spark.run.progress import ControllerGone, Reports
from cdcsync_spark.run.tracebacks import log_traceback


def run(config: RunConfig, reporter: Reports, stopping: threading.Event) -> int:
    """Runs the application and reports how it ended; the exit code."""
    reporter = shown(config, reporter)
    try:
        error = _outcome(config, reporter, stopping)
        reporter.report(exit=_exit_report(error))
    except ControllerGone as e:
        sys.stderr.write(f"drained: {e}\n")
        return ExitCode.RETRY
    return exit_code(error)


def _outcome(config: RunConfig, reporter: Reports, stopping: threading.Event) -> CdcError | None:
    """None, or why the run as a whole ended."""
    try:
        starting = prestart.begin(config)
        from cdcsync_spark.app.driver import run_application  # takes a second, in which Spark starts

        return run_application(config, reporter, stopping, starting)
    except CdcError as e:
        log_traceback()
        return e
    except ControllerGone:
        raise
    except Exception as e:  # noqa: BLE001 (the exit report names whatever ended the driver)
        log_traceback()
        return fail(Reason.INTERNAL_ERROR, f"{type(e).__name__}: {quoted(str(e))}", remedy="see the driver's log")


def exit_code(error: CdcError | None) -> ExitCode:
    if error is None:
        return ExitCode.DONE
    return ExitCode.RETRY if isinstance(error, TransientError) else ExitCode.USER_MUST_ACT


def _exit_report(error: CdcError | None) -> ExitReport:
    if error is None:
        return {"code": int(ExitCode.DONE), "reason": "", "message": "", "remedy": ""}
    return {
        "code": int(exit_code(error)),
        "reason": error.reason.value,
        "message": error.message,
        "remedy": error.remedy,
    }
