"""Where a lake is: names to paths, credentials at use, files on a disk or in an object store.

A table's folder is injective in its name: letters, digits, `_` and `-` stay, every other byte of
the UTF-8 name becomes `@` and two hexadecimal digits; so does the first of `_delta_log`, which
inside a lake means something else. The escape is not `%`, because delta-rs decodes percent signs in
a table's location, twice for some of its requests: a database called `..` would leave the lake. For
the same reason a lake whose own path holds a `%` is refused (`Location`). On a store that ignores
case `Orders` and `orders` meet in one folder; then the second one finds a table of another identity
and stops with `SinkConflict`: nothing is mixed.

Credentials are read from their files whenever a store is asked, so a rotated key is taken up, by a
client of its own; clients are kept, because each has its own connections.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import obstore
import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_lake.check import PROBES
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.lake.store_errors import sink_error

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_LOG = "_delta_log"
#: names longer than this are cut and closed with their hash; file systems allow 255 bytes
_LONGEST = 180
#: files beyond this are sent in parts of it
_LARGE = 8 * 2**20
#: of lakes, not of tables: every client has its own connections
_CLIENTS = 8
#: how a client reaches its store: bucket and options
_Access = tuple[str, tuple[tuple[str, str], ...]]
#: whose store was seen to refuse a second put
_PROVEN: set[_Access] = set()


def segment(name: str) -> str:
    """A database's or table's name as one folder name; different names never share one (see above
    for case)."""
    if name == _LOG:
        return f"@5F{_LOG[1:]}"
    escaped = "".join(chr(b) if b in _SAFE else f"@{b:02X}" for b in name.encode())
    if len(escaped) <= _LONGEST:
        return escaped
    cut = re.sub("@.?$", "", escaped[: _LONGEST - 66])
    return f"{cut}@@{hashlib.sha256(name.encode()).hexdigest()}"


@dataclass(frozen=True)
class Place(Location):
    """A lake's root with its files, or a folder of it."""

    def below(self, relative: str) -> Place:
        """The folder `relative` of this place, as a place."""
        return replace(self, root=f"{self.root}/{relative}")

    def storage_options(self) -> dict[str, str]:
        """What delta-rs needs for the store. A commit is a conditional put: the second of two
        writers of one version fails."""
        return {} if self.local else {"AWS_CONDITIONAL_PUT": "etag"} | self.store_config()

    def files(self) -> pafs.FileSystem:
        """The place as a file system whose paths are relative to it, for Arrow to read from. Remote
        ones go through delta-rs' own client, which holds up all threads of Python while it lists,
        deletes or opens a file."""
        if self.local:
            return pafs.SubTreeFileSystem(self.root, pafs.LocalFileSystem())
        return _file_system(self.uri, tuple(sorted(self.storage_options().items())))

    def read(self, relative: str) -> bytes | None:
        """A whole small file, by one request; None where it is not there."""
        try:
            if self.local:
                return Path(self.root, relative).read_bytes()
            with _os_errors():
                return bytes(obstore.get(self._store(), self._key(relative)).bytes())
        except FileNotFoundError:
            return None

    def has(self, relative: str) -> bool:
        """Whether a file is there."""
        if self.local:
            return Path(self.root, relative).exists()
        try:
            with _os_errors():
                obstore.head(self._store(), self._key(relative))
        except FileNotFoundError:
            return False
        return True

    def listed(self, relative: str) -> dict[str, float | None]:
        """The names in a folder with the time at which each file was written, in unix seconds; None
        for a folder. Empty where there is no folder."""
        if self.local:
            return _listed(Path(self.root, relative))
        with _os_errors():
            found = obstore.list_with_delimiter(self._store(), self._key(relative))
        folders = dict.fromkeys(map(_last, found["common_prefixes"]))
        return folders | {_last(o["path"]): o["last_modified"].timestamp() for o in found["objects"]}

    def linked(self, relative: str) -> bool:
        """Whether a part of this path is a symbolic link: it may lead out of this place. An object
        store has none."""
        parts = Path(relative).parts
        return self.local and any(Path(self.root, *parts[:n]).is_symlink() for n in range(1, len(parts) + 1))

    def delete(self, relative: str) -> None:
        """A file; one that is not there is no error."""
        with suppress(FileNotFoundError), _os_errors():
            if self.local:
                Path(self.root, relative).unlink()
            else:
                obstore.delete(self._store(), self._key(relative))

    def delete_folder(self, relative: str) -> None:
        """With all that is in it; one that is not there is no error."""
        if not self.local:
            with _os_errors():
                store = self._store()
                obstore.delete(store, [o["path"] for part in obstore.list(store, self._key(relative)) for o in part])
        elif (folder := Path(self.root, relative)).exists():
            shutil.rmtree(folder)

    def make_folder(self, relative: str) -> None:
        """Durable, with the folders above it; an object store has none."""
        if self.local:
            _make_folder(Path(self.root, relative))

    def make_durable(self, relatives: Iterable[str]) -> None:
        """Files that another program wrote in this place, and the names of the folders on their
        way; an object store does that by itself."""
        if not self.local:
            return
        root, folders = Path(self.root), set()
        for path in (root / relative for relative in relatives):
            with suppress(FileNotFoundError):  # another program has removed it since
                sync_path(path)
            folders |= {folder for folder in path.parents if folder == root or root in folder.parents}
        for folder in filter(Path.is_dir, folders):
            sync_path(folder)

    @contextmanager
    def new_file(self, relative: str) -> Iterator[Path]:
        """A local path to write; when the block ends well the file is in this place and durable,
        else nothing is.

        `relative` must be a name that nobody used. A remote file goes through the local disk, so
        that an upload never sees half a file.
        """
        target = Path(self.root, relative) if self.local else Path(tempfile.mkdtemp(prefix="cdcsync-")) / "upload"
        try:
            if self.local:
                _make_folder(target.parent)
            yield target
            if self.local:
                sync_path(target)
                sync_path(target.parent)
            else:
                self._upload(target, relative)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        finally:
            if not self.local:
                shutil.rmtree(target.parent, ignore_errors=True)

    def put_new(self, relative: str, content: bytes) -> bool:
        """Writes a whole file durably if none of that name is there; False: there is one.

        The name appears with all of the content or not at all: by a hard link on a disk, by a
        conditional put in an object store. Its folder must be there: one that was taken away is not
        made again for it.
        """
        return self._link_new(Path(self.root, relative), content) if self.local else self._store_new(relative, content)

    def _link_new(self, target: Path, content: bytes) -> bool:
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

    def _store_new(self, relative: str, content: bytes) -> bool:
        """A client that sends again what was stored already is told that the name is taken: then
        the content decides."""
        store, key = self._store(), self._key(relative)
        with _os_errors():
            try:
                self._prove_exclusive()
                obstore.put(store, key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return bytes(obstore.get(store, key).bytes()) == content
        return True

    def _prove_exclusive(self) -> None:
        """Once per client, on a name of its own: a store that takes the second put, too, would lose
        commits without a word."""
        access = self._access()
        if access in _PROVEN:
            return
        store, key = _client(*access), self._key(f"{PROBES}/{uuid.uuid4().hex}")
        obstore.put(store, key, b"1", mode="create", use_multipart=False)
        try:
            obstore.put(store, key, b"2", mode="create", use_multipart=False)
        except AlreadyExistsError:
            _PROVEN.add(access)
        finally:
            with suppress(BaseError):  # the answer counts; a byte may stay
                obstore.delete(store, key)
        if access not in _PROVEN:
            raise fail(
                Reason.SPEC_INVALID,
                f"the store of {self.uri} overwrites an object that is put with If-None-Match: *",
                needed="one that refuses that: of two commits of one version one must fail",
                remedy="give a sink path in a store with conditional puts, or upgrade this one",
            )

    def _store(self) -> S3Store:
        return _client(*self._access())

    def _access(self) -> _Access:
        return self.root.partition("/")[0], tuple(sorted(self.storage_options().items()))

    def _key(self, relative: str) -> str:
        """In the bucket."""
        prefix = self.root.partition("/")[2]
        return f"{prefix}/{relative}" if prefix else relative

    def _upload(self, source: Path, relative: str) -> None:
        """By one request unless the file is large."""
        with _os_errors():
            obstore.put(self._store(), self._key(relative), source, chunk_size=_LARGE)

    @contextmanager
    def failing_clearly(self, table: str, doing: str) -> Iterator[None]:
        """Turns what clients and the operating system raise into the product's errors, without
        credentials in them."""
        try:
            yield
        except CdcError:
            raise
        except (OSError, DeltaError) as error:
            raise self.error(error, table, doing) from None

    def error(self, error: Exception, table: str, doing: str) -> CdcError:
        return sink_error(error, self.without_secrets(str(error)), f"{doing} in {self.uri}", table)


@contextmanager
def _os_errors() -> Iterator[None]:
    """What the client raises as the operating system would; a file that is not there is
    FileNotFoundError already."""
    try:
        yield
    except BaseError as error:
        raise OSError(str(error)) from None


@lru_cache(maxsize=_CLIENTS)
def _client(bucket: str, options: tuple[tuple[str, str], ...]) -> S3Store:
    # a conditional put is the default there, and its name one that it does not know
    config = {name: value for name, value in options if name != "AWS_CONDITIONAL_PUT"}
    return S3Store(bucket, config=config)  # type: ignore[arg-type]


@lru_cache(maxsize=_CLIENTS)
def _file_system(uri: str, options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    return pafs.PyFileSystem(DeltaStorageHandler(uri, dict(options)))


def _listed(folder: Path) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it went meanwhile
                found[entry.name] = None if entry.is_dir() else entry.stat().st_mtime
    return found


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _make_folder(folder: Path) -> None:
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_path(made.parent)


def sync_path(path: Path) -> None:
    """Makes a file, or a folder's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
