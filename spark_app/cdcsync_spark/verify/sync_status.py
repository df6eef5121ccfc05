"""The status of the sync whose targets are compared: of a file beside its shards, or of the
resource on a cluster beside its ConfigMaps.

Why it is right: what a status has is a lower bound of what the targets have, so an older one serves
where the present one cannot be read. Tables that lie in shards count only together with the status
that was written after them (`cdcsync_core.runs.table_shards`). The reading of a pair that changes
meanwhile is retried; where that does not end, the status is taken with the tables that it shows
itself, and the others are compared as of their own commits.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import yaml
from pydantic import ValidationError

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.spec import API_VERSION, Metadata
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_shards import with_shards
from cdcsync_kube.client import Api, ApiError

#: seconds for which a status counts as the present one; one whose tables lie in shards for as many
#: times that as it has shards of this size
_FRESH, _SHARD_TABLES = 1.0, 500
_TRIES, _PAUSE = 5, 0.2
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SyncStatus(Protocol):
    """The status of the sync whose targets are compared."""

    def read(self) -> Status: ...

    @property
    def running(self) -> bool:
        """Whether anything may bring the targets on."""
        ...


@dataclass(frozen=True)
class StatusFile:
    """The status beside the resource in `file`, and whether a controller holds `lock`. Files that
    are not there say nothing."""

    file: Path
    lock: Path

    def read(self) -> Status:
        return read_status(self.file)

    @property
    def running(self) -> bool:
        if not self.lock.is_file():
            return False
        descriptor = os.open(self.lock, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


@dataclass
class RecentStatus:
    """What `load` has given lately, or before it raised CdcError. Targets are brought on by a live
    stream."""

    load: Callable[[], Status]
    _loaded: tuple[float, Status] | None = field(default=None, init=False)

    def read(self) -> Status:
        if self._loaded is None:
            self._loaded = (time.monotonic(), self.load())
        elif time.monotonic() - self._loaded[0] >= _fresh_seconds(self._loaded[1]):
            with suppress(CdcError):
                self._loaded = (time.monotonic(), self.load())
        return self._loaded[1]

    @property
    def running(self) -> bool:
        return self.read().runs.stream is not None


def _fresh_seconds(status: Status) -> float:
    """Large ones are read less often, so that a verification does not weigh on the API server."""
    shards = -(-len(status.table_status) // _SHARD_TABLES) if status.table_digest else 0
    return _FRESH * (1 + shards)


# ---- of a file


def read_status(file: Path) -> Status:
    """That of a resource in YAML; the initial one where there is no such file. Its shards are in
    `tables` of the folder of its name."""
    shards = file.with_suffix("") / "tables"
    return _complete(lambda: _of_file(file), lambda: _texts(shards))


def _of_file(file: Path) -> Status:
    if not file.is_file():
        return Status()
    data = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 (a safe loader)
    return Status.model_validate(data.get("status") or {})


def _texts(folder: Path) -> Iterator[str]:
    with suppress(FileNotFoundError):  # the controller removes those that it needs no more
        for path in sorted(folder.glob("*.json")):
            yield path.read_text(encoding="utf-8")


# ---- of a resource on a cluster


def read_resource(api: Api, sync: Metadata) -> Status:
    """That of the resource; the initial one where another version wrote what cannot be read. Raises
    InternalError if the API server does not give it."""
    namespace = f"namespaces/{sync.namespace}"
    path = f"/apis/{API_VERSION}/{namespace}/cdcsyncs/{sync.name}"
    shards = f"/api/v1/{namespace}/configmaps/{sync.name}-tables-"

    def load() -> Status:
        try:
            return Status.model_validate(api.get(path).get("status") or {})
        except ApiError as error:
            raise fail(Reason.INTERNAL_ERROR, f"the status of the sync cannot be read: {error}") from None
        except ValidationError:
            return Status()

    def texts() -> Iterator[str]:
        with suppress(ApiError):  # there are no more of them, or the run's role has none
            for number in itertools.count():
                yield str((api.get(f"{shards}{number}").get("data") or {}).get("tables", ""))

    return _complete(load, texts)


# ---- both


def _complete(load: Callable[[], Status], shards: Callable[[], Iterable[str]]) -> Status:
    status = load()
    for _ in range(_TRIES):
        if not status.table_digest:
            return status
        complete = with_shards(status, itertools.islice(shards(), _entries(status)))
        if complete is not None:
            return complete
        time.sleep(_PAUSE)
        status = load()
    return status


def _entries(status: Status) -> int:
    """How many tables it has, which is at least as many as it has shards."""
    return status.tables.total + status.tables.unassigned
