"""Streams at rest in the benchmarks."""

from __future__ import annotations

import subprocess

from bench.accounted import Group
from support.sync_process import Sync


def start_within(sync: Sync, group: Group) -> None:
    """As `sync.start` does, in the control group."""
    with sync.output(1).open("wb") as output:
        sync._process = subprocess.Popen(
            sync.run_command("forever"),
            env=sync._environment(None),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=group.enter,  # noqa: PLW1509 (no thread of ours holds a lock)
            start_new_session=True,
        )
