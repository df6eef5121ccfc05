"""A lake under a prefix of a bucket of an S3-compatible object store.

A commit is a conditional put, which fails where the name is taken. That the store keeps this is
proved once per client, on a name of its own: one that takes a second put would lose commits without
a word.

Credentials are read from their files whenever the store is asked, so a rotated key is taken up, by
a client of its own; clients are kept, because each has its own connections.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pyarrow.fs as pafs
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.resource.networks import FILE_VARIABLE, VARIABLE, networks_of_the_run
from cdcsync_lake.checked_proxy import allowed_options, proxied
from cdcsync_lake.panics import requests_alone
from cdcsync_lake.probe import PROBES
from cdcsync_lake.proxy_process import ProxyProcess
from cdcsync_spark.sinks.lake.storage.store import LocatedStore, refuse_large

if TYPE_CHECKING:
    from obstore import ObjectMeta

#: files beyond this are sent in parts of it
_LARGE = 8 * 2**20
#: objects of a folder that is listed (30 days of commits by the second are 2,592,000), and the
#: seconds for it
MOST_NAMES, LONGEST_LISTING = 4_000_000, 1200.0
#: of lakes, or of tables where each has its own credentials: every client has its own connections
_CLIENTS = 64
#: how a client reaches its store: bucket and options
_Access = tuple[str, tuple[tuple[str, str], ...]]
#: by process and networks
_PROXIES: dict[tuple[int, str | None, str | None], ProxyProcess] = {}
_STARTING = threading.Lock()
#: clients whose store was seen to refuse a second put
_PROVEN: set[_Access] = set()


@dataclass(frozen=True)
class ObjectStore(LocatedStore):
    """See `Store`. There are no folders: a name is all that is kept."""

    @property
    def local_folder(self) -> Path | None:
        return None

    def storage_options(self) -> dict[str, str]:
        """A commit is a conditional put: the second of two writers of one version fails."""
        return {"AWS_CONDITIONAL_PUT": "etag"} | as_policy_allows(self.config())

    def config(self) -> dict[str, str]:
        """The options of its client, credentials among them, as they are now."""
        return self.location.store_config()

    def error(self, error: Exception, table: str, doing: str) -> CdcError:
        """Where the policy refused an address, that."""
        proxy = run_proxy()
        return (proxy and proxy.take_refusal()) or super().error(error, table, doing)

    def panic_error(self, table: str, doing: str) -> CdcError:
        """Where a request alone fails, too, what that fails with: its credentials may be wrong."""
        try:
            self.has(PROBES)
        except OSError as error:
            return self.error(error, table, doing)
        return super().panic_error(table, doing)

    def files(self) -> pafs.FileSystem:
        """Goes through delta-rs' own client, which holds up all threads of Python while it lists,
        deletes or opens a file."""
        return _file_system(self.uri, tuple(sorted(self.storage_options().items())))

    def read(self, relative: str) -> bytes | None:
        try:
            with _os_errors():
                answer = obstore.get(self._client(), self._key(relative))
                refuse_large(relative, answer.meta["size"])
                return bytes(answer.bytes())
        except FileNotFoundError:
            return None

    def has(self, relative: str) -> bool:
        try:
            with _os_errors():
                obstore.head(self._client(), self._key(relative))
        except FileNotFoundError:
            return False
        return True

    def listed(self, relative: str) -> dict[str, float | None]:
        """Asks for what is in the folders, too: an answer without them comes as a whole, however
        much it is."""
        times: dict[str, float | None] = {}
        inside = len(self._key(relative)) + 1
        for each in self._objects(relative):
            name, folder, _ = each["path"][inside:].partition("/")
            if not folder:
                times[name] = each["last_modified"].timestamp()
            else:
                times.setdefault(name, None)
        return times

    def _objects(self, relative: str) -> Iterator[ObjectMeta]:
        """All below a folder. Raises SinkConflict for more than any table has, OSError for a store
        that does not come to an end in time."""
        end, count = time.monotonic() + LONGEST_LISTING, 0
        with _os_errors():
            for part in obstore.list(self._client(), self._key(relative)):
                count += len(part)
                if count > MOST_NAMES:
                    raise _too_many(f"{self.uri}/{relative}")
                if time.monotonic() > end:
                    raise TimeoutError(f"no end of a listing within {LONGEST_LISTING:g} s")
                yield from part

    def linked(self, relative: str) -> bool:
        return False

    def delete(self, relative: str) -> None:
        with suppress(FileNotFoundError), _os_errors():
            obstore.delete(self._client(), self._key(relative))

    def delete_folder(self, relative: str) -> None:
        paths = [each["path"] for each in self._objects(relative)]
        with _os_errors():
            obstore.delete(self._client(), paths)

    def make_folder(self, relative: str) -> None:
        """There are none."""

    def make_durable(self, relatives: Iterable[str]) -> None:
        """They are."""

    @contextmanager
    def new_file(self, relative: str) -> Iterator[Path]:
        """Writes to the local disk first, so that an upload never sends half a file."""
        folder = Path(tempfile.mkdtemp(prefix="cdcsync-"))
        try:
            yield folder / "upload"
            self._upload(folder / "upload", relative)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _upload(self, source: Path, relative: str) -> None:
        """Sends one request unless the file is large."""
        with _os_errors():
            obstore.put(self._client(), self._key(relative), source, chunk_size=_LARGE)

    def put_new(self, relative: str, content: bytes) -> bool:
        """A client that sends again what was stored already learns that the name is taken: then the
        content decides."""
        client, key = self._client(), self._key(relative)
        with _os_errors():
            try:
                self._prove_exclusive()
                obstore.put(client, key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return bytes(obstore.get(client, key).bytes()) == content
        return True

    def _prove_exclusive(self) -> None:
        access = self._access()
        if access in _PROVEN:
            return
        client, key = _client(*access), self._key(f"{PROBES}/{uuid.uuid4().hex}")
        obstore.put(client, key, b"1", mode="create", use_multipart=False)
        try:
            obstore.put(client, key, b"2", mode="create", use_multipart=False)
        except AlreadyExistsError:
            _PROVEN.add(access)
        finally:
            with suppress(BaseError):  # the answer counts; a byte may stay
                obstore.delete(client, key)
        if access not in _PROVEN:
            raise fail(
                Reason.SPEC_INVALID,
                f"the store of {self.uri} overwrites an object that is put with If-None-Match: *",
                needed="one that refuses that: of two commits of one version one must fail",
                remedy="give a sink path in a store with conditional puts, or upgrade this one",
            )

    def _client(self) -> S3Store:
        return _client(*self._access())

    def _access(self) -> _Access:
        return self.location.bucket, tuple(sorted(self.storage_options().items()))

    def _key(self, relative: str) -> str:
        """In the bucket."""
        prefix = self.location.prefix
        return f"{prefix}/{relative}" if prefix else relative


def run_proxy() -> ProxyProcess | None:
    """The proxy of this process, by the policy of the pod's operator; None where there is none. A
    process that was forked has one of its own; one that ended has a successor."""
    if not networks_of_the_run():
        return None
    with _STARTING:
        key = os.getpid(), os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
        proxy = _PROXIES.get(key)
        if proxy is None or proxy.ended:
            proxy = _PROXIES[key] = ProxyProcess()
        return proxy


def as_policy_allows(config: dict[str, str]) -> dict[str, str]:
    """The options of a client that connects as the policy allows."""
    proxy = run_proxy()
    if proxy is None:
        return config
    allowed = allowed_options(config)
    return allowed | proxied(proxy.url, allowed)


def _too_many(folder: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"{folder} has more than {MOST_NAMES} objects",
        needed="a table's folder, and a store whose listings end",
        remedy=f"check options.endpoint of spec.sink; or remove objects that are no table's, {RUN_AGAIN}",
    )


@contextmanager
def _os_errors() -> Iterator[None]:
    """What the client raises as the operating system would; a file that is not there is
    FileNotFoundError already."""
    try:
        with requests_alone():
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
    from deltalake.fs import DeltaStorageHandler

    return pafs.PyFileSystem(DeltaStorageHandler(uri, dict(options)))
