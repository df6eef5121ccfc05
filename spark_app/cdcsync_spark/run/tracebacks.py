"""A traceback in the driver log: other programs' messages are in it, which may hold what a terminal
acts on."""

from __future__ import annotations

import sys
import traceback

from cdcsync_core.quoting import visible


def log_traceback() -> None:
    """Writes the traceback of the exception at hand to stderr."""
    for line in traceback.format_exc().splitlines():
        sys.stderr.write(visible(line) + "\n")
