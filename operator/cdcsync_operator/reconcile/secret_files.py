"""Secrets as files for drivers: `<folder>/<secret>/<key>`, readable by this user only, gone at the
end.

Why it exists: a driver reads credentials again at each reconnect, as it does from a mounted Secret
on a cluster, so they must be in files; why it is right: the folder is a fresh 0700 one outside the
state folder, files are 0600 and replaced whole. A folder gets its name when its user holds a lock
on it, and the lock lives as long as the user: an unlocked folder was left by a killed process.
Cleaners of temporary files leave locked folders alone, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from cdcsync_core.resource.manifest import Secrets
from cdcsync_operator.reconcile.files import write_atomically

_PREFIX, _UNNAMED = "cdcsync-secrets-", "cdcsync-new-"


def remove_leftovers() -> None:
    """Removes the folders that killed processes left; for the start of a process. Others may make
    and remove folders meanwhile."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid() and not _in_use(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _in_use(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class LockedFolder:
    """A folder of temporary files that is in use as long as this lives; `close` it."""

    def __init__(self) -> None:
        unnamed = Path(tempfile.mkdtemp(prefix=_UNNAMED))
        try:
            self._lock = os.open(unnamed, os.O_RDONLY)
        except OSError:  # of open files, too, there is a limit
            unnamed.rmdir()
            raise
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unnamed.rename(unnamed.with_name(unnamed.name.replace(_UNNAMED, _PREFIX)))

    def close(self) -> None:
        """May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            os.close(descriptor)


class SecretFiles:
    """A folder of Secrets' files; `close` it. `within` is one that its user has locked: there, no
    file is kept open for it."""

    def __init__(self, within: Path | None = None) -> None:
        self._locked = LockedFolder() if within is None else None
        self.folder = self._locked.path if self._locked else Path(tempfile.mkdtemp(dir=within))
        self._written: Secrets | None = None

    def write(self, secrets: Secrets) -> None:
        """Makes the files equal to these Secrets."""
        if secrets == self._written:
            return
        self._written = None
        for stale in {p.name for p in self.folder.iterdir()} - secrets.keys():
            shutil.rmtree(self.folder / stale)
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
        if self._locked is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self._locked.close()
