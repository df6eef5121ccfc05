"""A traceback in the driver log: other programs' messages are in it, which may hold what a terminal
acts on."""

from __future__ import annotations

import sys
import traceback

from cdcsync_core.quoting import visible


def log_traceback() -> None:
    """Of the exception at hand, on stderr."""
    for line in traceback.format_exc().splitlines():
        sys.stderr.write(visible(line) + "\n")
