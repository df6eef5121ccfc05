"""`python -m cdcsync_spark.verify FILE`: compares as the `VerifyConfig` in FILE says, and reports
on standard output, line by line.

Exit codes: 0 equal, 4 differences, 3 the user must act, 1 a retry may fix it (or what differs
could not be proven). An error that concerns all tables is the last line of standard error, as a
`CdcError` in JSON.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.verification import TableResult, VerificationProgress, VerifyConfig, verdict
from cdcsync_spark.run.tracebacks import log_traceback
from cdcsync_spark.verify.comparison import open_comparison


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m cdcsync_spark.verify FILE\n")
        return ExitCode.USAGE
    signal.signal(signal.SIGTERM, _interrupted)
    config = VerifyConfig.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    try:
        results = open_comparison(config, _tell).run()
    except CdcError as e:
        return _refuse(e)
    except Exception as e:  # noqa: BLE001 (the exit report names any error)
        log_traceback()
        return _refuse(fail(Reason.INTERNAL_ERROR, f"{type(e).__name__}: {str(e)[:500]}"))
    for result in results:
        _tell(result)
    return verdict(results)


_speaking = threading.Lock()


def _tell(line: VerificationProgress | TableResult) -> None:
    with _speaking:
        sys.stdout.write(line.to_json() + "\n")
        sys.stdout.flush()


def _refuse(error: CdcError) -> int:
    sys.stderr.write(error.to_json() + "\n")
    return ExitCode.RETRY if isinstance(error, TransientError) else ExitCode.USER_MUST_ACT


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
