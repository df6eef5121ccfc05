"""The `metadata.json` files of tables, for a catalog that only names the newest one of each.

Why it is right: a version is written durably and under a name that was never used, before the
catalog names it. Requirements are checked on the metadata of the file that the commit was decided
on. A file is removed here only if no catalog can name it any more.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.quoting import quoted
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.iceberg.catalog.metadata_updates import Metadata, check_requirements, new_metadata, updated
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, Json, NewTable
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.storage.store import Store

#: of the memory, for a table's metadata once they are parsed
_SHARE = 4
_FOLDER = "metadata"
_NAME = re.compile(r"\d{5,9}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.metadata\.json")
_DELETES = "write.metadata.delete-after-commit.enabled"


class MetadataStores(Protocol):
    """How tables' files are reached. Picklable."""

    def at(self, location: str) -> Store:
        """The store at a table's location."""
        ...


@dataclass(frozen=True)
class MetadataFiles:
    """Tables are made below `warehouse`."""

    stores: MetadataStores
    warehouse: str

    def create(self, table: CatalogTableName, new: NewTable) -> tuple[Metadata, str]:
        """Writes the metadata of a new table: they and their place. Its folder is one that no table
        had before: the files of a table that was removed stay."""
        identity = str(uuid.uuid4())
        folder = "/".join(map(segment, (*table.namespace, table.name)))
        place = f"{_rooted(self.warehouse)}/{folder}-{identity[:8]}"
        metadata = new_metadata(new.schema, new.format_version, new.properties, place, identity)
        metadata["last-updated-ms"] = _milliseconds()
        return metadata, self._write(table, metadata, 0)

    def read(self, table: CatalogTableName, location: str) -> Metadata:
        """The metadata at a place. Raises CdcError."""
        place, _, name = location.rpartition(f"/{_FOLDER}/")
        if not place or "/" in name:
            raise _unreadable(table, location)
        store = self.stores.at(place)
        with store.translating_errors(table.shown, "reading the metadata"):
            content = store.read(f"{_FOLDER}/{name}")
        try:
            metadata = parse_json(content or b"", most=memory_limit() // _SHARE)
        except ValueError:
            metadata = None
        if not isinstance(metadata, dict) or str(metadata.get("location")).rstrip("/") != place:
            raise _unreadable(table, location)
        return metadata

    def write_next(
        self, table: CatalogTableName, location: str, requirements: Sequence[Json], updates: Sequence[Json]
    ) -> tuple[Metadata, Metadata, str]:
        """Writes the metadata after the updates to those at `location`: those of before, those of
        after, and their place. Raises CommitLost."""
        before = self.read(table, location)
        check_requirements(before, requirements)
        after = updated(before, updates, _milliseconds(), location)
        return before, after, self._write(table, after, _number(location) + 1)

    def _write(self, table: CatalogTableName, metadata: Json, number: int) -> str:
        place, name = metadata["location"].rstrip("/"), f"{number:05d}-{uuid.uuid4()}.metadata.json"
        store = self.stores.at(place)
        with (
            store.translating_errors(table.shown, "writing the metadata"),
            store.new_file(f"{_FOLDER}/{name}") as local,
        ):
            local.write_text(json.dumps(metadata, separators=(",", ":")), encoding="utf-8")
        return f"{place}/{_FOLDER}/{name}"

    def delete(self, table: CatalogTableName, place: str, location: str) -> None:
        """What became of a commit is decided already, so a file that stays is no error."""
        with suppress(CdcError):
            store = self.stores.at(place)
            with store.translating_errors(table.shown, "removing metadata"):
                store.delete(f"{_FOLDER}/{location.rpartition('/')[2]}")

    def delete_old(self, table: CatalogTableName, before: Json, after: Json) -> None:
        """The files that the metadata do not name any more, where the table's properties say so."""
        if after["properties"].get(_DELETES) != "true":
            return
        named = {entry["metadata-file"] for entry in after["metadata-log"]}
        folder = f"{after['location'].rstrip('/')}/{_FOLDER}/"
        for entry in before.get("metadata-log", []):
            if entry["metadata-file"] not in named and entry["metadata-file"].startswith(folder):
                self.delete(table, after["location"], entry["metadata-file"])

    def unnamed(self, table: CatalogTableName, location: str, names: Sequence[str]) -> list[str]:
        """The files of `names` that no catalog can name any more, where the table's
        properties say that such files go; `location` is the place of its newest metadata. A file
        has the number after that of the file which the catalog has to name until it is named
        itself, in Iceberg's own catalogs, too."""
        metadata = self.read(table, location)
        if metadata.get("properties", {}).get(_DELETES) != "true":
            return []
        logged = {entry["metadata-file"].rpartition("/")[2] for entry in metadata.get("metadata-log", [])}
        numbered = (name for name in names if _NAME.fullmatch(name) and _number(name) <= _number(location))
        return [name for name in numbered if name not in logged and not location.endswith(f"/{name}")]


def _unreadable(table: CatalogTableName, location: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the metadata of the table {table.shown} are not at {quoted(location)}, or cannot be read",
        needed=f"a table's metadata in the folder {_FOLDER} of its location",
        remedy="restore the file; or remove the table from the catalog, then resnapshot it",
    )


def _rooted(warehouse: str) -> str:
    return warehouse.removeprefix("file://").rstrip("/")


def _number(location: str) -> int:
    """How many versions came before the one in this file."""
    text = location.rpartition("/")[2].partition("-")[0]
    return int(text) if text.isdecimal() else 0


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
