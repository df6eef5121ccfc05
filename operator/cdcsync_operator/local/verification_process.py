"""A verification as a child process: `python -m cdcsync_spark.verify`, read line by line.

Why a process: the comparison belongs to the Spark side, which the operator does not import. Why it
is right: the child leads a session of its own and is ended with its workers when this process is
interrupted; its Secrets come as files, its configuration as a file, and everything that it writes
is in a folder that goes with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail, from_json
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.verification import ReaderName, TableResult, VerificationProgress, VerifyConfig, parse_line
from cdcsync_operator.local.state_folder import StateFolder

COMMAND = (sys.executable, "-m", "cdcsync_spark.verify")
_END_SECONDS = 5.0
_TAIL = 2000


def verify_config(
    resource: CdcSync,
    secrets_dir: Path,
    state_dir: Path,
    limit: int,
    timeout: float,
    reader: ReaderName = ReaderName.CDCSYNC,
) -> VerifyConfig:
    """`scratch_dir` is filled in when the process starts."""
    folder = StateFolder(state_dir.resolve(), resource.metadata.namespace, resource.metadata.name)
    return VerifyConfig(
        resource.to_dict(), str(secrets_dir), str(folder.state_file), str(folder.lock_file), "", limit, timeout, reader
    )


class Verification:
    """One verification. `run` once; `end`, from another thread, ends it early."""

    def __init__(self, config: VerifyConfig, command: tuple[str, ...] = COMMAND) -> None:
        self._config, self._command = config, command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def run(self, on_progress: Callable[[VerificationProgress], None]) -> list[TableResult]:
        """The results of all tables, in the order of their names. Raises CdcError for what concerns
        all of them."""
        scratch_root = Path(self._config.status_file).parent
        scratch_root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch_root, prefix=".verify-") as scratch:
            folder = Path(scratch)
            config, log = folder / "config.json", folder / "stderr.txt"
            config.write_text(replace(self._config, scratch_dir=str(folder)).to_json(), encoding="utf-8")
            with self._started([*self._command, str(config)], log) as process:
                results = list(_results(process, on_progress))
                code = process.wait()
            if not results and code != ExitCode.DONE:
                raise _exit_report(log, code)
        return sorted(results, key=lambda r: r.table)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._process is not None:
                _end(self._process)

    @contextmanager
    def _started(self, command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
        """The child, which does not outlive the block, nor do the processes that it started."""
        with log.open("wb") as errors, self._lock:
            if self._ended:
                raise fail(Reason.INTERNAL_ERROR, "the verification was ended")
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with self._lock:
                _end(process)
            if process.stdout:
                process.stdout.close()


def _results(
    process: subprocess.Popen[str], on_progress: Callable[[VerificationProgress], None]
) -> Iterator[TableResult]:
    assert process.stdout
    for line in process.stdout:
        report = parse_line(line)
        if isinstance(report, VerificationProgress):
            on_progress(report)
        else:
            yield report


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    if process.poll() is None:
        # not reaped yet, so the number still is this group's
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _exit_report(log: Path, code: int) -> CdcError:
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = text.strip().splitlines()
    with contextlib.suppress(ValueError, KeyError):
        return from_json(lines[-1] if lines else "")
    return fail(
        Reason.INTERNAL_ERROR,
        f"the verification ended with code {code}: {text[-_TAIL:].strip()}",
        remedy="report this",
    )
