"""The stores of tables' files, by the locations that a catalog gives.

Why it is right: a catalog chooses where a table lies. A folder is each machine's own, so a catalog
that names one that its manifest does not would have rows written where no reader looks for them;
that is refused, as is what no store has. Credentials that the catalog gives are asked for where the
manifest has none, and go where the catalog says; the manifest's go to its own endpoint only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import store_at


@dataclass(frozen=True)
class TableStores:
    """The stores of tables' files: object stores with `endpoint`, `region` and the credentials in
    `secret_dir`, or folders below `folder`, empty where the manifest names none."""

    endpoint: str = ""
    region: str = ""
    secret_dir: str = ""
    folder: str = ""

    def at(self, location: str, vended: Callable[[], Mapping[str, str]] | None = None) -> Store:
        """The store at a table's location; `vended` asks the catalog for its credentials, which
        serve where the manifest has none. Raises CdcError."""
        try:
            place = Location.parse(_with_slashes(location), self.endpoint, self.region, self.secret_dir)
        except CdcError:
            raise _refused(location, "a location like s3://bucket/folder or /folder, without percent signs") from None
        if place.local and not self._is_inside(place.root):
            raise _refused(
                location,
                "an object store; or a folder below spec.sink.iceberg.catalog.warehouse, which names it for all runs",
            )
        if place.local or vended is None or self.secret_dir:
            return store_at(place)
        from cdcsync_spark.sinks.iceberg.catalog.vended_store import VendedCredentials, VendedStore

        return VendedStore(place, VendedCredentials(vended))

    def _is_inside(self, folder: str) -> bool:
        if not self.folder:
            return False
        warehouse = Location.parse(_with_slashes(self.folder))
        return warehouse.local and PurePosixPath(folder).is_relative_to(warehouse.root)


def _with_slashes(location: str) -> str:
    """Java writes `file:/folder`, too."""
    if location.startswith("file:") and not location.startswith("file://"):
        return location.removeprefix("file:")
    return location


def _refused(location: str, needed: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the catalog puts a table at {quoted(location)}",
        needed=needed,
        remedy=f"give the warehouse, or the namespace, another location in the catalog, {RUN_AGAIN}",
    )
