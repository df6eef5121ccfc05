"""Runs a command and accounts for all that it starts: `python accounted.py RESULT COMMAND ...`.

Spark's JVM and its Python workers outlive the program that started them by a moment and are not its to wait for. Here they are adopted
(Linux: a subreaper, prctl(2)), waited for, and so counted by the operating system. RESULT gets `cpu` in seconds, `memory` (the largest
process's peak in MiB), `wall` in seconds until the command itself ended, and its `exit` code.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

_SET_CHILD_SUBREAPER = 36


def main(result: str, command: list[str]) -> int:
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - started
    _wait_for_the_rest()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss / 1024, "wall": wall, "exit": code}
    Path(result).write_text(json.dumps(figures))
    return code


def _wait_for_the_rest() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
