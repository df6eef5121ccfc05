"""The folder of a sync: for its user only, and for one controller at a time."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.reconcile.files import write_atomically
from unit.local.harness import LocalHarness


def test_a_command_that_only_reads_keeps_no_controller_from_starting(local: LocalHarness) -> None:
    """`lock` raises where another controller holds it."""
    local.state.lock().close()
    with local.state.lock_file.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (reader, fcntl.LOCK_UN)).start()
        local.state.lock(tries=600).close()


def test_the_state_of_a_sync_is_for_its_user_only(tmp_path: Path) -> None:
    """Driver logs and scratch space hold rows, and the machine may be shared; a folder that was
    there before, too."""
    folder = StateFolder(tmp_path / "new", "default", "shop")
    folder.folder.mkdir(parents=True, mode=0o755)
    folder.create()
    made = StateFolder(tmp_path / "made", "default", "shop")
    made.create()
    for private in (folder.folder, made.root, made.folder, made.logs, made.runs):
        assert private.stat().st_mode & 0o077 == 0, private
    write_atomically(made.state_file, "{}")
    assert made.state_file.stat().st_mode & 0o077 == 0
