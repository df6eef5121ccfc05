"""An Iceberg catalog in a folder, for tests: one file a version of a table's metadata, each taken
by the first that creates it. PyIceberg checks requirements and applies updates, as a catalog does.

`answers` in the folder says what becomes of the next commit's answer.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from cdcsync_spark.sinks.iceberg.catalog.port import (
    CatalogTableName,
    CommitLost,
    Json,
    LoadedTable,
    NewTable,
    OutcomeUnknown,
)
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import open_store

_UPDATES: TypeAdapter[Any] = TypeAdapter(tuple[TableUpdate, ...])
_REQUIREMENTS: TypeAdapter[Any] = TypeAdapter(tuple[TableRequirement, ...])
#: versions of metadata that are kept
_KEPT = 3


@dataclass(frozen=True)
class LocalStores:
    """Tables' files on this disk."""

    def at(self, location: str, vended: object = None) -> Store:
        return open_store(location)


@dataclass(frozen=True)
class FolderCatalog:
    """See `Catalog`; the tables' files lie beside their metadata in the folder `root`."""

    root: str

    def load(self, table: CatalogTableName) -> LoadedTable | None:
        found = self._newest(table)
        waiting = Path(self.root, "under-way")
        if waiting.exists():
            requirements, updates = json.loads(waiting.read_text())
            waiting.unlink()
            self.commit(table, requirements, updates)
        return None if found is None else LoadedTable(found[1])

    def vended(self, table: CatalogTableName) -> Mapping[str, str]:
        return {}

    def create(self, table: CatalogTableName, new: NewTable) -> LoadedTable:
        if self._newest(table) is not None:
            raise CommitLost
        schema = new.schema
        return self._put(
            table,
            1,
            {
                "format-version": new.format_version,
                "table-uuid": str(uuid.uuid4()),
                "location": str(self._folder(table)),
                "last-sequence-number": 0,
                "last-updated-ms": 1,
                "last-column-id": max(_ids(schema["fields"])),
                "current-schema-id": 0,
                "schemas": [schema],
                "default-spec-id": 0,
                "partition-specs": [{"spec-id": 0, "fields": []}],
                "last-partition-id": 999,
                "default-sort-order-id": 0,
                "sort-orders": [{"order-id": 0, "fields": []}],
                "properties": dict(new.properties),
                **({"next-row-id": 0} if new.format_version == 3 else {}),
            },
        )

    def commit(self, table: CatalogTableName, requirements: Sequence[Json], updates: Sequence[Json]) -> LoadedTable:
        answer = self._take_answer()
        if answer == "lost before":
            raise OutcomeUnknown("the connection was cut")
        if answer == "conflict before":
            Path(self.root, "under-way").write_text(json.dumps([requirements, updates]))
            raise CommitLost
        found = self._newest(table)
        if found is None:
            raise CommitLost
        base = TableMetadataUtil.parse_obj(dict(found[1]))
        try:
            for requirement in _REQUIREMENTS.validate_python(requirements):
                if base.snapshots or getattr(requirement, "snapshot_id", 0) is not None:
                    requirement.validate(base)
                # else PyIceberg refuses any branch but main, which Iceberg's own catalogs do not
        except CommitFailedException as lost:
            raise CommitLost(str(lost)) from None
        after = update_table_metadata(base, _UPDATES.validate_python(updates))
        document = after.model_dump(mode="json", by_alias=True, exclude_none=True)
        landed = self._put(table, found[0] + 1, _with_parents(document, found[1]))
        if answer == "lost after":
            raise OutcomeUnknown("the connection was cut")
        if answer == "conflict after":
            raise CommitLost
        if answer == "forgotten after":
            self._metadata(table).rename(self._metadata(table).with_name("forgotten"))
            raise CommitLost
        return landed

    def unnamed(self, table: CatalogTableName, names: Sequence[str]) -> list[str]:
        return []

    def drop(self, table: CatalogTableName) -> None:
        for path in self._metadata(table).glob("v*.metadata.json"):
            path.unlink()

    # -- for tests

    def lose_answer(self, *, landed: bool) -> None:
        """The next commit gets no answer."""
        Path(self.root, "answers").write_text("lost after" if landed else "lost before")

    def conflict_with_itself(self, *, landed: bool = True) -> None:
        """The next commit is answered as lost, because a balancer has sent it twice; it has landed,
        or does so once the table was loaded again."""
        Path(self.root, "answers").write_text("conflict after" if landed else "conflict before")

    def forget_at_commit(self) -> None:
        """The next commit lands, and the table is not found then until its folder `forgotten` is
        called `metadata` again."""
        Path(self.root, "answers").write_text("forgotten after")

    def metadata_file(self, table: CatalogTableName) -> str:
        """The newest one, for readers."""
        return str(max(self._metadata(table).glob("v*.metadata.json")))

    def _take_answer(self) -> str:
        with suppress(FileNotFoundError):
            path = Path(self.root, "answers")
            answer = path.read_text()
            path.unlink()
            return answer
        return ""

    def _folder(self, table: CatalogTableName) -> Path:
        return Path(self.root, *table.namespace, table.name)

    def _metadata(self, table: CatalogTableName) -> Path:
        return self._folder(table) / "metadata"

    def _newest(self, table: CatalogTableName) -> tuple[int, Json] | None:
        while names := sorted(self._metadata(table).glob("v*.metadata.json")):
            with suppress(FileNotFoundError):  # newer ones came meanwhile
                return int(names[-1].name[1:].partition(".")[0]), json.loads(names[-1].read_text())
        return None

    def _put(self, table: CatalogTableName, number: int, metadata: Json) -> LoadedTable:
        folder = self._metadata(table)
        folder.mkdir(parents=True, exist_ok=True)
        unnamed = folder / f".{uuid.uuid4().hex}"
        unnamed.write_text(json.dumps(metadata))
        try:
            os.link(unnamed, folder / _file(number))
        except FileExistsError:
            raise CommitLost from None
        finally:
            unnamed.unlink()
        with suppress(FileNotFoundError):
            (folder / _file(number - _KEPT)).unlink()
        return LoadedTable(metadata)


def _with_parents(after: dict[str, Any], before: Json) -> dict[str, Any]:
    """PyIceberg takes a parent that expires from its child, which Iceberg's own catalogs do not."""
    parents = {s["snapshot-id"]: s.get("parent-snapshot-id") for s in before.get("snapshots", ())}
    for snapshot in after.get("snapshots", ()):
        if (parent := parents.get(snapshot["snapshot-id"])) is not None:
            snapshot["parent-snapshot-id"] = parent
    return after


def _file(number: int) -> str:
    return f"v{number:09d}.metadata.json"


def _ids(fields: Sequence[Json]) -> list[int]:
    return [number for field in fields for number in (field["id"], _element(field["type"]))]


def _element(kind: Any) -> int:
    return kind["element-id"] if isinstance(kind, dict) else 0


def iceberg_sink(store: Store, sync: str, **options: Any) -> IcebergSink:
    """A sink whose catalog is a folder."""
    folder = store.local_folder
    assert folder is not None
    return IcebergSink(FolderCatalog(str(folder)), LocalStores(), sync, **options)
