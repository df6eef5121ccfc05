"""The store of a lake's path. A further kind of store is one class and one row here; what reaches
object stores is loaded where there is one."""

from __future__ import annotations

from collections.abc import Callable

from cdcsync_core.errors import CdcError
from cdcsync_lake.check import check_lake
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.store import Store


def _object_store(location: Location) -> Store:
    from cdcsync_spark.sinks.lake.storage.object_store import ObjectStore

    return ObjectStore(location)


_KINDS: dict[str, Callable[[Location], Store]] = {"file": LocalStore, "s3": _object_store}


def open_store(path: str, endpoint: str = "", region: str = "", secret_dir: str = "") -> Store:
    """The store at `path`, which nothing asks yet; raises `SpecInvalid` for a path or a kind of
    store that is not supported."""
    return store_at(Location.parse(path, endpoint, region, secret_dir))


def store_at(location: Location) -> Store:
    return _KINDS[location.scheme](location)


def store_errors(location: Location) -> tuple[CdcError, ...]:
    """What the check of a lake finds, reached as its store is reached."""
    if location.local:
        return check_lake(location).errors
    from cdcsync_spark.sinks.lake.storage.object_store import run_proxy

    proxy = run_proxy()
    errors = check_lake(location, proxy=proxy.url if proxy else "").errors
    refusal = proxy.take_refusal() if proxy else None
    return (refusal,) if refusal else errors
