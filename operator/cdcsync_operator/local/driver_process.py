"""One driver as a child process: controlled by signals, its reports read from a pipe.

Why it is right:
- The driver leads a session of its own: a Ctrl-C in the terminal reaches the controller only, which
  drains it by SIGTERM.
- Reports come through an inherited pipe that belongs to this run alone. When the controller is gone
  the driver's next write fails, and it drains.
- A run holds a lock (flock on an inherited descriptor) as long as its process lives, whatever
  became of its controller, so the next controller knows for certain whether an old driver still
  writes; pids alone are reused.
- What a driver left in its process group (a JVM, Python workers) is killed while the dead leader's
  pid is still reserved as an unreaped child, so the group's number cannot belong to another
  process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.errors import Reason
from cdcsync_core.quoting import quoted
from cdcsync_core.runs.report import ExitReport
from cdcsync_core.runs.run import ExitCode, Report
from cdcsync_operator.decision.observed import Exit
from cdcsync_operator.local.oom import memory_limit, oom_kills
from cdcsync_operator.reconcile.files import write_whole

_LOCK = "alive.lock"
_PID = "driver.pid"
_TAIL_BYTES = 65536
_HEAP = "spec.driver.memory (spec.stream.driver.memory for a stream)"
#: reasons of a driver that only saw its JVM or a worker end
_UNEXPLAINED = frozenset({Reason.INTERNAL_ERROR.value})
#: to read what is left in the pipe of a driver that has ended, with all its children
_JOIN_SECONDS = 60.0


@dataclass(frozen=True)
class RunFiles:
    """What a driver is started with; `folder` is the run's own, `log` takes its output."""

    folder: Path
    log: Path

    @property
    def config(self) -> Path:
        return self.folder / "run.json"

    @property
    def plan(self) -> Path:
        return self.folder / "plan"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"


class DriverProcess:
    """A started driver. `on_report` is called in a thread for every report; `on_change` after each
    and at the end."""

    def __init__(
        self,
        command: Sequence[str],
        files: RunFiles,
        write_config: Callable[[int], None],
        on_report: Callable[[Report], None],
        on_change: Callable[[], None],
    ) -> None:
        self._files, self._on_report, self._on_change = files, on_report, on_change
        self._exit_report: ExitReport | None = None
        self._kills_before = oom_kills()
        self.exit: Exit | None = None
        read_end, write_end = os.pipe()
        lock = os.open(files.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            write_config(write_end)
            self._process = _spawn([*command, str(files.config)], files, (write_end, lock))
        finally:
            os.close(write_end)
            os.close(lock)
        write_whole(files.folder / _PID, str(self._process.pid))
        self._listener = _started(self._listen, read_end)
        self._watcher = _started(self._watch)

    @property
    def pid(self) -> int:
        return self._process.pid

    def drain(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the driver and everything that it started."""
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    # -- threads

    def _listen(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                report = _parse(line)
                if report is None:
                    continue
                self._exit_report = report.exit or self._exit_report
                self._on_report(report)
                self._on_change()

    def _watch(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self._listener.join(_JOIN_SECONDS)
        self.exit = self._outcome(code)
        self._on_change()

    def _outcome(self, code: int) -> Exit:
        report = self._exit_report
        out_of_memory = self._out_of_memory(code)
        if out_of_memory and (report is None or report.get("reason") in _UNEXPLAINED):
            return Exit(ExitCode.RETRY, Reason.OUT_OF_MEMORY.value, out_of_memory)
        if report is not None:
            message = " ".join(str(report.get("message", "")).split())  # a line in a condition is one failure
            return Exit(int(str(report.get("code", code))), str(report.get("reason", "")), message)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        lost = f"the driver {how} without an exit report; see {self._files.log}"
        return Exit(ExitCode.RETRY, Reason.DRIVER_LOST.value, lost)

    def _out_of_memory(self, code: int) -> str:
        """How it ran out of memory; empty where it did not, as far as that is known: the kernel may
        have ended the driver, or a process of it, which the driver reports."""
        end = _log_end(self._files.log)
        if code != 0 and oom_kills() > self._kills_before:
            what = f"the kernel ended it, or a process of it, for want of memory: there are {memory_limit() >> 20} MiB"
            remedy = f"give it more memory, or lower {_HEAP}, the heap of its JVM, which is a part of it"
        elif code != 0 and "java.lang.OutOfMemoryError" in end:
            what, remedy = "the heap of its JVM is full", f"raise {_HEAP}"
        else:
            return ""
        last = next((line for line in reversed(end.splitlines()) if line.strip()), "")
        doing = f"; the last line of its log: {quoted(last.strip())}" if last else ""
        return f"the driver ran out of memory: {what}{doing}; remedy: {remedy}; see {self._files.log}"


def _started(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _spawn(command: Sequence[str], files: RunFiles, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    files.scratch.mkdir(parents=True, exist_ok=True)
    with files.log.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            start_new_session=True,
        )


def _parse(line: str) -> Report | None:
    """None for a line that a dying driver did not finish."""
    try:
        return Report.from_json(line)
    except (json.JSONDecodeError, TypeError):
        return None


def _log_end(log: Path) -> str:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""


# ---- a run of a controller that is gone


def still_alive(folder: Path) -> bool:
    """Whether the driver of this run still lives, by its lock."""
    path = folder / _LOCK
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def kill_orphan(folder: Path) -> None:
    """Ends a driver whose controller is gone and which does not drain; its lock proves that the pid
    is its own."""
    path = folder / _PID
    if path.exists() and still_alive(folder):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.killpg(int(path.read_text(encoding="utf-8")), signal.SIGKILL)
