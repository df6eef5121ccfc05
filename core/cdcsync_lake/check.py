"""The check of a sink: can a lake be at this path, and may we do there what commits need?

Why it exists: a sink that is missing, closed or no lake should be reported before a pod is made,
with its remedy. Why it is right: nothing is concluded from policies; what a run will do is done
once, on an object of its own in `_cdcsync.probe` below the lake: no database has a folder of that
name, and readers pass over the underscore. The object's name is random, so that checks at the same
time do not disturb each other; what a check that died left behind is removed by a later one, an
hour after it was written. Nothing else is written, and no folder of the lake is made: one that is
not there yet is judged by the nearest folder above it.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import S3Store

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.topic_check import TopicChecks
from cdcsync_lake.failures import brief, store_error
from cdcsync_lake.location import Location

#: a folder of the lake, with an object for each check
PROBES = "_cdcsync.probe"
#: seconds after which a probe was left by a check that died
LEFTOVER_SECONDS = 3600.0
_PROBE = re.compile(r"[0-9a-f]{32}(\.new)?")
_CONTENT = b"cdcsync check"
_ATTEMPTS = 100
#: errors of file systems without hard links
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_REQUEST = {"timeout": "10s", "connect_timeout": "5s"}


@dataclass(frozen=True)
class SinkCheck:
    """What a check found at `uri`: `errors` in the order of the steps; `unchecked` is the reason
    why nothing was checked. `topics` is what was found of the sink's brokers, None where it has
    none, or where only drivers ask them."""

    uri: str
    errors: tuple[CdcError, ...] = ()
    unchecked: str = ""
    topics: TopicChecks | None = None

    @property
    def all_errors(self) -> tuple[CdcError, ...]:
        return self.errors + (self.topics.errors if self.topics else ())


def check_lake(location: Location, leftover_seconds: float = LEFTOVER_SECONDS) -> SinkCheck:
    """Tries what commits need; waits for a store that does not answer, but not for long. Raises no
    CdcError. Probes older than `leftover_seconds` were left by a check that died."""
    try:
        errors = _on_disk(location, leftover_seconds) if location.local else _in_store(location, leftover_seconds)
    except CdcError as error:
        errors = [error]
    return SinkCheck(location.uri, tuple(errors))


# ---- on a disk


def _on_disk(lake: Location, leftover: float) -> list[CdcError]:
    folder = Path(lake.root)
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise _no_lake(lake, f"{str(folder)!r} is no folder", "a folder, or a path where one can be made")
    _refuse_inside_a_table(lake, lambda above: Path(above, "_delta_log").is_dir())
    for attempt in range(_ATTEMPTS):
        try:
            _try_links(lake, folder / PROBES, leftover)
        except FileNotFoundError as error:  # another check has just removed the folder
            if attempt == _ATTEMPTS - 1:
                return [store_error(error, str(error), f"a check of {folder}")]
        except OSError as error:
            return [store_error(error, str(error), f"a check of {folder}")]
        else:
            break
    return []


def _try_links(lake: Location, probes: Path, leftover: float) -> None:
    """A commit is a hard link to a name that must be free."""
    with suppress(FileExistsError):
        probes.mkdir()
    _remove_old_files(probes, leftover)
    written, name = probes / f"{uuid.uuid4().hex}.new", probes / uuid.uuid4().hex
    try:
        written.write_bytes(_CONTENT)
        _link_twice(lake, written, name)
    finally:
        written.unlink(missing_ok=True)
        name.unlink(missing_ok=True)
        with suppress(OSError):  # another check is using it
            probes.rmdir()


def _link_twice(lake: Location, written: Path, name: Path) -> None:
    try:
        os.link(written, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        found = f"the file system of {lake.root} makes no hard links ({error.strerror})"
        needed = "hard links: commits are made by them"
        raise fail(Reason.SPEC_INVALID, found, needed=needed, remedy=_ELSEWHERE) from None
    try:
        os.link(written, name)
    except FileExistsError:
        return
    raise _unsupported_store(lake, "makes a hard link over a file that is there")


def _remove_old_files(probes: Path, leftover: float) -> None:
    for file in filter(_is_probe, probes.iterdir()):
        with suppress(OSError):  # another check removes it
            if time.time() - file.stat().st_mtime > leftover:
                file.unlink()


def _is_probe(name: Path) -> bool:
    return _PROBE.fullmatch(name.name) is not None


# ---- in an object store


def _in_store(lake: Location, leftover: float) -> list[CdcError]:
    store = _client(lake)
    folder = f"{lake.prefix}/{PROBES}" if lake.prefix else PROBES
    key = f"{folder}/{uuid.uuid4().hex}"
    listing = _tried(lake, "listing", lambda: _remove_old_objects(store, folder, leftover))
    if listing and listing.reason is not Reason.PRIVILEGE_MISSING:
        return [listing]
    nested = None if listing else _tried(lake, "listing", lambda: _refuse_inside_a_table(lake, _log_in(store)))
    writing = _tried(lake, "writing", lambda: _put_twice(lake, store, key))
    reading = None if writing else _tried(lake, "reading", lambda: obstore.get(store, key).bytes())
    deleting = _tried(lake, "deleting", lambda: _delete(store, key))
    # where nothing was written there is nothing to delete, and one refusal is enough
    return [e for e in (listing, nested, writing, reading, None if writing else deleting) if e]


def _tried(lake: Location, doing: str, step: Callable[[], object]) -> CdcError | None:
    """What the step ended in, as an error of the product without credentials in it."""
    try:
        step()
    except CdcError as error:
        return error
    except NotSupportedError:
        return _unsupported_store(lake, "does not know conditional puts")
    except (BaseError, OSError) as error:
        return store_error(error, lake.without_secrets(str(error)), f"{doing} in {lake.uri}")
    return None


def _put_twice(lake: Location, store: S3Store, key: str) -> None:
    """The first one is refused, too, where its answer was lost and the client sent it again: then
    it is there."""
    _put(store, key)
    if _put(store, key):
        raise _unsupported_store(lake, "overwrites an object that is put with If-None-Match: *")


def _put(store: S3Store, key: str) -> bool:
    """False: the name is taken."""
    try:
        obstore.put(store, key, _CONTENT, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    return True


def _delete(store: S3Store, key: str) -> None:
    with suppress(FileNotFoundError):
        obstore.delete(store, key)


def _remove_old_objects(store: S3Store, folder: str, leftover: float) -> None:
    for part in obstore.list(store, folder):
        for found in part:
            old = time.time() - found["last_modified"].timestamp() > leftover
            if old and _is_probe(Path(found["path"])):
                obstore.delete(store, found["path"])


def _log_in(store: S3Store) -> Callable[[str], bool]:
    """Whether a Delta log is in `bucket/prefix`."""

    def has_log(folder: str) -> bool:
        prefix = folder.partition("/")[2]
        found = obstore.list_with_delimiter(store, f"{prefix}/_delta_log" if prefix else "_delta_log")
        return bool(found["objects"])

    return has_log


def _client(lake: Location) -> S3Store:
    """With short timeouts: the answer is worth less than the time spent waiting for it."""
    retry = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
    try:
        return S3Store(lake.bucket, config=lake.store_config(), client_options=_REQUEST, retry_config=retry)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        found = f"no client can be made for {lake.uri}: {brief(lake.without_secrets(str(error)))}"
        remedy = "correct options in spec.sink, or the variables in its Secret"
        raise fail(Reason.SPEC_INVALID, found, remedy=remedy) from None


# ---- both


def _refuse_inside_a_table(lake: Location, has_log: Callable[[str], bool]) -> None:
    """The VACUUM of a Delta table removes what it does not know, at any depth."""
    above = lake.root
    while above:
        if has_log(above):
            found, needed = f"{above!r} is a Delta table", "a path outside of any table, whose VACUUM would remove ours"
            raise _no_lake(lake, found, needed)
        above = above.rpartition("/")[0]


_ELSEWHERE = "create the sync again with another path in spec.sink"


def _no_lake(lake: Location, found: str, needed: str) -> CdcError:
    return fail(Reason.SINK_CONFLICT, f"{lake.uri} cannot be a lake: {found}", needed=needed, remedy=_ELSEWHERE)


def _unsupported_store(lake: Location, fault: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the store of {lake.uri} {fault}",
        needed="one that refuses that: of two commits of one version one must fail",
        remedy="give a sink path in a store with conditional puts, or upgrade this one",
    )
