"""One table in a catalog, as the driver and the tasks reach it: its metadata, and the store with
its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.reserved_columns import ICEBERG, reserved_error
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.history.rows import HISTORY, refuse_other_mode
from cdcsync_spark.sinks.iceberg.catalog.port import Catalog, CatalogTableName
from cdcsync_spark.sinks.iceberg.table.metadata import (
    FORMAT_VERSION,
    FORMAT_VERSIONS,
    MAIN,
    TableMetadata,
    checked_metadata,
)
from cdcsync_spark.sinks.iceberg.table.schema import all_columns
from cdcsync_spark.sinks.iceberg.table.state import property_of
from cdcsync_spark.sinks.iceberg.table.view import DATA, VersionReader
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: branches of staged copies; their files lie in folders that clean-up of other programs passes by
BRANCH, FOLDER = "cdcsync-resnapshot-", "_resnapshot-"


class Stores(Protocol):
    """How tables' files are reached. Picklable."""

    def at(self, location: str, vended: Callable[[], Mapping[str, str]] | None = None) -> Store:
        """The store at a table's location; `vended` asks the catalog for its credentials."""
        ...


@dataclass(frozen=True)
class IcebergFolder(TableFolder):
    """The folder with the data files of a table, or of a staged copy; `lake` is at the table's
    location."""

    @property
    def root(self) -> str:
        return DATA

    @property
    def reader(self) -> VersionReader:
        return VersionReader(self.lake, self.folder)


@dataclass(frozen=True)
class Loaded:
    """A table as its catalog has it now."""

    metadata: TableMetadata


@dataclass(frozen=True)
class TablePlace:
    """The table `table`, or (with a `generation`) a staged copy of it, which is a branch of the
    same table. `events` are the metadata columns of a history table and of its staged copies; None
    for a replica. Picklable."""

    catalog: Catalog
    stores: Stores
    name: CatalogTableName
    sync: str
    table: TableId
    generation: int | None = None
    events: EventColumns | None = None
    format_version: int = FORMAT_VERSION

    @property
    def ref(self) -> str:
        return MAIN if self.generation is None else branch_of(self.generation)

    @property
    def staged(self) -> str:
        return "" if self.generation is None else folder_of(self.generation)

    def load(self) -> Loaded | None:
        """None where the catalog has no such table. Raises SinkConflict for a table of another
        format version or mode."""
        loaded = self.catalog.load(self.name)
        if loaded is None:
            return None
        metadata = checked_metadata(loaded.metadata, str(self))
        if metadata.format_version != self.format_version:
            raise self._other_version(metadata.format_version)
        if property_of(MAIN) in metadata.properties:  # another program's table is refused as that
            refuse_other_mode(metadata.properties.get(HISTORY), self.events, str(self), str(self.table))
        return Loaded(metadata)

    def folder(self, loaded: Loaded) -> IcebergFolder:
        store = self.stores.at(loaded.metadata.location, partial(self.catalog.vended, self.name))
        return IcebergFolder(store, self.sync, self.table, self.staged)

    def __str__(self) -> str:
        return ".".join((*self.name.namespace, self.name.name))

    def refuse_reserved(self, target: TargetSchema) -> None:
        """Raises SpecInvalid for a column that readers would take for a metadata column."""
        if error := reserved_error(all_columns(target, self.events).names, ICEBERG, str(self.table)):
            raise error

    def foreign_table_error(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the catalog's table {quoted(str(self))} is missing, or holds no state of {self.sync}: another program's "
            "table",
            needed="a table that this sync made, or none",
            remedy=f"drop it and its files, or create the sync again with another namespace, {RUN_AGAIN}",
            table=str(self.table),
        )

    def contention_error(self, attempts: int) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"{attempts} attempts to commit to {self} met other programs' commits, or had no answer",
            remedy="let other writers run less often",
            table=str(self.table),
        )

    def _other_version(self, version: int) -> CdcError:
        keep = f"set spec.sink.iceberg.formatVersion to {version}; or " if version in FORMAT_VERSIONS else ""
        return fail(
            Reason.SINK_CONFLICT,
            f"the table {quoted(str(self))} has the format version {version}",
            needed=f"format version {self.format_version}, as spec.sink.iceberg.formatVersion says: no table is upgraded",
            remedy=f"{keep}drop it and its files, or create the sync again with another namespace, {RUN_AGAIN}",
            table=str(self.table),
        )


def folder_of(generation: int) -> str:
    """The folder of a staged copy's files."""
    return f"{FOLDER}{generation}"


def branch_of(generation: int) -> str:
    """The branch of a staged copy."""
    return f"{BRANCH}{generation}"
