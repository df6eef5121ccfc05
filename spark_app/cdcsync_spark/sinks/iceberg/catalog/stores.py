"""The stores of tables' files, by the locations that a catalog gives.

Why it is right: a catalog chooses where a table lies. A folder is each machine's own, so a catalog
that names one that its manifest does not would have rows written where nobody looks for them; that
is refused, as is what no store has.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    def at(self, location: str, config: Mapping[str, str]) -> Store:
        """The store at a table's location. Raises CdcError. The catalog's own credentials, which
        would be in `config`, were not asked for."""
        try:
            found = Location.parse(_with_slashes(location), self.endpoint, self.region, self.secret_dir)
        except CdcError:
            raise _refused(location, "a location like s3://bucket/folder or /folder, without percent signs") from None
        if found.local and not self._is_inside(found.root):
            raise _refused(
                location,
                "an object store; or a folder below spec.sink.iceberg.catalog.warehouse, which names it for all runs",
            )
        return store_at(found)

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
