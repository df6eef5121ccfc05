"""The check of a lake in an object store: a commit is a conditional put."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import S3Store

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_lake.checked_proxy import allowed_options, proxied
from cdcsync_lake.failures import brief, store_error
from cdcsync_lake.location import Location
from cdcsync_lake.panics import requests_alone
from cdcsync_lake.probe import CONTENT, PROBES, is_probe, refuse_inside_a_table, unsupported_store

_REQUEST = {"timeout": "10s", "connect_timeout": "5s"}


def check_bucket(lake: Location, leftover: float, proxy: str) -> list[CdcError]:
    store = _client(lake, proxy)
    folder = f"{lake.prefix}/{PROBES}" if lake.prefix else PROBES
    key = f"{folder}/{uuid.uuid4().hex}"
    listing = _tried(lake, "listing", lambda: _remove_old_objects(store, folder, leftover))
    if listing and listing.reason is not Reason.PRIVILEGE_MISSING:
        return [listing]
    nested = None if listing else _tried(lake, "listing", lambda: refuse_inside_a_table(lake, _log_in(store)))
    writing = _tried(lake, "writing", lambda: _put_twice(lake, store, key))
    reading = None if writing else _tried(lake, "reading", lambda: obstore.get(store, key).bytes())
    deleting = _tried(lake, "deleting", lambda: _delete(store, key))
    # where nothing was written there is nothing to delete, and one refusal is enough
    return [e for e in (listing, nested, writing, reading, None if writing else deleting) if e]


def _tried(lake: Location, doing: str, step: Callable[[], object]) -> CdcError | None:
    """What the step ended in, as an error of the product without credentials in it."""
    try:
        with requests_alone():
            step()
    except CdcError as error:
        return error
    except NotSupportedError:
        return unsupported_store(lake, "does not know conditional puts")
    except (BaseError, OSError) as error:
        return store_error(error, lake.without_secrets(str(error)), f"{doing} in {lake.uri}")
    return None


def _put_twice(lake: Location, store: S3Store, key: str) -> None:
    """The first one is refused, too, where its answer was lost and the client sent it again: then
    it is there."""
    _put(store, key)
    if _put(store, key):
        raise unsupported_store(lake, "overwrites an object that is put with If-None-Match: *")


def _put(store: S3Store, key: str) -> bool:
    """False: the name is taken."""
    try:
        obstore.put(store, key, CONTENT, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    return True


def _delete(store: S3Store, key: str) -> None:
    with suppress(FileNotFoundError):
        obstore.delete(store, key)


def _remove_old_objects(store: S3Store, folder: str, leftover: float) -> None:
    for part in obstore.list(store, folder):
        for entry in part:
            old = time.time() - entry["last_modified"].timestamp() > leftover
            if old and is_probe(Path(entry["path"])):
                obstore.delete(store, entry["path"])


def _log_in(store: S3Store) -> Callable[[str], bool]:
    """Whether a Delta log is in `bucket/prefix`."""

    def has_log(folder: str) -> bool:
        prefix = folder.partition("/")[2]
        listing = obstore.list_with_delimiter(store, f"{prefix}/_delta_log" if prefix else "_delta_log")
        return bool(listing["objects"])

    return has_log


def _client(lake: Location, proxy: str) -> S3Store:
    """Short timeouts: the answer is worth less than the time spent waiting for it."""
    retry = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
    try:
        config = allowed_options(lake.store_config()) if proxy else lake.store_config()
        options = _REQUEST | (proxied(proxy, config) if proxy else {})
        return S3Store(lake.bucket, config=config, client_options=options, retry_config=retry)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        found = f"no client can be made for {lake.uri}: {brief(lake.without_secrets(str(error)))}"
        remedy = "correct options in spec.sink, or the variables in its Secret"
        raise fail(Reason.SPEC_INVALID, found, remedy=remedy) from None
