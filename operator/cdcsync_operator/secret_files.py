"""Secrets as files for drivers: `<folder>/<secret>/<key>`, readable by this user only, gone at the end.

Why it exists: a driver reads credentials again at each reconnect, as it does from a mounted Secret on a cluster, so they must be in
files; why it is right: the folder is a fresh 0700 one outside the state folder, files are 0600 and replaced whole. Its user holds a lock in
it while it lives, so whoever makes the next one can tell a folder in use from one that a killed process left, and removes that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from cdcsync_core.manifest import Secrets
from cdcsync_operator.state_folder import write_atomically

_PREFIX = "cdcsync-secrets-"
_LOCK = ".in-use"
#: seconds in which a folder may be without its lock: it is being made
_MAKING = 60.0


class SecretFiles:
    """A folder of Secrets' files; `close` it."""

    def __init__(self) -> None:
        _remove_leftovers(Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._written: Secrets = {}

    def write(self, secrets: Secrets) -> None:
        """Makes the files equal to these Secrets."""
        if secrets == self._written:
            return
        for name in self._written.keys() - secrets.keys():
            shutil.rmtree(self.folder / name)
        for name, values in secrets.items():
            self._write_one(name, values.keys() - set(), secrets)
        self._written = secrets

    def _write_one(self, name: str, keys: set[str], secrets: Secrets) -> None:
        folder = self.folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        for stale in {p.name for p in folder.iterdir()} - keys:
            (folder / stale).unlink()
        for key in keys:
            write_atomically(folder / key, secrets[name][key].get_secret_value(), mode=0o600)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _remove_leftovers(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        if not folder.is_symlink() and folder.stat().st_uid == os.getuid() and not _in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _in_use(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime < _MAKING
    return False
