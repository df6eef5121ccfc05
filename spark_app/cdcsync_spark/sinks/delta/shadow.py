"""A copy of a table's log in which another program may commit, and what it committed there, to be
entered into the real log.

Spark carries no state of ours in its commits, and on a disk its commit is a check and a rename,
which overwrites an entry that comes between [delta-storage, HDFSLogStore]. So it works in a shadow:
a folder inside the table's, with links to the Delta log's entries up to one version and to all the
table's files. To it the shadow is the table. Its entry is then completed by our state and
transaction and entered like every entry of ours, only if that version has no entry yet (rules R4,
R8); whatever the features of the table ask of an entry is in it, because the version that it
follows is the same. Its new files are moved, and durable, before.

Only on a disk: an object store has no links. A shadow that a kill left behind is removed by the
next one after a day.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from cdcsync_spark.sinks.delta.view import Action, TableView, actions_of
from cdcsync_spark.sinks.lake.deletion_vectors import Descriptor
from cdcsync_spark.sinks.lake.local_store import sync_path

_PREFIX = ".spark-"
_LOG = "_delta_log"
_VERSIONED = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet|checkpoint\..*json)")
_KEPT_SECONDS = 86400


@dataclass(frozen=True)
class Shadow:
    """The table in `root` as of `version`, at `folder`."""

    root: Path
    folder: Path
    version: int

    def committed(self) -> list[Action]:
        """The actions of the entry after `version`; none where there is none, or where another one
        follows it."""
        entry, second = (self.folder / _LOG / f"{self.version + n:020d}.json" for n in (1, 2))
        return list(actions_of(entry.read_bytes().decode())) if entry.exists() and not second.exists() else []

    def publish(self, paths: Iterable[str]) -> None:
        """Moves files that were written here into the table, and makes them durable."""
        folders = set()
        for path in paths:
            here, there = self.folder / path, self.root / path
            if not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                here.rename(there)
            sync_path(there)
            folders |= {there.parent, there.parent.parent}
        for folder in folders:
            sync_path(folder)


@contextmanager
def shadowed(root: Path, version: int) -> Iterator[Shadow]:
    """A shadow that is gone after the block."""
    _remove_old(root)
    shadow = Shadow(root, root / f"{_PREFIX}{uuid.uuid4().hex}", version)
    try:
        (shadow.folder / _LOG).mkdir(parents=True)
        _link(shadow)
        yield shadow
    finally:
        shutil.rmtree(shadow.folder, ignore_errors=True)


def _link(shadow: Shadow) -> None:
    for entry in os.scandir(shadow.root):
        if entry.name != _LOG and not entry.name.startswith("."):
            (shadow.folder / entry.name).symlink_to(Path("..") / entry.name)
    for entry in os.scandir(shadow.root / _LOG):
        found, link = _VERSIONED.fullmatch(entry.name), shadow.folder / _LOG / entry.name
        if found and int(found[1]) <= shadow.version:
            os.link(entry.path, link)
        elif entry.name == "_sidecars":
            link.symlink_to(entry.path)


def _remove_old(root: Path) -> None:
    for entry in os.scandir(root):
        if entry.name.startswith(_PREFIX) and time.time() - entry.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(entry.path, ignore_errors=True)


def new_paths(view: TableView, actions: Iterable[Action]) -> list[str]:
    """The files that `actions` name and `view` does not have, relative to the table."""
    known = set(_paths({"add": f.add} for f in view.files.values()))
    return sorted(set(_paths(actions)) - known)


def _paths(actions: Iterable[Action]) -> Iterator[str]:
    for named in (a.get("add") or a.get("cdc") for a in actions):
        if named is None:
            continue
        yield unquote(named["path"])
        vector = named.get("deletionVector")
        if vector and (path := Descriptor.from_dict(vector).path):
            yield path
