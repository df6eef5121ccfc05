"""Secrets as files for drivers: `<folder>/<secret>/<key>`, readable by this user only, gone at the end.

Why it exists: a driver reads credentials again at each reconnect, as it does from a mounted Secret on a cluster, so they must be in files;
why it is right: the folder is a fresh 0700 one outside the state folder, files are 0600 and replaced whole, and the next controller
removes the folder of one that was killed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from cdcsync_core.manifest import Secrets
from cdcsync_operator.state_folder import write_atomically

_PREFIX = "cdcsync-secrets-"


class SecretFiles:
    """`note` is a file that remembers the folder's name across controllers."""

    def __init__(self, note: Path) -> None:
        self._note = note
        self._remove_leftover()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        write_atomically(note, str(self.folder))
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
        self._note.unlink(missing_ok=True)

    def _remove_leftover(self) -> None:
        if not self._note.exists():
            return
        leftover = Path(self._note.read_text(encoding="utf-8").strip())
        if leftover.name.startswith(_PREFIX) and leftover.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(leftover, ignore_errors=True)
