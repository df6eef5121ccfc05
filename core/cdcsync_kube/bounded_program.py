"""A program that gives a login, run within a bound of time.

Why it is right: one that goes on ends with its whole group of processes, and the pipes are closed
without a read, because a process that left the group may hold them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: seconds in which the program has to end
SECONDS = 60.0


def run_bounded(
    arguments: Sequence[str],
    *,
    cwd: str | Path | None,
    env: Mapping[str, str],
    given: str | None = None,
    errors_shown: bool = False,
) -> tuple[int, str, str]:
    """Its code, output and errors, which are "" where they are shown at the terminal; `given` is
    its standard input, None for an empty one. Raises OSError."""
    with subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if errors_shown else subprocess.PIPE,
        cwd=cwd,
        env=env,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(given, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it did not end within {SECONDS:g} s (it may wait for a person or a network)") from None
        finally:
            _end(process)
    return process.returncode, output, errors or ""


def _end(process: subprocess.Popen[str]) -> None:
    """The group exists for as long as its leader is not waited for."""
    if process.returncode is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
