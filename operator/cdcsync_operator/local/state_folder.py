"""The folder of one sync on this machine: what is where, and that only one controller uses it.

    <state-dir>/<namespace>.<name>.yaml       the resource with its status
    <state-dir>/<namespace>.<name>.lock       held (flock) by the controller that runs
    <state-dir>/<namespace>.<name>/logs/      the driver log of each run
    <state-dir>/<namespace>.<name>/runs/ID/   a run's configuration, plan, scratch, until it ends
    <state-dir>/<namespace>.<name>/tables.json   the recorded table definitions
    <state-dir>/<namespace>.<name>/tables/       the tables of a status too large for one file

Everything but the driver logs can be deleted between two runs: the targets' commits are the truth
(rule R4).
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cdcsync_core.errors import Reason, fail

_LOCK_TRIES, _LOCK_PAUSE = 10, 0.05


@dataclass(frozen=True)
class StateFolder:
    root: Path
    namespace: str
    name: str

    @property
    def _base(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def state_file(self) -> Path:
        return self.root / f"{self._base}.yaml"

    @property
    def lock_file(self) -> Path:
        return self.root / f"{self._base}.lock"

    @property
    def folder(self) -> Path:
        return self.root / self._base

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def tables_file(self) -> Path:
        return self.folder / "tables.json"

    @property
    def table_shards(self) -> Path:
        return self.folder / "tables"

    def create(self) -> None:
        """For this user only: driver logs and scratch space hold rows."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.folder, self.logs, self.runs):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)

    def lock(self, tries: int = _LOCK_TRIES) -> IO[str]:
        """The held lock; it is released when the file is closed. Raises SinkConflict, naming the
        holder's pid."""
        self.create()
        file = self.lock_file.open("a+", encoding="utf-8")
        if not _locked(file, tries):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise fail(
                Reason.SINK_CONFLICT,
                f"another cdcsync run of {self.namespace}/{self.name} on {self.root} (pid {holder})",
                needed="one at a time",
                remedy="stop it first, or use its progress: cdcsync status",
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return file

    def is_locked(self) -> bool:
        """Whether a controller runs; for commands that only read."""
        if not self.lock_file.exists():
            return False
        with open(self.lock_file, encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False


def _locked(file: IO[str], tries: int) -> bool:
    """Tried for a moment: a command that only reads holds the lock for as long as that takes."""
    for _ in range(tries):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
        else:
            return True
    return False
