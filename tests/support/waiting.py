"""Waiting for what a process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def eventually(what: Callable[[], Any], log: Path | None = None) -> None:
    """`log` is shown where it does not become true within three minutes."""
    deadline = time.monotonic() + 180
    while not what():
        assert time.monotonic() < deadline, log.read_text() if log else "not in 180 s"
        time.sleep(0.05)
