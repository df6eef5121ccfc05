"""A lake in a folder of a file system, which may be a shared volume.

A file is durable when it, and the name of its folder, were flushed; a name appears with its whole
content by a hard link, which fails where the name is taken.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from cdcsync_spark.sinks.lake.storage.store import LocatedStore, refuse_large


@dataclass(frozen=True)
class LocalStore(LocatedStore):
    """See `Store`."""

    @property
    def local_folder(self) -> Path | None:
        return self._root

    @property
    def _root(self) -> Path:
        return Path(self.location.root)

    def storage_options(self) -> dict[str, str]:
        return {}

    def files(self) -> pafs.FileSystem:
        return pafs.SubTreeFileSystem(self.location.root, pafs.LocalFileSystem())

    def read(self, relative: str) -> bytes | None:
        try:
            with (self._root / relative).open("rb") as file:
                refuse_large(relative, os.fstat(file.fileno()).st_size)
                return file.read()
        except FileNotFoundError:
            return None

    def has(self, relative: str) -> bool:
        return (self._root / relative).exists()

    def listed(self, relative: str) -> dict[str, float | None]:
        times: dict[str, float | None] = {}
        with suppress(FileNotFoundError), os.scandir(self._root / relative) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    times[entry.name] = None if entry.is_dir() else entry.stat().st_mtime
        return times

    def linked(self, relative: str) -> bool:
        parts = Path(relative).parts
        return any(self._root.joinpath(*parts[:n]).is_symlink() for n in range(1, len(parts) + 1))

    def delete(self, relative: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / relative).unlink()

    def delete_folder(self, relative: str) -> None:
        if (folder := self._root / relative).exists():
            shutil.rmtree(folder)

    def make_folder(self, relative: str) -> None:
        _make_folder(self._root / relative)

    def make_durable(self, relatives: Iterable[str]) -> None:
        root, folders = self._root, set()
        for path in (root / relative for relative in relatives):
            with suppress(FileNotFoundError):  # another program has removed it since
                sync_path(path)
            folders |= {folder for folder in path.parents if folder == root or root in folder.parents}
        for folder in filter(Path.is_dir, folders):
            sync_path(folder)

    @contextmanager
    def new_file(self, relative: str) -> Iterator[Path]:
        target = self._root / relative
        try:
            _make_folder(target.parent)
            yield target
            sync_path(target)
            sync_path(target.parent)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def put_new(self, relative: str, content: bytes) -> bool:
        target = self._root / relative
        unnamed = target.parent / f".new-{uuid.uuid4().hex}"
        try:
            unnamed.write_bytes(content)
            sync_path(unnamed)
            os.link(unnamed, target)
        except FileExistsError:
            # a file server that was asked again after its answer was lost says so of our own link,
            # too
            if target.read_bytes() != content:
                return False
        finally:
            unnamed.unlink(missing_ok=True)
        sync_path(target.parent)
        return True


def _make_folder(folder: Path) -> None:
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for created in missing:
        sync_path(created.parent)


def sync_path(path: Path) -> None:
    """Makes a file, or a folder's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
