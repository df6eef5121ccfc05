"""The store of a table whose catalog gives the credentials for its files.

Why it is right: the catalog is asked for them when the store is first used, and again before they
end, an end that it does not name counted as a quarter of an hour away. Where it gives none, the
identity of this process serves. They are kept in memory, are in no error, and the account of the
manifest is never sent where the catalog says: a store that has one is another.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs

from cdcsync_core.errors import CdcError
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.lake.storage.object_store import ObjectStore
from cdcsync_spark.sinks.lake.storage.read_only import ReadOnlyFiles

#: seconds before their end at which credentials are asked for again, the life of those that name no
#: end, until a catalog is asked again that did not answer, and that gave what has ended already
_MARGIN, _LIFE, _PAUSE, _LEAST = 300.0, 900.0, 10.0, 1.0
_END = "s3.session-token-expires-at-ms"
#: what Iceberg calls it, and the store's client
_NAMES = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
}
#: what makes a key, and the variables by which a process has a session's token
_PAIR = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
_TOKENS = frozenset({"AWS_SESSION_TOKEN", "AWS_TOKEN"})


class VendedCredentials:
    """The settings of a table's files that `ask` gives. Thread safe; picklable without them."""

    def __init__(self, ask: Callable[[], Mapping[str, str]], clock: Callable[[], float] = time.time) -> None:
        self._ask, self._clock = ask, clock
        self._lock = threading.Lock()
        self._settings: Mapping[str, str] = {}
        self._renewal = self._end = 0.0

    def __reduce__(self) -> tuple[type[VendedCredentials], tuple[Callable[[], Mapping[str, str]]]]:
        return type(self), (self._ask,)

    def settings(self) -> Mapping[str, str]:
        """The valid ones. Raises CdcError where the catalog gives none any more."""
        with self._lock:
            if self._clock() >= self._renewal:
                self._renew()
            return self._settings

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may have."""
        with self._lock:
            return tuple(value for name, value in self._settings.items() if name in _NAMES)

    def _renew(self) -> None:
        try:
            settings = self._ask()
        except CdcError:
            if self._clock() >= self._end:
                raise
            self._renewal = min(self._clock() + _PAUSE, self._end)
            return
        now = self._clock()
        self._settings, self._end = settings, _end(settings, now + _LIFE)
        self._renewal = max(self._end - _MARGIN, (now + self._end) / 2, now + _LEAST)


def _end(settings: Mapping[str, str], unnamed: float) -> float:
    """In unix seconds."""
    text = settings.get(_END, "")
    return int(text) / 1000 if text.isascii() and text.isdigit() and len(text) < 16 else unnamed


@dataclass(frozen=True)
class VendedStore(ObjectStore):
    """See `Store`. `location` may have the endpoint and the region of the manifest, which go before
    those of the catalog, and has no credentials."""

    vended: VendedCredentials = field(compare=False, repr=False)

    def config(self) -> dict[str, str]:
        return client_config(self.location, self.vended.settings())

    def files(self) -> pafs.FileSystem:
        """Each file is opened with the credentials of that time: a file system may be used for
        hours."""
        return pafs.PyFileSystem(_Renewing(super().files))

    def without_secrets(self, text: str) -> str:
        for secret in self.vended.secrets:
            text = text.replace(secret, "***") if len(secret) > 3 else text
        return text


def client_config(location: Location, settings: Mapping[str, str]) -> dict[str, str]:
    """The options of a client. What the catalog says of a place without a whole key for it is left
    out: the process's own identity goes nowhere by it. A client takes from the environment what its
    options do not have."""
    keys = {variable: settings[name] for name, variable in _NAMES.items() if name in settings}
    if not keys.keys() >= _PAIR:
        return location.store_config()
    if _TOKENS & os.environ.keys():
        keys = {"AWS_SESSION_TOKEN": "", **keys}  # in place of the process's own
    endpoint = location.endpoint or settings.get("s3.endpoint", "")
    region = location.region or settings.get("s3.region", "") or settings.get("client.region", "")
    return keys | Location(location.scheme, location.root, endpoint, region).store_config()


class _Renewing(ReadOnlyFiles):
    """Reads by the file system that `current` gives for each call."""

    def __init__(self, current: Callable[[], pafs.FileSystem]) -> None:
        self._current = current

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._current().open_input_file(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._current().open_input_stream(path)

    def normalize_path(self, path: str) -> str:
        return path

    def get_type_name(self) -> str:
        return "vended"

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return list(self._current().get_file_info(paths))
