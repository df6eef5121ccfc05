"""What the sink asks of an Iceberg catalog: one table is loaded, created, or changed by one
compare-and-set.

Requirements and updates are those of Iceberg's REST protocol, as JSON objects: a REST catalog takes
them as they are, and Iceberg's Java reads the same ones (`UpdateRequirementParser`,
`MetadataUpdateParser`) for catalogs without that protocol. Metadata are the JSON object of the
table's `metadata.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cdcsync_core.quoting import quoted

Json = Mapping[str, Any]


class CommitLost(Exception):
    """The catalog has refused a requirement: another commit came first. Nothing was changed."""


class OutcomeUnknown(Exception):
    """The catalog's answer to a commit was lost: it may have landed or not. The table is loaded
    again, and what it has decides; no file may be deleted before."""


@dataclass(frozen=True)
class CatalogTableName:
    """A table of a catalog; a namespace has one level or more."""

    namespace: tuple[str, ...]
    name: str

    @property
    def shown(self) -> str:
        """For messages."""
        return quoted(".".join((*self.namespace, self.name)))


@dataclass(frozen=True)
class LoadedTable:
    """A table as the catalog has it now."""

    metadata: Json


@dataclass(frozen=True)
class NewTable:
    """A table to be created: an Iceberg schema as its JSON object, format version and
    properties."""

    schema: Json
    format_version: int
    properties: Mapping[str, str]


class Catalog(Protocol):
    """One catalog. Picklable; opens nothing before its first call. Each method raises `CdcError`
    where the catalog cannot be used."""

    def load(self, table: CatalogTableName) -> LoadedTable | None:
        """None where the catalog has no such table."""
        ...

    def vended(self, table: CatalogTableName) -> Mapping[str, str]:
        """The settings for the table's files that the catalog gives to who asks for them,
        credentials among them, which are secret and may end; empty where it gives none."""
        ...

    def create(self, table: CatalogTableName, new: NewTable) -> LoadedTable:
        """Creates the table, and its namespace where that is missing and may be created. Raises
        `CommitLost` where another one has created the table first."""
        ...

    def commit(self, table: CatalogTableName, requirements: Sequence[Json], updates: Sequence[Json]) -> LoadedTable:
        """All updates, if all requirements hold, or none. Raises `CommitLost` and
        `OutcomeUnknown`."""
        ...

    def unnamed(self, table: CatalogTableName, names: Sequence[str]) -> list[str]:
        """The files of `names` in the folder `metadata` of a table that were written to be
        its `metadata.json` and that the catalog can never name any more; none where the catalog
        writes these files itself."""
        ...

    def drop(self, table: CatalogTableName) -> None:
        """Removes the table from the catalog and leaves its files. No such table is no error."""
        ...
