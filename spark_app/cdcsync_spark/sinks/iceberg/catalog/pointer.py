"""What catalogs have in common that only name the newest `metadata.json` of each table: a file of
SQLite, a Hive metastore, AWS Glue.

Why it is right: a commit writes the next `metadata.json`, durably and under a name that was never
used, and then has the catalog name it if it still names the file that the commit was decided on.
Dying between the two leaves a file that nothing names. Requirements are checked on the metadata of
that same file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_spark.sinks.iceberg.catalog.metadata_files import MetadataFiles, MetadataStores
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, Json, LoadedTable, NewTable

#: the parameters of a table in a metastore
NEWEST, _BEFORE = "metadata_location", "previous_metadata_location"
#: what engines write of the snapshot that they commit, which the next one makes untrue
_OF_A_SNAPSHOT = (
    "current-schema",
    "current-snapshot-id",
    "current-snapshot-summary",
    "current-snapshot-timestamp-ms",
    "numFiles",
    "numRows",
    "totalSize",
    "cdcsync.state",
)


class PointerCatalog(ABC):
    """See `Catalog`. Tables lie below `warehouse`, and are reached by `stores`."""

    warehouse: str
    stores: MetadataStores

    @abstractmethod
    def newest(self, table: CatalogTableName) -> str | None:
        """The place of a table's newest metadata; None where there is no table."""

    @abstractmethod
    def insert(self, table: CatalogTableName, metadata: Json, location: str) -> None:
        """Makes a table whose metadata are at `location`. Raises CommitLost where there is one."""

    @abstractmethod
    def move(self, table: CatalogTableName, before: str, after: Json, location: str) -> bool:
        """Names the metadata `after`, which are at `location`, if those at `before` still are
        named; False: they are not, and nothing was asked for. Raises CommitLost, and
        OutcomeUnknown, where the file at `location` may be named."""

    def load(self, table: CatalogTableName, attempts: int = 10) -> LoadedTable | None:
        location = self.newest(table)
        try:
            return None if location is None else LoadedTable(self.files.read(table, location))
        except CdcError:
            if attempts == 1 or self.newest(table) == location:
                raise
        return self.load(table, attempts - 1)  # a commit came meanwhile, by which that file may have gone

    def vended(self, table: CatalogTableName) -> Mapping[str, str]:
        """There are none."""
        return {}

    def create(self, table: CatalogTableName, new: NewTable) -> LoadedTable:
        metadata, location = self.files.create(table, new)
        self.insert(table, metadata, location)
        return LoadedTable(metadata)

    def commit(self, table: CatalogTableName, requirements: Sequence[Json], updates: Sequence[Json]) -> LoadedTable:
        location, files = self.newest(table), self.files
        if location is None:
            raise CommitLost("the table is not there any more")
        before, after, written = files.write_next(table, location, requirements, updates)
        if not self.move(table, location, after, written):
            files.delete(table, after["location"], written)
            raise CommitLost("another commit came first")
        files.delete_old(table, before, after)
        return LoadedTable(after)

    def unnamed(self, table: CatalogTableName, names: Sequence[str]) -> list[str]:
        location = self.newest(table)
        return [] if location is None else self.files.unnamed(table, location, names)

    @property
    def files(self) -> MetadataFiles:
        return MetadataFiles(self.stores, self.warehouse)


def first_parameters(metadata: Json, location: str) -> dict[str, str]:
    """The parameters of a new table in a metastore."""
    return {"EXTERNAL": "TRUE", "table_type": "ICEBERG", "uuid": metadata["table-uuid"], NEWEST: location}


def next_parameters(parameters: Mapping[str, str], before: str, location: str) -> dict[str, str]:
    """The parameters after a commit; what other programs set stays."""
    staying = {name: value for name, value in parameters.items() if name not in _OF_A_SNAPSHOT}
    return staying | {NEWEST: location, _BEFORE: before}


def location_in(parameters: Mapping[str, str], table: CatalogTableName) -> str:
    """The place of the newest metadata. Raises SinkConflict where this is no Iceberg table."""
    if str(parameters.get("table_type")).upper() != "ICEBERG" or not parameters.get(NEWEST):
        raise fail(
            Reason.SINK_CONFLICT,
            f"the metastore's table {table.shown} is no Iceberg table",
            needed="a table that this sync made, or none",
            remedy=f"drop it, or create the sync again with another namespace, {RUN_AGAIN}",
        )
    return str(parameters[NEWEST])
